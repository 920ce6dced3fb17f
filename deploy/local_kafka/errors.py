"""What can go wrong with a local broker; every docstring says what to do.

::

    LocalKafkaError
    ├── JavaNotFound             no Java 17 or newer
    ├── DistributionUnavailable  Apache Kafka is not here and cannot be fetched
    ├── DataDirInUse             another process owns the data directory
    ├── DataDirTooNew            the data directory was written by a newer Kafka
    └── StartFailed              the broker did not become ready
        └── PortTaken            because another process listens at its port
"""
# ruff: noqa: N818 - the names say what happened, and are what callers catch


class LocalKafkaError(Exception):
    """A local broker cannot do what was asked; the message says why and what to do."""


class JavaNotFound(LocalKafkaError):
    """No Java 17 or newer was found: ``pip install engramlog[local-kafka]``, or set ``JAVA_HOME``."""


class DistributionUnavailable(LocalKafkaError):
    """Apache Kafka could not be had: see Maven's words in the message, or set ``KAFKA_HOME`` to an unpacked release."""


class DataDirInUse(LocalKafkaError):
    """A live process owns the data directory: use that broker, stop it, or choose another directory.

    Attributes:
        pid: The owner, or ``None`` when it has not said yet who it is.
    """

    def __init__(self, message: str, *, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid


class DataDirTooNew(LocalKafkaError):
    """Kafka opens only what the same or an older version wrote: use the newer version again, or another directory."""


class StartFailed(LocalKafkaError):
    """The broker did not become ready: the message ends with its log file's path and last lines."""


class PortTaken(StartFailed):
    """Another process listens there: stop it, or choose another port."""
