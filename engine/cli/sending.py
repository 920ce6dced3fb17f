"""Publishing turns in batches of bounded size, and remembering where they went."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field

from engramlog.engine.cli.turns import Invalid, Turn
from engramlog.engine.client import MemoryClient
from engramlog.schemas.codec import records_codec
from engramlog.schemas.errors import InvalidEvent
from engramlog.schemas.scope import Position

BATCH_RECORDS = 1_000
BATCH_BYTES = 4_000_000


@dataclass(slots=True)
class Extent:
    """What went to one partition.

    Attributes:
        first: The first position.
        last: The last position.
        records: How many.
    """

    first: Position
    last: Position
    records: int = 1


@dataclass(slots=True)
class Sent:
    """What was published.

    Attributes:
        records: How many messages were acknowledged.
        extents: Where they lie, by topic and partition.
    """

    records: int = 0
    extents: dict[tuple[str, int], Extent] = field(default_factory=dict)

    def add(self, position: Position) -> None:
        """Note one."""
        self.records += 1
        extent = self.extents.get((position.topic, position.partition))
        if extent is None:
            self.extents[position.topic, position.partition] = Extent(position, position)
        else:
            extent.last = position
            extent.records += 1

    def positions(self) -> list[dict[str, object]]:
        """The extents as JSON takes them, by topic and partition."""
        return [
            {"topic": topic, "partition": n, "first": e.first.offset, "last": e.last.offset, "records": e.records}
            for (topic, n), e in sorted(self.extents.items())
        ]


def checked(turns: Iterable[Turn | Invalid]) -> Iterator[tuple[Turn, int] | Invalid]:
    """Turns with their encoded sizes in bytes; one that is too large for an event is invalid."""
    codec = records_codec()
    for turn in turns:
        if isinstance(turn, Invalid):
            yield turn
            continue
        try:
            size = len(codec.encode(turn.event))
        except InvalidEvent as error:
            yield Invalid(turn.where, error)
        else:
            yield turn, size


async def send(
    client: MemoryClient,
    turns: Iterable[tuple[Turn, int] | Invalid],
    *,
    on_invalid: Callable[[Invalid], InvalidEvent | None],
    timeout_s: float,
) -> AsyncIterator[list[tuple[Turn, Position]]]:
    """Publish turns in their order, batch after batch, each acknowledged before the next is read.

    Args:
        client: What publishes.
        turns: As :func:`checked` gives them; read as they are published.
        on_invalid: Called for what is no turn; what it returns is raised, once all before it is published.
        timeout_s: Limit for each batch, in seconds.

    Yields:
        The turns of a batch, with their positions.

    Raises:
        InvalidEvent: What ``on_invalid`` returned.
        DeadlineExceeded: A batch was not acknowledged in time.
    """
    batch: list[Turn] = []
    room = BATCH_BYTES
    for item in turns:
        if isinstance(item, Invalid):
            if (error := on_invalid(item)) is None:
                continue
            if batch:
                yield await _publish(client, batch, timeout_s)
            raise error
        turn, size = item
        if batch and (size > room or len(batch) >= BATCH_RECORDS):
            yield await _publish(client, batch, timeout_s)
            batch, room = [], BATCH_BYTES
        batch.append(turn)
        room -= size
    if batch:
        yield await _publish(client, batch, timeout_s)


async def _publish(client: MemoryClient, batch: list[Turn], timeout_s: float) -> list[tuple[Turn, Position]]:
    positions = await client.publish_events([turn.event for turn in batch], timeout_s=timeout_s)
    return list(zip(batch, positions, strict=True))
