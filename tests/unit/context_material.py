"""Material for contexts, and a count of tokens that shares nothing with ours."""

import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from engramlog.engine.context import Material
from engramlog.schemas.contexts import StoredSummary
from engramlog.schemas.recalls import RecallHit
from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.stored import ContextRecord, StoredRecord
from engramlog.schemas.summaries import Covered, SummaryCreated

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def said(record_id: str, role: Any, content: str = "", **fields: Any) -> MemoryRecord:
    fields.setdefault("timestamp", NOW - timedelta(days=1))
    return MemoryRecord(record_id=record_id, role=role, content=content, **fields)


def calling(record_id: str, *call_ids: str, content: str = "") -> MemoryRecord:
    calls = tuple(
        {"id": call_id, "type": "function", "function": {"name": "look_up", "arguments": '{"q": "Köln 天气"}'}}
        for call_id in call_ids
    )
    return said(record_id, "assistant", content, tool_calls=calls)


def result(record_id: str, call_id: str, content: str = "21 °C") -> MemoryRecord:
    return said(record_id, "tool", content, tool_call_id=call_id, origin="tool")


def stored(record: MemoryRecord, offset: int = 0) -> StoredRecord:
    return StoredRecord(record=record, offset=offset, recorded=NOW)


def recent(records: Sequence[MemoryRecord], keep_rate: float = 0.9) -> list[ContextRecord]:
    last = len(records) - 1
    return [
        ContextRecord(stored=stored(record, place), score=keep_rate ** (last - place))
        for place, record in enumerate(records)
    ]


def hit(record: MemoryRecord, score: float = 0.5, **fields: Any) -> RecallHit:
    return RecallHit(stored=stored(record), score=score, **fields)


def summary(summary_id: str, text: str, *ids: str, first: int = 0, last: int = 0, **fields: Any) -> StoredSummary:
    covers = fields.pop("covers", Covered(record_ids=ids, first=first, last=last))
    created = SummaryCreated(
        summary_id=summary_id,
        text=text,
        covers=covers,
        at=last + 1,
        tokens_before=100,
        tokens_after=10,
        model="extractive",
        prompt="summary.v1",
        **fields,
    )
    return StoredSummary(summary=created, recorded=NOW, offset=0)


def talk(*records: MemoryRecord, **fields: Any) -> Material:
    return Material(recent=recent(records), **fields)


@cache
def _tables(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of importlib.resources, as the package uses it
        import bpe_openai
    return bpe_openai.get_encoding(name)


@cache
def _tokens(text: str, name: str) -> int:
    return len(_tables(name).encode_ordinary(text))


def tokens_of(messages: Sequence[Mapping[str, Any]], name: str = "o200k_base") -> int:
    """As OpenAI's cookbook counts: 3 a message, 3 for the list, 1 for a name, and the texts."""
    return 3 + sum(3 + sum(_said_by(key, value, name) for key, value in message.items()) for message in messages)


def _said_by(key: str, value: Any, name: str) -> int:
    if value is None:
        return 0
    if key == "tool_calls":
        fields = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in value]
        return sum(8 + sum(_tokens(text, name) for text in call) for call in fields)
    if key == "content" and isinstance(value, list):
        return sum(_tokens(part["text"], name) if part["type"] == "text" else 1445 for part in value)
    return _tokens(value, name) + (1 if key == "name" else 0)
