"""Where a copy comes from: a header of each copied message."""

from dataclasses import dataclass

from engramlog.engine.client.reader import Message

ORIGIN = "engramlog-copy-of"
"""Header of a copy: ``log/partition/offset`` of its original."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The place of an original.

    Attributes:
        log: The name of the log: the topic, or what an archive calls it.
        partition: Partition.
        offset: Offset.
    """

    log: str
    partition: int
    offset: int

    def header(self) -> tuple[str, bytes]:
        """The header of its copy."""
        return ORIGIN, f"{self.log}/{self.partition}/{self.offset}".encode()


def origin_of(message: Message) -> Origin | None:
    """Where a message was copied from; None: it is no copy."""
    values = [value for name, value in message.headers if name == ORIGIN]
    if not values or not values[-1]:
        return None
    log, _, offset = values[-1].decode(errors="replace").rpartition("/")
    log, _, partition = log.rpartition("/")
    if not (log and partition.isdecimal() and offset.isdecimal()):
        return None
    return Origin(log, int(partition), int(offset))


def without_origin(message: Message) -> tuple[tuple[str, bytes | None], ...]:
    """The other headers of a message."""
    return tuple(header for header in message.headers if header[0] != ORIGIN)
