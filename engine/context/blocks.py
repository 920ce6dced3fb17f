"""Core memories, summaries and recalled memories as messages: labelled, and so written that they stay data.

What a memory says was written by anybody. So each stands on lines of its own (its own line breaks are indented), it
cannot close the block that it is in, and the block says that these are notes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from engramlog.engine.context.labels import Labels, day_in
from engramlog.engine.context.material import Message
from engramlog.engine.texts import content, speaker
from engramlog.schemas.contexts import StoredSummary
from engramlog.schemas.recalls import RecallHit
from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.stored import StoredRecord

_CORE: Final = "core_memories"
_SUMMARIES: Final = "summaries"
_RECALLED: Final = "memories"
_DELIMITER: Final = re.compile(rf"<(?=[\s/]{{0,8}}(?:{_CORE}|{_SUMMARIES}|{_RECALLED})\b)", re.IGNORECASE)
_LINE_BREAKS: Final = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes the blocks of one context.

    Attributes:
        labels: The words of the talk's language.
        language: The language.
        role: ``system``, or ``developer`` where the head is one: OpenAI wants no request with both.
    """

    labels: Labels
    language: str
    role: str

    def core(self, core: Sequence[StoredRecord]) -> Message:
        """The core memories in one block."""
        lines = [f"- {self._line(stored.record, dated=False)}" for stored in core]
        return self._block(_CORE, self.labels.core, self.labels.core_note, lines)

    def summaries(self, summaries: Sequence[StoredSummary]) -> Message:
        """The summaries in one block, higher levels first, then the oldest."""
        shown = sorted(summaries, key=lambda stored: (-stored.summary.level, stored.summary.covers.first))
        lines = [f"- {self._summary(stored)}" for stored in shown]
        return self._block(_SUMMARIES, self.labels.summaries, self.labels.summaries_note, lines)

    def recalled(self, hits: Sequence[RecallHit]) -> Message:
        """The recalled memories in one block, numbered."""
        lines = [f"{number}. {self._hit(number, hit, hits)}" for number, hit in enumerate(hits, start=1)]
        return self._block(_RECALLED, self.labels.recalled, self.labels.recalled_note, lines)

    def recalled_each(self, hits: Sequence[RecallHit]) -> list[Message]:
        """The recalled memories, each in a message of its own, numbered."""
        return [
            self._block(
                _RECALLED, f"{self.labels.one} {number}", self.labels.recalled_note, [self._hit(number, hit, hits)]
            )
            for number, hit in enumerate(hits, start=1)
        ]

    def _block(self, tag: str, title: str, note: str, lines: list[str]) -> Message:
        return {"role": self.role, "content": "\n".join((title, note, f"<{tag}>", *lines, f"</{tag}>"))}

    def _line(self, record: MemoryRecord, *, dated: bool) -> str:
        text, who = inert(content(record)), self._speaker(record)
        if dated:
            shown = self.labels.said if who else self.labels.unsaid
            return shown.format(day=day_in(self.language, record.timestamp), who=who, text=text)
        return f"{who}{self.labels.colon}{text}" if who else text

    def _speaker(self, record: MemoryRecord) -> str | None:
        """Who says it; None for what nobody said: instructions, extracted facts, summaries."""
        if record.role in {"system", "developer"} or record.origin in {"extracted", "summary"}:
            return None
        return inert(speaker(record) or self.labels.roles[record.role])

    def _summary(self, stored: StoredSummary) -> str:
        summary = stored.summary
        lists = (summary.facts, summary.preferences, summary.decisions, summary.open_tasks)
        more = [
            f"\n  {title}{self.labels.colon}{'; '.join(map(inert, missing))}"
            for title, items in zip(self.labels.lists, lists, strict=True)
            if (missing := [item for item in items if item not in summary.text])
        ]
        raw = f"[{self.labels.raw}] " if summary.raw else ""
        return f"{raw}{inert(summary.text)}{''.join(more)}"

    def _hit(self, number: int, hit: RecallHit, shown: Sequence[RecallHit]) -> str:
        return f"{self._line(hit.stored.record, dated=True)}{self._doubt(number, hit, shown)}"

    def _doubt(self, number: int, hit: RecallHit, shown: Sequence[RecallHit]) -> str:
        """What speaks against a memory, in words."""
        doubt = self.labels.outdated if hit.superseded_by or hit.stored.invalidated else ""
        if not hit.conflicts:
            return doubt
        against = [
            (place, other)
            for place, other in enumerate(shown, start=1)
            if place != number and other.stored.record.record_id in hit.conflicts
        ]
        if not against:
            return doubt + self.labels.elsewhere
        newest = max([*against, (number, hit)], key=_when)[0]
        which = self.labels.comma.join(str(place) for place, _ in against)
        return doubt + self.labels.conflict.format(which=which, newer=self.labels.newer.format(which=newest))


def _when(numbered: tuple[int, RecallHit]) -> tuple[datetime, int]:
    stored = numbered[1].stored
    return stored.record.timestamp, stored.offset


def inert(text: str) -> str:
    """A text that stays inside its block and on its own lines: line breaks indented, our delimiters escaped."""
    return _DELIMITER.sub("&lt;", _LINE_BREAKS.sub("\n  ", text.strip()))
