"""What a text says, by a language model: structured answers, checked against the text and bounded."""

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from importlib.resources import files
from typing import Any, Final, get_args

from pydantic import BaseModel, ConfigDict

from engramlog.engine.derivers.importance import kept
from engramlog.engine.derivers.labels import fitting
from engramlog.engine.derivers.understanding import Understanding, settled
from engramlog.engine.models.structured import StructuredModel
from engramlog.schemas.derived import Entity, Relation
from engramlog.schemas.records import MemoryRecord

PROMPT: Final = "derive.v1.md"
TEXT_CHARS: Final = 8_000
"""Characters of a text that the model is shown."""
MAX_KEYWORDS: Final = 12
MAX_ENTITIES: Final = 32
MAX_RELATIONS: Final = 16
_LABEL_CHARS: Final = 120
_ANSWER_TOKENS: Final = 1_200
_ENTITY_TYPES: Final = frozenset(get_args(Entity.model_fields["type"].annotation))
_LANGUAGE_CHARS: Final = (2, 3)


class NamedEntity(BaseModel):
    """An entity as a model names it; unknown types are taken for ``other``."""

    model_config = ConfigDict(extra="ignore")

    text: str
    type: str


class StatedRelation(BaseModel):
    """A relation as a model states it."""

    model_config = ConfigDict(extra="ignore")

    subject: str
    predicate: str
    object: str


class DerivedAnswer(BaseModel):
    """What the model is asked for; see the prompt."""

    model_config = ConfigDict(extra="ignore")

    topic: str
    importance: float
    keywords: list[str]
    entities: list[NamedEntity]
    relations: list[StatedRelation]
    language: str


class LlmDeriver:
    """Refines what the rules understood by asking a language model.

    Args:
        endpoints: Where the model is served.
        model: The model's name.
        timeout_s: Deadline of one call, retries included, in seconds.

    Attributes:
        version: What derived it, for the events: the prompt and the model.
    """

    def __init__(self, endpoints: StructuredModel, *, model: str, timeout_s: float) -> None:
        self.version = f"llm.v1:{model}"[:256]
        self._endpoints = endpoints
        self._model = model
        self._timeout_s = timeout_s
        self._prompt = files("engramlog.engine.derivers").joinpath("prompts", PROMPT).read_text("utf-8")

    async def refine(self, record: MemoryRecord, text: str, understanding: Understanding) -> Understanding:
        """What the model understands; where its answer does not hold, what the rules understood stands.

        Args:
            record: The record.
            text: Its content and text parts; the model is shown the first 8,000 characters, as data.
            understanding: What the rules understood. Its topic is the session's current label, which the model is told
                to keep while the talk stays on it.

        Raises:
            ModelUnavailable: The model did not answer in time.
            ModelRefused: It refused, or its answers are none.
        """
        answer = await self._endpoints.structured(
            model=self._model,
            system=self._prompt,
            user=_question(record, text, understanding),
            schema=DerivedAnswer,
            max_tokens=_ANSWER_TOKENS,
            timeout_s=self._timeout_s,
        )
        return settled(record, checked(answer, record, text, understanding))


def checked(answer: DerivedAnswer, record: MemoryRecord, text: str, understanding: Understanding) -> Understanding:
    """An answer within its bounds: entities and keywords that the text has, a label in the language of the text."""
    shown = text[:TEXT_CHARS].casefold()
    return replace(
        understanding,
        topic=fitting(_clean(answer.topic), text[:TEXT_CHARS], understanding),
        importance=_importance(answer, record, understanding),
        keywords=tuple(_firsts(filter(None, map(_clean, answer.keywords)), MAX_KEYWORDS)) or understanding.keywords,
        entities=tuple(_firsts(_entities(answer, shown), MAX_ENTITIES)),
        relations=tuple(_firsts(_relations(answer, record), MAX_RELATIONS)),
        language=understanding.language or _language(answer),
    )


def _question(record: MemoryRecord, text: str, understanding: Understanding) -> str:
    """The record as a JSON object: whatever the text holds, it cannot end the string that it stands in."""
    speaker = f"{record.role} {record.role_name}" if record.role_name else record.role
    question = {
        "speaker": speaker,
        "language": understanding.language,
        "current_label": understanding.topic,
        "text": text[:TEXT_CHARS],
    }
    return json.dumps(question, ensure_ascii=False)


def _importance(answer: DerivedAnswer, record: MemoryRecord, understanding: Understanding) -> float:
    if not math.isfinite(answer.importance):
        return understanding.importance
    return kept(record, round(min(1.0, max(0.0, answer.importance)), 4))


def _entities(answer: DerivedAnswer, shown: str) -> Iterable[Entity]:
    for entity in answer.entities:
        text = _clean(entity.text)
        if text and text.casefold() in shown:
            kind = entity.type if entity.type in _ENTITY_TYPES else "other"
            yield Entity.model_validate({"text": text, "type": kind})


def _relations(answer: DerivedAnswer, record: MemoryRecord) -> Iterable[Relation]:
    for stated in answer.relations:
        subject, predicate, thing = _clean(stated.subject), _clean(stated.predicate), _clean(stated.object)
        if subject and predicate and thing:
            named = record.role_name if subject == "user" and record.role_name else subject
            yield Relation(subject=named, predicate=predicate.replace(" ", "_"), object=thing)


def _language(answer: DerivedAnswer) -> str | None:
    code = answer.language.strip().lower()
    return code if code.isascii() and code.isalpha() and len(code) in _LANGUAGE_CHARS else None


def _clean(text: str) -> str:
    """One line of at most 120 whole characters."""
    whole = text.encode("utf-8", "ignore").decode("utf-8").replace("\0", " ")
    return " ".join(whole.split())[:_LABEL_CHARS].strip(" \"'\u201c\u201d\u300a\u300b\u3002.")


def _firsts(things: Iterable[Any], limit: int) -> list[Any]:
    return list(dict.fromkeys(things))[:limit]
