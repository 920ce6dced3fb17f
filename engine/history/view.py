"""Points of view: memory as it is, or as it was."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, bindparam

from engramlog.schemas.asking import AsOf
from engramlog.schemas.errors import RequestRefused

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOTHING_YET = -1
"""The offset that memory is empty as of."""
_LAST_OFFSET = 2**62  # a database can count on from there


@dataclass(frozen=True, slots=True)
class View:
    """A point of view. A row is seen when it is not later than any limit, and was not hidden within all of them.

    Attributes:
        at: Recorded axis: offset, inclusive; None: no limit.
        ms: Recorded axis: log time in milliseconds, inclusive.
        us: Happened axis: microseconds, inclusive.
        hidden_too: Removed rows are seen as well.
        span: Lowest and highest position of rows that are hidden now and were not then, where known; (0, -1): none.
        ceiling: No row is seen above this position, where known.
    """

    at: int | None = None
    ms: int | None = None
    us: int | None = None
    hidden_too: bool = False
    span: tuple[int, int] | None = None
    ceiling: int | None = None

    @classmethod
    def of(cls, as_of: AsOf | None, place: tuple[str, int], *, page: int | None = None) -> "View":
        """A point of view as it was asked for.

        Args:
            as_of: What was asked for; None: memory as it is.
            place: Topic of the records, and the agent's partition of it.
            page: As of which offset the first page of an answer was read.

        Raises:
            RequestRefused: It is of another log.
        """
        ats = [at for at in (page, offset_of(as_of, place)) if at is not None]
        return cls(
            at=min(ats, default=None),
            ms=milliseconds(as_of.recorded) if as_of and as_of.recorded else None,
            us=microseconds(as_of.happened) if as_of and as_of.happened else None,
        )

    @property
    def past(self) -> bool:
        """Whether it is one of the recorded axis: what was marked later is not marked in it."""
        return self.at is not None or self.ms is not None

    def shape(self) -> tuple[object, ...]:
        """What the conditions are a function of, values apart."""
        limited = (self.at is not None, self.ms is not None, self.us is not None)
        return (*limited, self.ceiling is not None, self.hidden_too, self.span is None, self.span == (0, -1))

    def values(self) -> dict[str, int | None]:
        """The values of the conditions' parameters."""
        low, high = self.span or (None, None)
        return {"at": self.at, "ms": self.ms, "us": self.us, "low": low, "high": high, "ceiling": self.ceiling}

    def limits(self, c: Any) -> list[ColumnElement[bool]]:
        """The conditions that hold for visible and hidden rows alike."""
        found: list[ColumnElement[bool]] = []
        if self.at is not None:
            found.append(c.position <= bindparam("at"))
        if self.ms is not None:
            found.append(c.recorded_ms <= bindparam("ms"))
        if self.us is not None:
            found.append(c.happened_us <= bindparam("us"))
        if self.ceiling is not None:
            found.append(c.position <= bindparam("ceiling"))
        return found

    def mark_limits(self, c: Any) -> list[ColumnElement[bool]]:
        """The conditions for marks: those of the recorded axis."""
        return replace(self, us=None, ceiling=None).limits(c)

    def before(self, row: Any) -> bool:
        """Whether a hidden row was not yet hidden."""
        return (self.at is not None and row.hidden_at > self.at) or (self.ms is not None and row.hidden_ms > self.ms)


NOW = View()
"""Memory as it is."""


def offset_of(as_of: AsOf | None, place: tuple[str, int]) -> int | None:
    """The offset that a point in the past names, in the agent's partition of the records; None: it names none.

    Raises:
        RequestRefused: It names positions of topics that are not the records of this engine.
    """
    if as_of is None:
        return None
    if as_of.offset is not None:
        return min(as_of.offset, _LAST_OFFSET)
    if as_of.positions is None:
        return None
    topic, _ = place
    if as_of.positions and not any(position.topic == topic for position in as_of.positions):
        others = ", ".join(sorted({position.topic for position in as_of.positions}))
        raise RequestRefused("bad_request", f"these positions are of another log: of {others}, not of {topic}")
    here = (p.offset for p in as_of.positions if (p.topic, p.partition) == place)
    return min(next(here, NOTHING_YET), _LAST_OFFSET)


def milliseconds(moment: datetime) -> int:
    """Whole milliseconds since the epoch."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def microseconds(moment: datetime) -> int:
    """Microseconds since the epoch."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def instant(ms: int) -> datetime:
    """Milliseconds since the epoch as an instant."""
    return EPOCH + timedelta(milliseconds=ms)


def instant_us(us: int) -> datetime:
    """Microseconds since the epoch as an instant."""
    return EPOCH + timedelta(microseconds=us)
