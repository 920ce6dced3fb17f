"""How to reach Kafka, and how its errors are named here."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    UnknownTopicOrPartitionError,
)

from engramlog.engine.client import header_keys, stops
from engramlog.engine.client.refusals import refusal
from engramlog.engine.client.security import PLAINTEXT, Security
from engramlog.schemas.errors import BrokerUnavailable, ConfigurationError, TooLarge
from engramlog.schemas.topics import DEFAULT_PREFIX, MAX_MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """A Kafka cluster, and the topics of one engine in it.

    Attributes:
        bootstrap_servers: ``host:port``, several separated by commas. Default ``localhost:9092``.
        prefix: What the topic names begin with. Default ``memory``.
        idempotent: Whether the producer is idempotent, so that its own retries neither double nor reorder. Default
            True; only the demo broker needs False.
        fetch_max_wait_ms: How long a broker may hold a fetch that has nothing to return, in milliseconds. Default 500;
            brokers that do not wake a waiting fetch need 10 to 20.
        request_timeout_ms: Limit of one request to a broker, in milliseconds. Default 20,000.
        client_id: How the broker's logs name this process. Default ``engramlog``.
        security: TLS and login. Default: neither.
    """

    bootstrap_servers: str = "localhost:9092"
    prefix: str = DEFAULT_PREFIX
    idempotent: bool = True
    fetch_max_wait_ms: int = 500
    request_timeout_ms: int = 20_000
    client_id: str = "engramlog"
    security: Security = PLAINTEXT

    def common(self) -> dict[str, Any]:
        """Arguments of every aiokafka client.

        Raises:
            ConfigurationError: A file of the security settings cannot be used.
        """
        return {"bootstrap_servers": self.bootstrap_servers.split(","), **self.connection()}

    def connection(self) -> dict[str, Any]:
        """Arguments of a single connection to a broker."""
        return {
            "client_id": self.client_id,
            "request_timeout_ms": self.request_timeout_ms,
            **self.security.arguments(),
        }

    def producer(self) -> dict[str, Any]:
        """Arguments of a producer: nothing is acknowledged before all in-sync replicas have it."""
        return {
            **self.common(),
            "acks": "all",
            "enable_idempotence": self.idempotent,
            "max_request_size": MAX_MESSAGE_BYTES,
            "max_batch_size": 262_144,
        }

    def reader(self) -> dict[str, Any]:
        """Arguments of a consumer without a group, which keeps its own positions."""
        header_keys.tolerate()
        stops.tolerate()
        return {
            **self.common(),
            "group_id": None,
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
            "isolation_level": "read_committed",
            "fetch_max_wait_ms": self.fetch_max_wait_ms,
        }


@contextmanager
def kafka_errors(config: KafkaConfig, doing: str) -> Iterator[None]:
    """Name aiokafka's errors as ours.

    Raises:
        TooLarge: The broker refuses a message of that size.
        ConfigurationError: A topic does not exist, or the broker refuses: login, TLS, ACLs.
        BrokerUnavailable: Anything else that Kafka says, and every lost connection.
    """
    try:
        yield
    except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
        raise TooLarge(f"Kafka refuses a message of that size while {doing}: {error}") from error
    except UnknownTopicOrPartitionError as error:
        raise ConfigurationError(
            f"a topic of the prefix {config.prefix!r} does not exist on {config.bootstrap_servers}: "
            f"create it with 'engramlog topics create' ({doing})"
        ) from error
    except (KafkaError, OSError) as error:
        if (why := refusal(config.security, error)) is not None:
            raise ConfigurationError(f"Kafka at {config.bootstrap_servers}: {why} ({doing})") from error
        raise BrokerUnavailable(unavailable(f"Kafka at {config.bootstrap_servers}", doing, error)) from error


def unavailable(where: str, doing: str, error: BaseException) -> str:
    """What is said of a broker that does not answer."""
    return f"{where} does not answer while {doing}: {type(error).__name__}: {error}"
