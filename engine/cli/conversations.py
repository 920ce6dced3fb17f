"""Conversation files, read as turns. Pure: text in, turns and the pieces that are none out.

Forms: JSON lines of records and CAMEL's storage files (streamed); OpenAI messages, LoCoMo and MemoryBank (read whole,
as JSON must be).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

from engramlog.engine.cli.turns import Invalid, Maker, Turn
from engramlog.schemas.errors import InvalidEvent, NotJson, SchemaViolation, TooDeep
from engramlog.schemas.formats.camel import from_camel
from engramlog.schemas.formats.openai import from_openai
from engramlog.schemas.json_values import SHALLOWER
from engramlog.schemas.records import MemoryRecord

Form = Literal["jsonl", "openai", "camel", "locomo", "memorybank"]
FORMS: tuple[Form, ...] = get_args(Form)
Read = Iterator[Turn | Invalid]

_LOCOMO_TIME = "%I:%M %p on %d %B, %Y"
_STEP = timedelta(seconds=30)
_WHOSE = ("tenant", "agent", "session", "user")


def form_of(start: bytes) -> Form | None:
    """The form of a file, by its first line, when that is a whole object of a record or of CAMEL's; else None."""
    try:
        first = json.loads(start)
    except ValueError:
        return None
    if not isinstance(first, dict):
        return None
    if "message" in first and "role_at_backend" in first:
        return "camel"
    return "jsonl" if "role" in first else None


def form_of_document(document: Any) -> Form | None:
    """The form of a JSON document; None: none that we know."""
    if isinstance(document, dict):
        if "messages" in document:
            return "openai"
        if "conversation" in document:
            return "locomo"
        if document and all(isinstance(v, dict) and "history" in v for v in document.values()):
            return "memorybank"
    elif isinstance(document, list) and document and isinstance(document[0], dict):
        return "locomo" if "conversation" in document[0] else "openai" if "role" in document[0] else None
    return None


def read_lines(lines: Iterable[bytes], make: Maker, *, name: str) -> Read:
    """JSON lines: fields of a ``MemoryRecord``, and ``tenant``, ``agent``, ``session``, ``user``.

    Empty lines are none.

    Args:
        lines: The lines, read one by one.
        make: What makes turns; its defaults hold where a line does not say. ``"user": null`` says: shared.
        name: The file's name, for messages.
    """
    for number, where, fields in _objects(lines, name):
        if isinstance(fields, InvalidEvent):
            yield Invalid(where, fields)
            continue
        whose = {part: fields.pop(part) for part in _WHOSE if part in fields}
        if wrong := [part for part, value in whose.items() if not isinstance(value, str | None)]:
            yield Invalid(where, SchemaViolation(f"{wrong[0]}: must be a string"))
            continue
        said = make.without(*whose) if None in whose.values() else make
        yield said(fields, where=where, ordinal=number, **whose)


def read_camel(lines: Iterable[bytes], make: Maker, *, name: str) -> Read:
    """A file of CAMEL's ``JsonStorage``: a record a line, with CAMEL's ids, so that importing it twice doubles nothing.

    The agent is CAMEL's ``agent_id``, unless the command line names one.
    """
    for number, where, fields in _objects(lines, name):
        if isinstance(fields, InvalidEvent):
            yield Invalid(where, fields)
            continue
        agent = make.whose.agent or fields.get("agent_id") or None
        yield make(fields, where=where, ordinal=number, agent=agent, read=_of_camel)


def _of_camel(
    fields: dict[str, Any], /, *, timestamp: datetime | None = None, record_id: str | None = None
) -> MemoryRecord:
    del timestamp, record_id  # CAMEL's records have both
    return from_camel(fields).model_copy(update={"origin": "import"})


def _objects(lines: Iterable[bytes], name: str) -> Iterator[tuple[int, str, dict[str, Any] | InvalidEvent]]:
    """The number, place and object of each line that is not empty; or what is wrong with it."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{name}:{number}"
        try:
            fields = json.loads(line)
        except ValueError as error:
            yield number, where, NotJson(f"no JSON: {error}")
        except RecursionError:
            yield number, where, TooDeep(f"nested too deep; {SHALLOWER}")
        else:
            wrong = SchemaViolation("a line must be a JSON object, the fields of a record")
            yield number, where, fields if isinstance(fields, dict) else wrong


def read_document(document: Any, form: Form, make: Maker, *, name: str) -> Read:
    """A JSON document of one of the other forms."""
    readers = {"openai": read_openai, "locomo": read_locomo, "memorybank": read_memorybank}
    try:
        yield from readers[form](document, make, name)
    except (AttributeError, KeyError, TypeError) as error:
        yield Invalid(name, SchemaViolation(f"not of the form {form!r}: {type(error).__name__}: {error}"))


def read_openai(document: Any, make: Maker, name: str) -> Read:
    """OpenAI chat messages: a list, or ``{"messages": [...]}``. They happened now, in their order.

    What they say comes out again unchanged: ``engramlog.schemas.formats.openai.to_openai``.
    """
    messages = document["messages"] if isinstance(document, dict) else document
    for number, message in enumerate(messages, start=1):
        where = f"{name}: message {number}"
        if not isinstance(message, dict):
            yield Invalid(where, SchemaViolation("a message must be a JSON object"))
            continue
        happened = make.now + timedelta(microseconds=number)
        yield make(message, where=where, ordinal=number, happened=happened, read=from_openai)


def read_locomo(document: Any, make: Maker, name: str) -> Read:
    """LoCoMo: samples of two-person talks; a turn keeps its id, ``conv-26/D1:3``, and its image with the caption.

    An agent for each sample and a session for each of its sessions, unless the command line names them. The first
    speaker is the user, the second the assistant.
    """
    ordinal = 0
    for index, sample in enumerate([document] if isinstance(document, dict) else document, start=1):
        talk, sample_id = sample["conversation"], str(sample.get("sample_id", f"sample-{index}"))
        for session in sorted((k for k, v in talk.items() if isinstance(v, list)), key=_natural):
            try:
                began = datetime.strptime(talk[f"{session}_date_time"].strip(), _LOCOMO_TIME).replace(tzinfo=UTC)
            except (KeyError, ValueError) as error:
                yield Invalid(f"{name}: {sample_id} {session}", SchemaViolation(f"no date of the session: {error}"))
                continue
            for number, turn in enumerate(talk[session]):
                ordinal += 1
                yield make(
                    _locomo_record(turn, sample_id, talk.get("speaker_a"), began + number * _STEP),
                    where=f"{name}: {sample_id} {turn.get('dia_id', f'{session} turn {number + 1}')}",
                    ordinal=ordinal,
                    agent=make.whose.agent or sample_id,
                    session=make.whose.session or f"{sample_id}/{session}",
                )


def _locomo_record(
    turn: Mapping[str, Any], sample_id: str, first_speaker: str | None, time: datetime
) -> dict[str, Any]:
    record: dict[str, Any] = {
        "role": "user" if turn["speaker"] == first_speaker else "assistant",
        "role_name": turn["speaker"],
        "content": turn["text"],
        "timestamp": _time(time),
        "metadata": {k: turn[k] for k in ("dia_id", "blip_caption") if k in turn},
        "origin": "import",
    }
    if "dia_id" in turn:
        record["record_id"] = f"{sample_id}/{turn['dia_id']}"
    if urls := turn.get("img_url"):
        caption = {"caption": turn["blip_caption"]} if "blip_caption" in turn else {}
        images = [{"type": "image", "url": url, "detail": caption} for url in urls]
        record["parts"] = [{"type": "text", "text": turn["text"]}, *images]
    return record


def read_memorybank(document: Any, make: Maker, name: str) -> Read:
    """MemoryBank: users, their days, and on each day questions with answers. A user, and a session a day, for each."""
    ordinal = 0
    for user, known in document.items():
        for day, talk in known["history"].items():
            try:
                began = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
            except ValueError as error:
                yield Invalid(f"{name}: {user} {day}", SchemaViolation(f"no date: {error}"))
                continue
            for number, pair in enumerate(talk):
                for side, (role, speaker) in enumerate((("user", user), ("assistant", None))):
                    ordinal += 1
                    said = {"role": role, "role_name": speaker} if speaker else {"role": role}
                    said["content"] = pair["response" if side else "query"]
                    said["timestamp"] = _time(began + (2 * number + side) * _STEP)
                    yield make(
                        {**said, "origin": "import"},
                        where=f"{name}: {user} {day} turn {number + 1}",
                        ordinal=ordinal,
                        session=make.whose.session or f"{user}/{day}",
                        user=make.whose.user or user,
                    )


def _time(time: datetime) -> str:
    return time.isoformat()


def _natural(session: str) -> tuple[int, str]:
    number = session.rpartition("_")[2]
    return (int(number), session) if number.isdigit() else (0, session)
