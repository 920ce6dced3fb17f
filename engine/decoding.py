"""From a message of an agent topic to the entry of a run: checked, lifted to the newest version, or refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from engramlog.engine.log import Entry
from engramlog.schemas.codec import Codec
from engramlog.schemas.derived import RecordDerived
from engramlog.schemas.envelope import RecordWritten
from engramlog.schemas.errors import WrongKey, WrongPartition
from engramlog.schemas.keys import Key, parse_key, partition_for


class RawMessage(Protocol):
    """A message as aiokafka gives it."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def partition(self) -> int:
        """Its partition."""

    @property
    def offset(self) -> int:
        """Its offset."""

    @property
    def timestamp(self) -> int:
        """When the broker appended it, milliseconds since the epoch."""

    @property
    def key(self) -> Any:
        """Its key."""

    @property
    def value(self) -> Any:
        """Its bytes; None: a tombstone."""

    @property
    def headers(self) -> Any:
        """Its headers."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decodes the messages of agent topics.

    Attributes:
        codecs: What decodes each topic's events.
        partitions: Number of every topic's partitions: the n of the partition rule.
    """

    codecs: Mapping[str, Codec[Any]]
    partitions: int

    def entry(self, message: RawMessage) -> Entry:
        """Decode one message.

        Raises:
            InvalidEvent: It is no event of ours, its key is not its event's, or it lies in the wrong partition.
        """
        if message.value is None:
            key = parse_key(message.key)
            self._check_partition(message, key.tenant, key.agent or None)
            return Entry(message.offset, message.timestamp, key, None, b"")
        event, value = self.codecs[message.topic].decode_current(message.value)
        if event.key() != message.key:
            raise WrongKey(f"the key is {message.key!r}, for this event it must be {event.key()!r}")
        self._check_partition(message, event.tenantid, getattr(event, "agentid", None))
        return Entry(message.offset, message.timestamp, _key_of(event), event, value)

    def _check_partition(self, message: RawMessage, tenant: str, agent: str | None) -> None:
        if agent is None:  # the erasure of a user or a tenant, and the watermark, lie in every partition
            return
        wanted = partition_for(tenant, agent, self.partitions)
        if message.partition != wanted:
            raise WrongPartition(
                f"partition {message.partition}, for this agent it must be {wanted}: "
                f'(murmur2(utf8("tenant/agent")) & 0x7fffffff) % {self.partitions}; producers that cannot compute it '
                "find test vectors in tests/unit/partition_vectors.json"
            )


def _key_of(event: Any) -> Key:
    """The parsed key of an event whose key was checked."""
    if isinstance(event, (RecordWritten, RecordDerived)):
        return Key(event.tenantid, event.agentid, record_id=event.data.record_id)
    return Key(event.tenantid, getattr(event, "agentid", None) or "", event_id=event.id)
