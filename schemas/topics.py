"""The topic table: the only place that names topics, their payloads, keys, configuration, producers and consumers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from engramlog.schemas.errors import ConfigurationError

_DAY_MS = 24 * 60 * 60 * 1000
DEFAULT_PREFIX = "memory"
DEFAULT_PARTITIONS = 12
MAX_MESSAGE_BYTES = 1_048_576
_PREFIX = re.compile(r"[a-zA-Z0-9._-]{1,200}")

AGENT_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "delete.retention.ms": str(30 * _DAY_MS),
    "max.compaction.lag.ms": str(7 * _DAY_MS),
    "message.timestamp.type": "LogAppendTime",
    "max.message.bytes": str(MAX_MESSAGE_BYTES),
}
"""Agent topics remember for ever: the last copy of every key, until a tombstone takes it."""

MUST_HOLD = ("cleanup.policy", "retention.ms", "retention.bytes", "message.timestamp.type")
"""Without these an agent topic would forget, or lose its recorded axis: no process runs on it."""


def _service_config(retention_ms: int) -> Mapping[str, str]:
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(retention_ms),
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
    }


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One row of the table.

    Attributes:
        name: Full name, prefix included.
        kind: ``agent`` topics hold memory (compacted, infinite retention, one agent in one partition); ``service``
            topics carry traffic and forget after their retention.
        payload: What lies in it, in words.
        key: The key of its messages, in words.
        producers: Who writes it.
        consumers: Who reads it.
        partitions: Number of partitions; the same for every agent topic.
        config: Topic configuration.
    """

    name: str
    kind: Literal["agent", "service"]
    payload: str
    key: str
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    partitions: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one engine.

    Attributes:
        prefix: What their names begin with, default ``memory``.
        partitions: Partitions of every topic, default 12. Agent topics can never change it: see the README.
        traffic_retention_ms: How long requests and replies are kept, in milliseconds, default 1 hour.
        dead_letters_retention_ms: How long dead letters are kept, in milliseconds, default 30 days.
        inbox_retention_ms: How long messages of the inbox are kept, in milliseconds, default 7 days.

    Raises:
        ConfigurationError: Kafka would not take the prefix, or there is no partition.
    """

    prefix: str = DEFAULT_PREFIX
    partitions: int = DEFAULT_PARTITIONS
    traffic_retention_ms: int = _DAY_MS // 24
    dead_letters_retention_ms: int = 30 * _DAY_MS
    inbox_retention_ms: int = 7 * _DAY_MS

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            raise ConfigurationError(f"topic prefix {self.prefix!r}: 1 to 200 of the characters a-z A-Z 0-9 . _ -")
        if self.partitions < 1:
            raise ConfigurationError(f"{self.partitions} partitions: there must be at least 1")

    @property
    def inbox(self) -> str:
        """Records of producers that are not ours."""
        return f"{self.prefix}.inbox"

    @property
    def records(self) -> str:
        """The memory itself."""
        return f"{self.prefix}.records"

    def derived_of(self, generation: int) -> str:
        """What was derived from it, in one generation of derivations."""
        return f"{self.prefix}.derived.g{generation}"

    @property
    def derived(self) -> str:
        """What was derived from it, in the first generation."""
        return self.derived_of(1)

    @property
    def summaries(self) -> str:
        """Shorter texts that stand for records."""
        return f"{self.prefix}.summaries"

    @property
    def queries(self) -> str:
        """Requests of agents."""
        return f"{self.prefix}.queries"

    @property
    def replies(self) -> str:
        """Answers to them."""
        return f"{self.prefix}.replies"

    @property
    def dead_letters(self) -> str:
        """Whatever could not be processed, byte by byte."""
        return f"{self.prefix}.dead-letters"

    def derived_spec(self, generation: int) -> TopicSpec:
        """The row of one generation's topic of derivations; the table has the first one's."""
        return TopicSpec(
            name=self.derived_of(generation),
            kind="agent",
            payload="record.derived, recall.changed and watermark.passed (DerivedEvent)",
            key="tenant/agent/record_id, tenant/agent/~event_id, ~watermark/partition",
            producers=("derive",),
            consumers=("store", "index"),
            partitions=self.partitions,
            config=AGENT_CONFIG,
        )

    def table(self) -> tuple[TopicSpec, ...]:
        """Every topic, in the order of the event's way."""
        n = self.partitions
        return (
            TopicSpec(
                name=self.inbox,
                kind="service",
                payload="a record as plain JSON (InboxRecord), or a record.written event",
                key="any; messages with the same key keep their order",
                producers=("any producer",),
                consumers=("admit",),
                partitions=n,
                config=_service_config(self.inbox_retention_ms),
            ),
            TopicSpec(
                name=self.records,
                kind="agent",
                payload="record.written and the mutations of records (RecordEvent)",
                key="tenant/agent/record_id, tenant/agent/~event_id",
                producers=("client", "admit", "answer", "summarise"),
                consumers=("store", "derive", "summarise"),
                partitions=n,
                config=AGENT_CONFIG,
            ),
            self.derived_spec(1),
            TopicSpec(
                name=self.summaries,
                kind="agent",
                payload="summary.created and summary.failed (SummaryEvent)",
                key="tenant/agent/~summary_id",
                producers=("summarise",),
                consumers=("store",),
                partitions=n,
                config=AGENT_CONFIG,
            ),
            TopicSpec(
                name=self.queries,
                kind="service",
                payload="query.asked (QueryAsked); the reply address is in the headers",
                key="tenant/agent/~request_id",
                producers=("client",),
                consumers=("answer",),
                partitions=n,
                config=_service_config(self.traffic_retention_ms),
            ),
            TopicSpec(
                name=self.replies,
                kind="service",
                payload="query.replied (QueryReplied)",
                key="request id; the partition is the one that the request names",
                producers=("answer",),
                consumers=("client",),
                partitions=n,
                config=_service_config(self.traffic_retention_ms),
            ),
            TopicSpec(
                name=self.dead_letters,
                kind="service",
                payload="the raw bytes, with DeadLetter as JSON in the header 'dead-letter'",
                key="topic/partition/offset of the origin",
                producers=("admit", "store", "derive", "index", "summarise", "answer"),
                consumers=(),
                partitions=n,
                config=_service_config(self.dead_letters_retention_ms),
            ),
        )
