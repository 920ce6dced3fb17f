r"""Every error of engramlog, in one tree.

::

    EngramlogError
    ├── Permanent                     trying again does not help
    │   ├── InvalidEvent              the bytes of one event are wrong (each with a ``reason`` code)
    │   │   ├── EmptyValue            the value has zero bytes (a tombstone has none at all)
    │   │   ├── TooLarge              more bytes than an event may have
    │   │   ├── TooDeep               nested deeper than an event may be
    │   │   ├── NotUtf8               the bytes are not UTF-8
    │   │   ├── LoneSurrogate         half a character (``\ud800``) in a string
    │   │   ├── NotJson               the text is not JSON
    │   │   ├── NotAnEvent            JSON, but not a CloudEvents 1.0 object
    │   │   ├── UnknownType           an event type that this version does not know
    │   │   ├── NewerVersion          a known type in a version from the future
    │   │   ├── NaiveTime             a time without an offset
    │   │   ├── SchemaViolation       a field is missing, unknown or out of range
    │   │   ├── NotAdmitted           the inbox takes records, nothing else
    │   │   ├── WrongKey              the Kafka key is not the one of the event
    │   │   └── WrongPartition        the event lies in another agent's partition
    │   ├── BadInput                  a file to import is wrong at a line (in schemas.formats)
    │   ├── Unprocessable             a store cannot hold this event
    │   ├── ConfigurationError        settings, topics or a cluster do not fit
    │   ├── ModelRefused              a model will never take this input, or gave nonsense for it
    │   └── RequestRefused            the engine refused a request (``code`` says why)
    └── Transient                     the same call may succeed later
        ├── BrokerUnavailable         Kafka cannot be reached
        ├── StoreUnavailable          a database cannot be reached or is locked
        ├── ModelUnavailable          a model cannot be reached, is overloaded or too slow
        ├── Fenced                    another owner of the partition wrote first
        └── DeadlineExceeded          no answer before the caller's deadline
"""

from typing import ClassVar


class EngramlogError(Exception):
    """The root: catch it to catch everything that engramlog raises on purpose."""


class Permanent(EngramlogError):  # noqa: N818 - a family of errors, named as the design names it
    """Trying again does not help."""


class Transient(EngramlogError):  # noqa: N818 - a family of errors, named as the design names it
    """The same call may succeed later."""


class InvalidEvent(Permanent):
    """The bytes of one event are wrong; ``reason`` is the code that its dead letter carries."""

    reason: ClassVar[str] = "invalid_event"


class EmptyValue(InvalidEvent):
    """The value has zero bytes."""

    reason = "empty_value"


class TooLarge(InvalidEvent):
    """More bytes than an event may have."""

    reason = "too_large"


class TooDeep(InvalidEvent):
    """Nested deeper than an event may be."""

    reason = "too_deep"


class NotUtf8(InvalidEvent):
    """The bytes are not UTF-8."""

    reason = "not_utf8"


class LoneSurrogate(InvalidEvent):
    """A string holds half of a surrogate pair, which no UTF-8 text can."""

    reason = "lone_surrogate"


class NotJson(InvalidEvent):
    """The text is not JSON."""

    reason = "not_json"


class NotAnEvent(InvalidEvent):
    """The JSON is not a CloudEvents 1.0 object."""

    reason = "not_an_event"


class UnknownType(InvalidEvent):
    """This version of engramlog does not know the event's type."""

    reason = "unknown_type"


class NewerVersion(InvalidEvent):
    """The type is known, its schema version is from the future."""

    reason = "newer_version"


class NaiveTime(InvalidEvent):
    """A time has no offset, so it names no instant."""

    reason = "naive_time"


class SchemaViolation(InvalidEvent):
    """A field is missing, unknown, of another type or out of range."""

    reason = "schema_violation"


class NotAdmitted(InvalidEvent):
    """The inbox takes records only; mutations are commands, asked through a client."""

    reason = "not_admitted"


class WrongKey(InvalidEvent):
    """The Kafka key is not the one that the event must have, so compaction would treat it wrongly."""

    reason = "wrong_key"


class WrongPartition(InvalidEvent):
    """The event does not lie in its agent's partition, so its order is not the agent's order."""

    reason = "wrong_partition"


class Unprocessable(Permanent):
    """A store cannot hold this event, however often it is asked."""

    reason: ClassVar[str] = "unprocessable"


class ConfigurationError(Permanent):
    """Settings, topics or a cluster do not fit; the message names the setting to change."""


class ModelRefused(Permanent):
    """A model will never take this input, or what it gave for it is no answer."""


class RequestRefused(Permanent):
    """The engine refused a request.

    Attributes:
        code: One of :data:`engramlog.schemas.queries.ErrorCode`.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} [{code}]")
        self.code = code
        self.message = message


class BrokerUnavailable(Transient):
    """Kafka cannot be reached."""


class StoreUnavailable(Transient):
    """A database cannot be reached, or is locked for longer than we wait."""


class Fenced(Transient):
    """Another owner of the partition moved its checkpoint first; nothing was written."""


class DeadlineExceeded(Transient, TimeoutError):  # noqa: N818 - one of that family
    """No answer before the caller's deadline."""


class ModelUnavailable(Transient):
    """A model cannot be reached, is overloaded, or takes longer than we wait."""
