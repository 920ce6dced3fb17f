"""Keys and the partition rule: what makes a log compactable, and one agent's events one order.

A key is ``tenant/agent/record_id`` for a record and ``tenant/agent/~event_id`` for any other event. Inside a part,
``%``, ``/`` and ``~`` are written ``%25``, ``%2F`` and ``%7E``, so that no id can be mistaken for another key.
The partition is ``(murmur2(utf8("tenant/agent")) & 0x7fffffff) % n``, over the parts as they stand in the key.
``tests/unit/partition_vectors.json`` holds vectors for producers in other languages.
"""

from dataclasses import dataclass
from functools import lru_cache

from engramlog.schemas.errors import WrongKey

_M, _SEED, _MASK = 0x5BD1E995, 0x9747B28C, 0xFFFFFFFF
_WATERMARK = "~watermark/"
_WATERMARK_BYTES = _WATERMARK.encode()


@dataclass(frozen=True, slots=True)
class Key:
    """A parsed key.

    Attributes:
        tenant: The tenant.
        agent: The agent; empty for an event of a whole tenant.
        record_id: Set for a record.
        event_id: Set for any other event.
    """

    tenant: str
    agent: str
    record_id: str | None = None
    event_id: str | None = None


def _escape(part: str) -> str:
    return part.replace("%", "%25").replace("/", "%2F").replace("~", "%7E")


def _unescape(part: str) -> str:
    if "%" not in part and "~" not in part:
        return part
    plain = part.replace("%7E", "~").replace("%2F", "/").replace("%25", "%")
    if _escape(plain) != part:
        raise WrongKey(f"the key part {part!r} is not escaped: write '%' as %25, '/' as %2F and '~' as %7E")
    return plain


@lru_cache(maxsize=65_536)
def agent_prefix(tenant: str, agent: str | None) -> str:
    """``tenant/agent``, escaped: what the partition is computed from. ``agent`` None: a whole tenant."""
    return f"{_escape(tenant)}/{_escape(agent or '')}"


def record_key(tenant: str, agent: str, record_id: str) -> bytes:
    """The key of a record."""
    return f"{agent_prefix(tenant, agent)}/{_escape(record_id)}".encode()


def event_key(tenant: str, agent: str | None, event_id: str) -> bytes:
    """The key of any event that is not a record; ``agent`` None for an event of a whole tenant."""
    return f"{agent_prefix(tenant, agent)}/~{_escape(event_id)}".encode()


def watermark_key(partition: int) -> bytes:
    """The key of a partition's watermark, ``~watermark/partition``; no tenant can be written like this."""
    return f"{_WATERMARK}{partition}".encode()


def parse_key(key: bytes | None) -> Key:
    """Take a key apart. A watermark's has the tenant ``~``.

    Raises:
        WrongKey: It is missing, not UTF-8, or not of the form above.
    """
    if key is None:
        raise WrongKey("the message has no key; it must be tenant/agent/record_id or tenant/agent/~event_id")
    try:
        parts = key.decode().split("/")
    except UnicodeDecodeError as error:
        raise WrongKey(f"the key is not UTF-8: {error}") from None
    if key.startswith(_WATERMARK_BYTES) and len(parts) == 2:  # noqa: PLR2004 - the name and the partition
        return Key("~", "", event_id=parts[1])
    if len(parts) != 3 or not parts[0] or parts[2] in {"", "~"}:  # noqa: PLR2004 - tenant, agent, id
        raise WrongKey(f"the key {key!r} is not tenant/agent/record_id or tenant/agent/~event_id")
    tenant, agent = _unescape(parts[0]), _unescape(parts[1])
    if parts[2].startswith("~"):
        return Key(tenant, agent, event_id=_unescape(parts[2][1:]))
    if not agent:
        raise WrongKey(f"the key {key!r} names no agent; only an event of a whole tenant may leave it out")
    return Key(tenant, agent, record_id=_unescape(parts[2]))


def murmur2(data: bytes) -> int:
    """MurmurHash2 (Austin Appleby), 32 bit, with the seed that Kafka's Java client uses; unsigned."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=65_536)
def partition_for(tenant: str, agent: str, partitions: int) -> int:
    """The partition of every event of one agent, in every agent topic of ``partitions`` partitions."""
    return (murmur2(agent_prefix(tenant, agent).encode()) & 0x7FFFFFFF) % partitions
