"""What the client reads of the history: windows in pages, and records by their ids."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engramlog.engine.client.asking import Asking, Seen, query_of
from engramlog.schemas import queries as q
from engramlog.schemas.scope import Position, Scope

_AT_ONCE = 1_000
"""How many records one request may name."""


@dataclass(frozen=True, slots=True)
class History:
    """A window of an agent's history.

    Attributes:
        records: The protected head, then oldest to newest.
        truncated: Older records exist that the window left out.
        seen: What it was read from.
    """

    records: tuple[q.ContextRecord, ...]
    truncated: bool
    seen: Seen


async def read_history(
    ask: Asking, scope: Scope, query: q.HistoryQuery, *, limit_s: float, min_positions: Sequence[Position]
) -> History:
    """See :meth:`MemoryClient.history`; ``limit_s`` is that of each page."""
    pages: list[tuple[q.ContextRecord, ...]] = []
    while True:
        answer, seen = await ask(scope, query, q.HistoryAnswer, limit_s=limit_s, min_positions=min_positions)
        pages.append(answer.records)
        if answer.next_page is None:
            return History(_joined(pages), answer.truncated, seen)
        query = query.model_copy(update={"page": answer.next_page})


async def read_records(
    ask: Asking, scope: Scope, record_ids: Iterable[str], *, limit_s: float, min_positions: Sequence[Position] = ()
) -> list[q.StoredRecord]:
    """See :meth:`MemoryClient.records`; ``limit_s`` is that of each request."""
    wanted = list(dict.fromkeys(record_ids))
    found: list[q.StoredRecord] = []
    while wanted:
        query = query_of(q.RecordsQuery, scope, record_ids=tuple(wanted[:_AT_ONCE]))
        answer, _ = await ask(scope, query, q.RecordsAnswer, limit_s=limit_s, min_positions=min_positions)
        found.extend(answer.records)
        wanted = [*answer.unread, *wanted[_AT_ONCE:]]
    return found


def _joined(pages: list[tuple[q.ContextRecord, ...]]) -> tuple[q.ContextRecord, ...]:
    """The pages in order of time; the first one begins with the protected head, if there is one."""
    first, *rest = pages
    older = [page for page in rest if page]
    if not older:
        return first
    head = first[:1] if first and first[0].stored.offset < older[-1][0].stored.offset else ()
    return (*head, *(record for page in (*reversed(older), first[len(head) :]) for record in page))
