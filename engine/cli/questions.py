"""What the demonstration asks of the conversation, once it is in the log."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from engramlog.engine.cli.turns import Turn
from engramlog.engine.client import MemoryClient, Recall, Scope

LIMIT = 3
"""How many memories are shown for a question."""
ASKED_AGENTS = 8
"""How many agents are asked, where the questions are not the sample's."""


@dataclass(frozen=True, slots=True)
class Question:
    """Something to ask of a memory.

    Attributes:
        scope: Whose memory, as which user sees it.
        text: What is asked.
        remark: What is worth seeing in the answer, for people.
    """

    scope: Scope
    text: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """A question and what was recalled.

    Attributes:
        question: The question.
        found: What was recalled.
        took_s: How long the answer took, in seconds; the first one waits until all is derived and indexed.
    """

    question: Question
    found: Recall
    took_s: float

    @property
    def good(self) -> bool:
        """Whether everything was looked at as asked, and something was found."""
        return bool(self.found.hits) and not self.found.seen.stale and not self.found.degraded


SAMPLE_QUESTIONS = (
    Question(
        Scope("northwind", "travel", user="ada"),
        "What can Inês eat?",
        "found by words and meaning",
    ),
    Question(
        Scope("northwind", "coder", user="ada"),
        "What is our convention for determinism?",
        "no word of the question is in its answer",
    ),
    Question(
        Scope("yunshan", "客服", user="李雷"),
        "怎样联系我最好？",  # noqa: RUF001 - Chinese
        "no word of the question is in its answer, in Chinese",
    ),
)


def questions_of(turns: Iterable[Turn], texts: Sequence[str]) -> list[Question]:
    """Questions of one's own, asked of the first agents of a conversation for all users.

    Args:
        turns: The conversation.
        texts: The questions.
    """
    agents = list(dict.fromkeys(turn.key[:2] for turn in turns))[:ASKED_AGENTS]
    return [Question(Scope(tenant, agent, users="all"), text) for text in texts for tenant, agent in agents]


async def ask_all(
    client: MemoryClient, questions: Iterable[Question], *, now: datetime, timeout_s: float
) -> list[Answered]:
    """Ask them, one after the other.

    Args:
        client: Who has published the conversation: its answers cover all of it.
        questions: What to ask.
        now: The instant that ages are measured from.
        timeout_s: Limit for each, in seconds.
    """
    answered = []
    for question in questions:
        began = time.monotonic()
        found = await client.recall(question.scope, question.text, limit=LIMIT, now=now, timeout_s=timeout_s)
        answered.append(Answered(question, found, time.monotonic() - began))
    return answered
