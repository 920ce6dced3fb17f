"""What is to be in a context: counted, trimmed, and written out."""

from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import get_args

from engramlog.engine.context.blocks import Writer
from engramlog.engine.context.choosing import Chosen, covered
from engramlog.engine.context.leaving import Missing, listed
from engramlog.engine.context.material import Message, Sizes
from engramlog.engine.context.talk import Talk
from engramlog.engine.context.walking import Walk
from engramlog.engine.tokens import END_OF_LIST, count_message
from engramlog.schemas.contexts import ContextAnswer, Section, StoredSummary, Used, WhyLeftOut
from engramlog.schemas.recalls import RecallHit
from engramlog.schemas.stored import StoredRecord


@dataclass(slots=True)
class Plan:
    """A context while it is packed.

    Attributes:
        head: The head.
        core: The core memories to show.
        talk: The recent turns.
        walk: Those of them that are in.
        candidates: Summaries that could be in, most important first.
        hits: Memories that could be in, best first.
        summaries: The summaries that are in.
        recalled: The memories that are in.
        writer: Writes the blocks.
        sizes: Counts.
        keep_rate: Score of a summary divided by that of the next newer one.
        again: Memories that are not recalled because they are in anyway.
        over: Memories that did not fit.
    """

    head: StoredRecord | None
    core: list[StoredRecord]
    talk: Talk
    walk: Walk
    candidates: list[StoredSummary]
    hits: list[RecallHit]
    summaries: Chosen[StoredSummary]
    recalled: Chosen[RecallHit]
    writer: Writer
    sizes: Sizes
    keep_rate: float
    again: list[RecallHit] = field(default_factory=list)
    over: list[RecallHit] = field(default_factory=list)

    def minimum(self) -> int:
        """The tokens of the least context, counted: head, core memories, newest user message."""
        fixed = sum(count_message(message, self.sizes.encoding) for _, _, message in self._fixed())
        newest = self.talk.newest
        return fixed + (self.sizes.counted(newest.record) if newest is not None else 0) + END_OF_LIST

    def trim(self, budget_tokens: int) -> None:
        """Count the whole once more, and give up the least important until it fits.

        That is needed only where known numbers were wrong. First go the oldest turns before the newest user message,
        then the worst memories, the oldest summaries, the oldest turns after that message.
        """
        newest = self.talk.newest
        before = newest.position if newest is not None else None
        excess = self._counted() - budget_tokens
        if excess > 0:
            excess -= self.walk.give_up(excess, before=before)
        for chosen in (self.recalled, self.summaries):
            while excess > 0 and chosen.kept:
                had = chosen.spent
                gone = chosen.drop_last()
                if isinstance(gone, RecallHit):
                    self.over.append(gone)
                excess -= had - chosen.spent
        if excess > 0:
            self.walk.give_up(excess)

    def answer(self, now: datetime) -> ContextAnswer:
        """Write it out."""
        rows = [*self._fixed(), *self._blocks(), *self._recent()]
        counts = [count_message(message, self.sizes.encoding) for _, _, message in rows]
        left_out, total = listed(self._missing())
        shown = sorted(self.summaries.kept, key=lambda stored: (stored.summary.covers.first, -stored.summary.level))
        return ContextAnswer(
            kind="context",
            messages=tuple(message for _, _, message in rows),
            tokens=sum(counts) + END_OF_LIST,
            exact=self.sizes.encoding.exact,
            used=_used(rows, counts),
            left_out=left_out,
            left_out_total=total,
            recalled=tuple(hit.stored.record.record_id for hit in self.recalled.kept),
            summaries=tuple(stored.summary.summary_id for stored in shown),
            now=now,
        )

    # --- messages: section, how many items it stands for, message -----------------------------------------------------

    def _fixed(self) -> Iterator[tuple[Section, int, Message]]:
        if self.head is not None:
            yield "head", 1, self.sizes.message(self.head.record)
        if self.core:
            yield "core", len(self.core), self.writer.core(self.core)

    def _blocks(self) -> Iterator[tuple[Section, int, Message]]:
        for message in self.summaries.messages():
            yield "summaries", len(self.summaries.kept), message
        messages = self.recalled.messages()
        for message in messages:
            yield "recalled", len(self.recalled.kept) // len(messages), message

    def _recent(self) -> Iterator[tuple[Section, int, Message]]:
        for unit in self.walk.taken:
            for turn in unit.turns:
                yield "recent", 1, self.sizes.message(turn.record)

    def _counted(self) -> int:
        fixed = sum(count_message(message, self.sizes.encoding) for _, _, message in self._fixed())
        recent = sum(self.sizes.counted(turn.record) for unit in self.walk.taken for turn in unit.turns)
        return fixed + self.summaries.spent + self.recalled.spent + recent + END_OF_LIST

    # --- what is left out ---------------------------------------------------------------------------------------------

    def _missing(self) -> Iterator[Missing]:
        shown = self.walk.ids()
        yield from self._missing_turns(shown)
        kept = {stored.summary.summary_id for stored in self.summaries.kept}
        for rank, stored in enumerate(self.candidates):
            if (summary_id := stored.summary.summary_id) not in kept:
                tokens = partial(self.summaries.alone, stored)
                yield Missing(summary_id, "summaries", "budget", self.keep_rate**rank, -rank, tokens)
        rank_of = {id(hit): rank for rank, hit in enumerate(self.hits)}
        again = {id(hit) for hit in self.again}
        for hit in (*self.again, *self.over):
            record_id = hit.stored.record.record_id
            why: WhyLeftOut = "duplicate" if id(hit) in again or record_id in shown else "budget"
            tokens = partial(self.recalled.alone, hit)
            yield Missing(record_id, "recalled", why, hit.score, -rank_of[id(hit)], tokens)

    def _missing_turns(self, shown: AbstractSet[str]) -> Iterator[Missing]:
        held = {stored.record.record_id for stored in self.core} | covered(self.summaries.kept)
        torn = {record_id for unit in self.talk.units if not held.isdisjoint(unit.ids) for record_id in unit.ids}
        torn |= {turn.record.record_id for turn in self.talk.broken}
        older = {turn.record.record_id for turn in self.talk.older}
        held |= {hit.stored.record.record_id for hit in self.recalled.kept}
        for turn in self.talk.turns:
            if (record_id := turn.record.record_id) not in shown:
                why: WhyLeftOut = "budget"
                if record_id in held:
                    why = "duplicate"
                elif record_id in older:
                    why = "window"
                elif record_id in torn:
                    why = "tools"
                tokens = partial(self.sizes.tokens, turn.record)
                yield Missing(record_id, "recent", why, turn.score, turn.position, tokens)


def _used(rows: Sequence[tuple[Section, int, Message]], counts: Sequence[int]) -> tuple[Used, ...]:
    """What each section holds, all five in order."""
    items, tokens = Counter[Section](), Counter[Section]()
    for (section, stands_for, _), count in zip(rows, counts, strict=True):
        items[section] += stands_for
        tokens[section] += count
    return tuple(Used(section=section, items=items[section], tokens=tokens[section]) for section in get_args(Section))
