"""A summary of the talk's own sentences, without a model."""

import asyncio
import re
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

from engramlog.engine.ports import Embedder
from engramlog.engine.summarisers.archive import cut
from engramlog.engine.summarisers.centrality import MAX_SENTENCES, text_rank
from engramlog.engine.summarisers.languages import dominant_language
from engramlog.engine.summarisers.passages import Passage, Summary, SummaryRefused
from engramlog.engine.summarisers.selecting import Selection
from engramlog.engine.summarisers.stating import statements_of, tasks_of
from engramlog.engine.summarisers.subject import subject_of
from engramlog.engine.summarisers.units import Block, Unit, block, blocks_of, pieces_of, units_of
from engramlog.engine.tokens import count_text

_LINE: Final = re.compile(r"^(?P<speaker>[^:\uff1a\n]{1,40})(?:: |\uff1a)(?P<text>.+)$")
_DAY: Final = re.compile(r"^(?:\d{1,2} [A-Z][a-z]+ \d{4}|\d{4}\u5e74\d{1,2}\u6708\d{1,2}\u65e5)$")
_UNSPACED: Final = re.compile("([\u3002\uff01\uff1f\uff1b\u2026]) ")
_EARLIER_VALUE: Final = 0.8
_EARLIER_SENTENCES: Final = 3
_ROUNDS: Final = 4
_FULL: Final = 0.97
_TOP: Final = 4


class Extractive:
    """Chooses sentences that cover most of the talk, shortens them lightly, and keeps who said what, in order.

    Args:
        embedder: Where given, sentences that are central by meaning (TextRank over their vectors) are preferred, in
            talks of at most 200 sentences; it must be started. None: words alone, which is fast.
        count: How many tokens a text has.
    """

    model = "extractive"
    prompt = "extractive.v1"

    def __init__(self, *, embedder: Embedder | None = None, count: Callable[[str], int] = count_text) -> None:
        self._embedder = embedder
        self._count = count

    async def summarise(self, passages: Sequence[Passage], *, max_tokens: int, previous: str | None) -> Summary:
        """See :class:`~engramlog.engine.summarisers.passages.Summariser`.

        Raises:
            SummaryRefused: The passages hold no text, or there is no room for any (``empty``).
            ModelUnavailable: The embedder does not answer.
        """
        blocks, units = await asyncio.to_thread(self._read, passages, previous)
        centrality = None
        if self._embedder is not None and 1 < len(units) <= MAX_SENTENCES:
            centrality = text_rank(await self._embedder.passages([unit.text for unit in units]))
        return await asyncio.to_thread(self._made, passages, blocks, units, max_tokens, centrality)

    def _read(self, passages: Sequence[Passage], previous: str | None) -> tuple[list[Block], list[Unit]]:
        blocks = self._earlier(previous or "", _EARLIER_VALUE)
        for passage in passages:
            if passage.speaker:
                blocks.extend(blocks_of(passage, count=self._count))
            else:
                value = _EARLIER_VALUE if passage.importance is None else passage.importance
                blocks.extend(self._earlier(passage.text, value))
        return blocks, units_of(blocks, count=self._count)

    def _earlier(self, summary: str, value: float) -> list[Block]:
        """The lines of an earlier summary, with the days and speakers that they name."""
        blocks: list[Block] = []
        day = ""
        for line in summary.splitlines():
            said = line.strip()
            if _DAY.match(said):
                day = said
            elif said:
                found = _LINE.match(said)
                speaker, text = (found["speaker"], found["text"]) if found else ("", said)
                for piece in pieces_of(text, _EARLIER_SENTENCES):
                    blocks.append(block(speaker, day, value=value, text=piece, count=self._count))  # noqa: PERF401 - nested
        return blocks

    def _made(
        self,
        passages: Sequence[Passage],
        blocks: Sequence[Block],
        units: Sequence[Unit],
        max_tokens: int,
        centrality: Sequence[float] | None,
    ) -> Summary:
        text = self._text(blocks, units, max_tokens=max_tokens, centrality=centrality)
        if not text:
            raise SummaryRefused("empty", f"nothing of the talk fits into {max_tokens} tokens")
        language = dominant_language(one.text for one in blocks)
        stated = statements_of(passages)
        best = sorted((one.value for one in blocks), reverse=True)[:_TOP]
        return Summary(
            text=text,
            facts=stated.facts,
            preferences=stated.preferences,
            decisions=stated.decisions,
            open_tasks=tasks_of(passages),
            language=language,
            topic=subject_of(blocks, language),
            importance=round(sum(best) / len(best), 4),
            model=self.model,
            prompt=self.prompt,
        )

    def _text(
        self, blocks: Sequence[Block], units: Sequence[Unit], *, max_tokens: int, centrality: Sequence[float] | None
    ) -> str:
        factors = [unit.worth * (centrality[at] if centrality else 1.0) for at, unit in enumerate(units)]
        selection = Selection(blocks, units, factors)
        budget, text = max_tokens, ""
        for _ in range(_ROUNDS):  # what sentences cost alone is a little more or less than what they cost together
            chosen = selection.chosen(budget)
            told = _told(blocks, [units[at] for at in sorted(chosen)])
            tokens = self._count(told)
            if tokens <= max_tokens:
                text = told
                if len(chosen) == len(units) or tokens >= _FULL * max_tokens:
                    break
            budget = budget + max_tokens - tokens
        return text or self._squeezed(blocks, units, max_tokens)

    def _squeezed(self, blocks: Sequence[Block], units: Sequence[Unit], max_tokens: int) -> str:
        """Where no sentence fits: the beginning of the best one."""
        if max_tokens <= 0 or not blocks:
            return ""
        best = max(units, key=lambda unit: (unit.worth * blocks[unit.block].value, -unit.block), default=None)
        text = _told(blocks, [best], days=False) if best else max(blocks, key=lambda one: one.value).text.strip()
        most = min(len(text), 4 * max_tokens)
        while most > 0:
            piece = cut(text, most)
            if self._count(piece) <= max_tokens:
                return piece
            most = most * 3 // 4
        return ""


def _told(blocks: Sequence[Block], units: Sequence[Unit], *, days: bool = True) -> str:
    """The lines of a summary: the days on which it was, and under each who said what."""
    lines: list[str] = []
    day = ""
    for _, group in groupby(units, key=lambda unit: (blocks[unit.block].day, blocks[unit.block].speaker)):
        said = list(group)
        first = blocks[said[0].block]
        if days and first.day and first.day != day:
            day = first.day
            lines.append(day)
        words = _UNSPACED.sub(r"\1", " ".join(unit.text for unit in said))
        lines.append(f"{first.speaker}: {words}" if first.speaker else words)
    return "\n".join(lines)
