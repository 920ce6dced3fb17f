"""The consumers: FastStream subscribers, one a file, and the delivery that they share."""
