"""The engine: projections, answers and the client. Knows neither FastStream nor, but for the client, Kafka."""
