"""Which sentences stand in a summary. Pure.

A question about a talk is answered by a passage that is there nearly whole, hardly by a third of each. So passages are
completed one after the other: each time the one whose worth is largest for the tokens of the sentences that it still
needs, until most of its words stand somewhere in the summary. Words that are there already cost nothing, so that what
repeats is left out by itself. What is left of the budget goes to the sentences with the most new words, each weighed by
the passages that hold it (the greedy cover of Lin and Bilmes, "A Class of Submodular Functions for Document
Summarization", 2011).
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from engramlog.engine.summarisers.units import Block, Unit

COMPLETE: Final = 0.8
"""The share of a passage's words at which it counts as told."""

_WORTH_EXPONENT: Final = 1.5
_COST_EXPONENT: Final = 0.8
_FLOOR: Final = 0.01
_LOOKS: Final = 20
"""So often a passage is looked at anew, on average; more would make the time quadratic."""


class Selection:
    """Chooses sentences under a budget.

    Args:
        blocks: The passages.
        units: Their sentences, in the order of the talk.
        factors: What each sentence is worth besides its words, around 1.
    """

    def __init__(self, blocks: Sequence[Block], units: Sequence[Unit], factors: Sequence[float]) -> None:
        self._blocks = blocks
        self._units = units
        self._factors = factors
        self._of_block: defaultdict[int, list[int]] = defaultdict(list)
        for at, unit in enumerate(units):
            self._of_block[unit.block].append(at)
        self._covered: set[str] = set()
        self._labelled: set[int] = set()
        self._chosen: dict[int, None] = {}
        self._left = 0

    def chosen(self, max_tokens: int) -> list[int]:
        """Places of the chosen sentences, best first; their costs and labels together are within the budget."""
        self._covered, self._labelled, self._chosen, self._left = set(), set(), {}, max_tokens
        self._complete()
        self._fill()
        return list(self._chosen)

    def _complete(self) -> None:
        heap = [(-self._plan(block)[2], block) for block in self._of_block]
        heapq.heapify(heap)
        looks = _LOOKS * len(heap)
        while heap:
            was, block = heapq.heappop(heap)
            picked, cost, gain = self._plan(block)
            if not picked or cost > self._left:
                continue
            looks -= 1
            if looks > 0 and heap and gain < -heap[0][0] and gain < -was:
                heapq.heappush(heap, (-gain, block))
                continue
            for at in picked:
                self._choose(at)

    def _plan(self, block: int) -> tuple[list[int], int, float]:
        """The sentences that a passage still needs, their cost, and the gain for a token."""
        words = self._blocks[block].words
        missing = COMPLETE * len(words) - len(words & self._covered)
        rest = [at for at in self._of_block[block] if at not in self._chosen]
        picked: list[int] = []
        told: set[str] = set()
        cost = 0 if block in self._labelled else self._blocks[block].label_cost
        while missing > 0 and rest:
            news = {at: len(self._units[at].words - self._covered - told) for at in rest}
            best = max(rest, key=lambda at: (self._worth(at, news[at]), -at))
            if not news[best]:
                break
            rest.remove(best)
            picked.append(best)
            told |= self._units[best].words
            missing -= news[best]
            cost += self._units[best].cost
        factor = sum(self._factors[at] for at in picked) / len(picked) if picked else 0.0
        value = self._blocks[block].value ** _WORTH_EXPONENT * factor + _FLOOR
        return picked, cost, value / max(1, cost)

    def _worth(self, at: int, news: int) -> float:
        return float(news * self._factors[at] ** 0.5 / self._units[at].cost ** _COST_EXPONENT)

    def _fill(self) -> None:
        weights = weights_of(self._blocks)
        gains = []
        for at, unit in enumerate(self._units):
            if at not in self._chosen:
                new = sum(weights[word] for word in unit.words - self._covered)
                gains.append((-self._factors[at] * new / unit.cost, at))
        for gain, at in sorted(gains):
            if gain < 0 and self._cost(at) <= self._left and self._units[at].words - self._covered:
                self._choose(at)

    def _cost(self, at: int) -> int:
        unit = self._units[at]
        return unit.cost + (0 if unit.block in self._labelled else self._blocks[unit.block].label_cost)

    def _choose(self, at: int) -> None:
        self._left -= self._cost(at)
        self._chosen[at] = None
        self._covered |= self._units[at].words
        self._labelled.add(self._units[at].block)


def weights_of(blocks: Sequence[Block]) -> Counter[str]:
    """What each word weighs; the words of a passage weigh together as much as it is worth."""
    weights: Counter[str] = Counter()
    for block in blocks:
        share = (_FLOOR + block.value**_WORTH_EXPONENT) / max(1, len(block.words))
        for word in block.words:
            weights[word] += share
    return weights
