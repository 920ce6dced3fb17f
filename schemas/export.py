"""Writes the JSON Schemas of everything on the wire: ``python -m engramlog.schemas.export [--check]``.

One file an event, ``json/record.written.v1.schema.json``; they say what the codec accepts, for producers in any
language. What a schema cannot say (sizes, depth, an id that equals another) the codec's errors do.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from engramlog.schemas.dead_letters import DeadLetter
from engramlog.schemas.derived import DerivedEvent
from engramlog.schemas.envelope import RecordEvent
from engramlog.schemas.inbox import InboxRecord
from engramlog.schemas.queries import QueryAsked, QueryReplied
from engramlog.schemas.summaries import SummaryEvent

FOLDER = Path(__file__).parent / "json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ON_THE_WIRE = {"id", "time", "record_id", "timestamp"}
"""Required on the wire, as are constants that tell types apart, although Python has a default for them.

Not so in the inbox: what is left out there is named after the message's place.
"""


def schemas() -> dict[str, dict[str, Any]]:
    """Every schema by its file name."""
    unions = (RecordEvent, DerivedEvent, SummaryEvent)
    events = (*(event for union in unions for event in get_args(get_args(union)[0])), QueryAsked, QueryReplied)
    named = {event.model_fields["type"].default.removeprefix("engramlog."): event for event in events}
    named |= {"dead-letter.v1": DeadLetter, "inbox.record.v1": InboxRecord}
    return {f"{name}.schema.json": _schema(name, model) for name, model in named.items()}


def _schema(name: str, model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(mode="validation")
    made_up = set() if model is InboxRecord else _ON_THE_WIRE
    for part in (schema, *schema.get("$defs", {}).values()):
        _require(part, made_up)
    return {"$schema": _DIALECT, "$id": f"urn:engramlog:schema:{name}"} | schema | {"title": name}


def _require(schema: dict[str, Any], made_up: set[str]) -> None:
    """Say what the wire requires, where Python makes it up; and drop the titles that only repeat a field's name."""
    fields: dict[str, Any] = schema.get("properties", {})
    for field in fields.values():
        field.pop("title", None)
    if fields:
        constants = {name for name, field in fields.items() if "const" in field} - {"datacontenttype"}
        needed = constants | made_up | {*schema.get("required", ())}
        schema["required"] = [name for name in fields if name in needed]


def _text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def drifted() -> list[str]:
    """The files that are missing, too many, or not what the models say."""
    wanted = {name: _text(schema) for name, schema in schemas().items()}
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    return sorted(name for name in wanted | found if wanted.get(name) != found.get(name))


def main() -> int:
    """Write the schemas, or only check them."""
    parser = argparse.ArgumentParser(prog="python -m engramlog.schemas.export", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is not up to date")
    stale = drifted()
    if parser.parse_args().check:
        for name in stale:
            sys.stderr.write(f"{FOLDER.name}/{name} is not up to date: run python -m engramlog.schemas.export\n")
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.json"):
        path.unlink()
    for name, schema in schemas().items():
        (FOLDER / name).write_text(_text(schema), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
