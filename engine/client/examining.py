"""What a broker tells of itself: its version, its certificate, its clock."""

import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass

from aiokafka import AIOKafkaProducer
from aiokafka.protocol.metadata import MetadataRequest

from engramlog.engine.client.connection import KafkaConfig, kafka_errors
from engramlog.engine.client.reach import connection, reach

_FETCH, _INIT_PRODUCER_ID = 1, 22
_BY_FETCH: Mapping[int, str] = {12: "2.7", 13: "3.1", 14: "3.5", 15: "3.5", 16: "3.7", 17: "3.9", 18: "4.1"}
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker, as it shows itself.

    Attributes:
        brokers: How many there are in its cluster.
        kafka_version: Which Kafka it is, in words: brokers tell versions of requests, not their own.
        idempotence: Whether it knows idempotent producers.
        certificate_days: How long its certificate is still valid, in days; None: no TLS.
    """

    brokers: int
    kafka_version: str
    idempotence: bool
    certificate_days: float | None


async def look_at_broker(config: KafkaConfig) -> Broker:
    """Ask the first bootstrap server that answers.

    Raises:
        ConfigurationError: It refuses.
        BrokerUnavailable: None answers.
    """
    doing = "looking at the broker"
    host, port = await reach(config, doing)
    with kafka_errors(config, doing):
        async with connection(host, port, config.connection()) as found:
            versions: Mapping[int, tuple[int, int]] = found._versions  # noqa: SLF001 - told nowhere else
            certificate = found._writer.get_extra_info("peercert")  # noqa: SLF001 - likewise
            metadata = await found.send(MetadataRequest([]))
    left = ssl.cert_time_to_seconds(certificate["notAfter"]) - time.time() if certificate else None
    return Broker(
        brokers=len(metadata.brokers),
        kafka_version=_kafka_version(versions),
        idempotence=_INIT_PRODUCER_ID in versions,
        certificate_days=None if left is None else left / _DAY_S,
    )


def _kafka_version(versions: Mapping[int, tuple[int, int]]) -> str:
    fetch = versions.get(_FETCH, (0, 0))[1]
    known = max((number for number in _BY_FETCH if number <= fetch), default=None)
    release = "older than Apache Kafka 2.7" if known is None else f"Apache Kafka {_BY_FETCH[known]} or newer"
    return f"{release} by its requests (Fetch {fetch})"


async def clock_ahead_s(config: KafkaConfig, topic: str) -> float:
    """How far the broker's clock is ahead of ours, in seconds, within half a round trip.

    Writes one empty message without headers, which everybody drops unread.

    Args:
        config: The cluster.
        topic: The topic of replies: the broker stamps what is appended to it.

    Raises:
        ConfigurationError: The topic does not exist, or we must not write it.
        BrokerUnavailable: Kafka does not answer.
    """
    doing = f"comparing clocks in {topic}"
    await reach(config, doing)
    producer = AIOKafkaProducer(**{**config.producer(), "enable_idempotence": False})
    with kafka_errors(config, doing):
        try:
            await producer.start()
            await producer.partitions_for(topic)
            before = time.time()
            sent = await producer.send_and_wait(topic, b"", key=b"doctor", partition=0)
            after = time.time()
        finally:
            await producer.stop()
    return float(sent.timestamp / 1000 - (before + after) / 2)
