"""Points of view: memory as it is, or as it was."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, bindparam

from engramlog.schemas.queries import HistoryQuery

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
    def of(cls, query: HistoryQuery) -> "View":
        """The point of view of a query: its ``as_of``, within the snapshot that its first page had read."""
        as_of = query.as_of
        ats = [a for a in (query.page.as_of if query.page else None, as_of.offset if as_of else None) if a is not None]
        return cls(
            at=min(ats, default=None),
            ms=milliseconds(as_of.recorded) if as_of and as_of.recorded else None,
            us=microseconds(as_of.happened) if as_of and as_of.happened else None,
        )

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


def milliseconds(moment: datetime) -> int:
    """Whole milliseconds since the epoch."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def microseconds(moment: datetime) -> int:
    """Microseconds since the epoch."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def instant(ms: int) -> datetime:
    """Milliseconds since the epoch as an instant."""
    return EPOCH + timedelta(milliseconds=ms)
