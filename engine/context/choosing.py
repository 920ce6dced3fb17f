"""Which summaries and which recalled memories are in: the best first, within a share of the tokens."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from engramlog.engine.context.material import Message
from engramlog.engine.texts import content
from engramlog.engine.tokens import Encoding, count_message
from engramlog.schemas.contexts import StoredSummary
from engramlog.schemas.recalls import RecallHit

T = TypeVar("T")


@dataclass(slots=True)
class Chosen(Generic[T]):
    """What of a section is in.

    Attributes:
        write: Makes messages of items.
        encoding: The encoding to count in.
        kept: What is in, best first.
        spent: Its tokens, exactly.
    """

    write: Callable[[Sequence[T]], list[Message]]
    encoding: Encoding
    kept: list[T] = field(default_factory=list)
    spent: int = 0

    def messages(self) -> list[Message]:
        """The messages of what is in; none for nothing."""
        return self.write(self.kept) if self.kept else []

    def fill(self, items: Sequence[T], allowance: int, *, limit: int) -> list[T]:
        """Keep what fits, the best first: at most ``limit`` items of together at most ``allowance`` tokens.

        What is kept already counts, and stays.

        Returns:
            What was passed over because it did not fit, best first.
        """
        estimate, over = self.spent if self.kept else self._tokens([]), []
        for item in items:
            if len(self.kept) >= limit:
                break
            cost = self.alone(item)
            if estimate + cost > allowance:
                over.append(item)
                continue
            self.kept.append(item)
            estimate += cost
        self._recount()
        while self.kept and self.spent > allowance:  # what stands together may have a token more than each alone
            over.append(self.drop_last())
        return over

    def alone(self, item: T) -> int:
        """The tokens that an item adds to the section."""
        return self._tokens([item]) - self._tokens([])

    def drop(self, items: Sequence[T]) -> None:
        """Give items up."""
        gone = {id(item) for item in items}
        self.kept = [item for item in self.kept if id(item) not in gone]
        self._recount()

    def drop_last(self) -> T:
        """Give up the worst item."""
        item = self.kept.pop()
        self._recount()
        return item

    def _recount(self) -> None:
        self.spent = self._tokens(self.kept) if self.kept else 0

    def _tokens(self, items: Sequence[T]) -> int:
        return sum(count_message(message, self.encoding) for message in self.write(items))


def ranked(summaries: Sequence[StoredSummary]) -> list[StoredSummary]:
    """Summaries, the most important first: the newest, and of those that end alike the one of the higher level."""
    return sorted(
        summaries,
        key=lambda stored: (-stored.summary.covers.last, -stored.summary.level, stored.summary.summary_id),
    )


def covered(summaries: Sequence[StoredSummary]) -> set[str]:
    """The ids of the records that summaries stand for."""
    return {record_id for stored in summaries for record_id in stored.summary.covers.record_ids}


def told_apart(
    hits: Sequence[RecallHit], *, ids: AbstractSet[str], texts: AbstractSet[str]
) -> tuple[list[RecallHit], list[RecallHit]]:
    """Memories that are not in the context yet, each once, and those that are, by their id or their text.

    A memory that says nothing in words is in neither.
    """
    fresh: list[RecallHit] = []
    again: list[RecallHit] = []
    seen_ids, seen_texts = set(ids), set(texts)
    for hit in hits:
        record_id, text = hit.stored.record.record_id, content(hit.stored.record)
        if text:
            (again if record_id in seen_ids or text in seen_texts else fresh).append(hit)
            seen_ids.add(record_id)
            seen_texts.add(text)
    return fresh, again
