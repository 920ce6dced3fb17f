"""The command line: the composition root, which alone puts brokers, consumers and clients together."""
