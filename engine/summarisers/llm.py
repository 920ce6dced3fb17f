"""Summaries by a language model: structured answers, checked and bounded."""

import json
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from typing import Final

from pydantic import BaseModel, ConfigDict

from engramlog.engine.facts.sentences import sentences_of
from engramlog.engine.models.structured import StructuredModel
from engramlog.engine.summarisers.checking import checked
from engramlog.engine.summarisers.languages import dominant_language
from engramlog.engine.summarisers.passages import Passage, Summary, SummaryRefused
from engramlog.engine.tokens import count_text
from engramlog.schemas.errors import ModelRefused
from engramlog.schemas.summaries import FailureCode

PROMPT: Final = "summary.v1"
MAX_LINES: Final = 50
TIMEOUT_S: Final = 60.0
_LINE_CHARS: Final = 500
_TOPIC_CHARS: Final = 120
_LISTS_TOKENS: Final = 1_000
_LANGUAGE_CHARS: Final = (2, 3)
_CODES: Final[tuple[tuple[str, FailureCode], ...]] = (
    ("answer is empty", "empty"),
    ("does not fit", "invalid"),
    ("gave no JSON", "invalid"),
    ("without a choice", "empty"),
    ("cut off", "too_long"),
)


class SummaryAnswer(BaseModel):
    """What the model is asked for; see the prompt."""

    model_config = ConfigDict(extra="ignore")

    narrative: str
    facts: list[str]
    preferences: list[str]
    decisions: list[str]
    open_tasks: list[str]
    topic: str
    importance: float
    language: str


class LlmSummariser:
    """Asks a language model.

    Args:
        endpoints: Where it is served.
        model: Its name.
        timeout_s: How long a summary may take, retries included, in seconds.
        count: How many tokens a text has.
    """

    prompt = PROMPT

    def __init__(
        self,
        endpoints: StructuredModel,
        *,
        model: str,
        timeout_s: float = TIMEOUT_S,
        count: Callable[[str], int] = count_text,
    ) -> None:
        self.model = model
        self._endpoints = endpoints
        self._timeout_s = timeout_s
        self._count = count
        self._system = files(__package__).joinpath("prompts", f"{PROMPT}.md").read_text(encoding="utf-8")

    async def summarise(self, passages: Sequence[Passage], *, max_tokens: int, previous: str | None) -> Summary:
        """See :class:`~engramlog.engine.summarisers.passages.Summariser`; what comes back was checked.

        Raises:
            ModelUnavailable: No answer before the deadline.
            SummaryRefused: The model does not want to, or what it gave is no summary of these passages.
            ConfigurationError: The endpoint refuses our key.
        """
        if not any(passage.text.strip() for passage in passages):
            raise SummaryRefused("empty", "the passages hold no text")
        try:
            answer = await self._endpoints.structured(
                model=self.model,
                system=self._system.replace("{max_tokens}", str(max_tokens)),
                user=_asked(passages, previous),
                schema=SummaryAnswer,
                max_tokens=max_tokens + _LISTS_TOKENS,
                timeout_s=self._timeout_s,
            )
        except ModelRefused as error:
            raise SummaryRefused(_code(str(error)), str(error)) from error
        summary = self._summary(answer, passages, max_tokens)
        sources = passages if not previous else [_as_passage(previous, passages[0]), *passages]
        checked(summary, sources)
        return summary

    def _summary(self, answer: SummaryAnswer, passages: Sequence[Passage], max_tokens: int) -> Summary:
        talk = dominant_language(passage.text for passage in passages)
        language = answer.language.strip().lower()
        return Summary(
            text=self._within(answer.narrative.strip(), max_tokens),
            facts=_lines(answer.facts),
            preferences=_lines(answer.preferences),
            decisions=_lines(answer.decisions),
            open_tasks=_lines(answer.open_tasks),
            language=talk or (language if language.isalpha() and len(language) in _LANGUAGE_CHARS else None),
            topic=" ".join(answer.topic.split())[:_TOPIC_CHARS].strip() or None,
            importance=min(1.0, max(0.0, answer.importance)) if answer.importance == answer.importance else 0.5,
            model=self.model,
            prompt=self.prompt,
        )

    def _within(self, narrative: str, max_tokens: int) -> str:
        """The narrative, its last sentences left out where it is longer than it may be.

        Raises:
            SummaryRefused: Not even the first sentence fits (``too_long``).
        """
        if self._count(narrative) <= max_tokens:
            return narrative
        for sentence in reversed(list(sentences_of(narrative))[:-1]):
            shorter = narrative[: sentence.end]
            if self._count(shorter) <= max_tokens:
                return shorter
        raise SummaryRefused("too_long", f"the model's summary does not fit into {max_tokens} tokens")


def _asked(passages: Sequence[Passage], previous: str | None) -> str:
    """The passages as JSON lines: no text can pretend to be the end of them."""
    told = [
        json.dumps(
            {
                "speaker": passage.speaker,
                "role": passage.role,
                "time": passage.timestamp.isoformat(timespec="minutes"),
                "text": passage.text,
            },
            ensure_ascii=False,
        )
        for passage in passages
        if passage.text.strip()
    ]
    earlier = f"Earlier summary, one JSON string:\n{json.dumps(previous, ensure_ascii=False)}\n\n" if previous else ""
    return f"{earlier}Passages:\n" + "\n".join(told)


def _as_passage(previous: str, first: Passage) -> Passage:
    return Passage("", "", "user", previous, first.timestamp, None, "turn")


def _code(message: str) -> FailureCode:
    return next((code for words, code in _CODES if words in message), "refused")


def _lines(lines: Iterable[str]) -> tuple[str, ...]:
    found = (" ".join(line.split())[:_LINE_CHARS].strip() for line in lines)
    return tuple(dict.fromkeys(line for line in found if line))[:MAX_LINES]
