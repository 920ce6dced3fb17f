"""What a summariser takes and gives."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from engramlog.schemas.errors import Permanent
from engramlog.schemas.summaries import FailureCode


@dataclass(frozen=True, slots=True)
class Passage:
    """A record as a summariser sees it.

    Attributes:
        record_id: The record.
        speaker: Its ``role_name``, else its role. Empty: the passage is a summary, whose lines name the speakers.
        role: Its role.
        text: What it says in words.
        timestamp: When it happened.
        importance: 0 to 1, where it is known.
        kind: Its kind, e.g. ``turn``.
    """

    record_id: str
    speaker: str
    role: str
    text: str
    timestamp: datetime
    importance: float | None
    kind: str

    def told(self) -> str:
        """The passage as one reads it: ``"Caroline: I went to the support group."``."""
        return f"{self.speaker}: {self.text}" if self.speaker else self.text


@dataclass(frozen=True, slots=True)
class Summary:
    """A shorter text that stands for some passages; see :class:`engramlog.schemas.summaries.SummaryCreated`.

    Attributes:
        text: The summary, in the talk's language.
        facts: What was said to be so.
        preferences: What somebody likes or wants, standing wishes included.
        decisions: What was decided.
        open_tasks: What is still to be done.
        language: ISO 639-1 code; None: unknown.
        topic: What it is about.
        importance: 0 to 1.
        model: What made it.
        prompt: Version of the prompt or algorithm.
        raw: It is no summary, only a cut-off text.
    """

    text: str
    facts: tuple[str, ...]
    preferences: tuple[str, ...]
    decisions: tuple[str, ...]
    open_tasks: tuple[str, ...]
    language: str | None
    topic: str | None
    importance: float
    model: str
    prompt: str
    raw: bool = False


class SummaryRefused(Permanent):
    """There is no summary, or what came back is none.

    Attributes:
        code: Why, as in ``summary.failed``.
        message: The same for people.
    """

    def __init__(self, code: FailureCode, message: str) -> None:
        super().__init__(f"{message} [{code}]")
        self.code: FailureCode = code
        self.message = message


class Summariser(Protocol):
    """Makes summaries. Used from one event loop; never blocks it for long.

    Attributes:
        model: What makes them: a model's name, ``extractive`` or ``archive``.
        prompt: Version of the prompt or algorithm.
    """

    model: str
    prompt: str

    async def summarise(self, passages: Sequence[Passage], *, max_tokens: int, previous: str | None) -> Summary:
        """Summarise passages of one talk, oldest first.

        Args:
            passages: At least one.
            max_tokens: The most tokens of the summary's text.
            previous: An earlier summary of the time before, which the new one is to take in.

        Raises:
            ModelUnavailable: No answer now; the same call may succeed later.
            SummaryRefused: There is no summary to be had of these.
            ConfigurationError: The summariser cannot work as configured.
        """
