"""Writes the AsyncAPI document of the engine: ``python -m engramlog.schemas.asyncapi [--check]``.

``docs/asyncapi.json`` says what the engine reads and writes: the topics of the table with their configuration, the
messages with their headers, keys and payloads (the JSON Schemas of :mod:`engramlog.schemas.export`), and for every
consumer what it receives and sends. Names and numbers are the defaults: your settings may have others.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from engramlog.schemas import queries as q
from engramlog.schemas.dead_letters import HEADER
from engramlog.schemas.export import schemas
from engramlog.schemas.topics import MAX_MESSAGE_BYTES, Topics, TopicSpec

FILE = Path(__file__).parents[1] / "docs" / "asyncapi.json"
_VERSION = "1.0.0"
"""Of the interface, not of the package: it moves with the topics and the events."""
_BINDING = "0.5.0"
_CLOUD_EVENT = "application/cloudevents+json"
_ENGINE = ("admit", "store", "derive", "index", "summarise", "answer", "forget")
_MUTATIONS = ("history.cleared", "records.removed", "record.invalidated", "record.corrected")
_SESSIONS = ("session.idled", "session.ended", "scope.erased")

MESSAGES: Mapping[str, tuple[str, ...]] = {
    "inbox": ("inbox.record.v1", "record.written.v1"),
    "records": ("record.written.v1", *(f"{name}.v1" for name in (*_MUTATIONS, *_SESSIONS))),
    "derived.g1": ("record.derived.v1", "recall.changed.v1", "watermark.passed.v1"),
    "summaries": ("summary.created.v1", "summary.failed.v1"),
    "queries": ("query.asked.v1",),
    "replies": ("query.replied.v1",),
    "dead-letters": ("dead-letter.v1",),
}
"""What lies in each topic, by the names of the JSON Schemas."""

_TRACE = {"traceparent": "W3C Trace Context of whoever wrote it, if that was traced."}
_HEADERS: Mapping[str, Mapping[str, str]] = {
    "query.asked.v1": {
        q.REPLY_TOPIC: "The reply topic; a reply goes nowhere else.",
        q.REPLY_PARTITION: "The partition that the reply is to be sent to, in digits.",
        q.CORRELATION_ID: "The request's id, as the reply will carry it.",
    },
    "query.replied.v1": {q.CORRELATION_ID: "The id of the request."},
    "dead-letter.v1": {"reason": "Why it died: a code.", HEADER: "What is known of it, as JSON (DeadLetter)."},
}


def document() -> dict[str, Any]:
    """The document."""
    table = Topics().table()
    named = {name.removesuffix(".schema.json"): schema for name, schema in schemas().items()}
    return {
        "asyncapi": "3.0.0",
        "id": "urn:engramlog",
        "info": {
            "title": "engramlog",
            "version": _VERSION,
            "description": (
                "The event-sourced memory engine for AI agents: what its consumers receive and send. Agents do the "
                "reverse: they write records and queries, and read replies. The order of one agent's events is the "
                "order of its partition: (murmur2(utf8(tenant/agent)) & 0x7fffffff) % partitions."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": _CLOUD_EVENT,
        "servers": {
            "kafka": {"host": "localhost:9092", "protocol": "kafka", "description": "ENGRAMLOG_BOOTSTRAP_SERVERS"}
        },
        "channels": {_id(spec): _channel(spec, named) for spec in table},
        "operations": dict(_operations(table)),
        "components": {
            "messages": {name: _message(name) for name in sorted(_used(table, named))},
            "schemas": _lifted(named),
        },
    }


def _id(spec: TopicSpec) -> str:
    return spec.name.partition(".")[2]


def _used(table: tuple[TopicSpec, ...], named: Mapping[str, Any]) -> set[str]:
    return {name for spec in table for name in MESSAGES[_id(spec)] if name in named}


def _channel(spec: TopicSpec, named: Mapping[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {
        name: int(value) if value.lstrip("-").isdigit() else value for name, value in spec.config.items()
    }
    config["cleanup.policy"] = [config["cleanup.policy"]]
    who = f"Written by {', '.join(spec.producers)}; read by {', '.join(spec.consumers) or 'people'}."
    return {
        "address": spec.name,
        "title": spec.payload,
        "description": f"Key: {spec.key}. {who} Messages of up to {MAX_MESSAGE_BYTES:,} bytes.",
        "messages": {name: _ref("messages", name) for name in MESSAGES[_id(spec)] if name in named},
        "bindings": {
            "kafka": {"partitions": spec.partitions, "topicConfiguration": config, "bindingVersion": _BINDING}
        },
        "x-kind": spec.kind,
    }


def _message(name: str) -> dict[str, Any]:
    dead = name == "dead-letter.v1"
    fields = {**_HEADERS.get(name, {}), **({} if dead else _TRACE)}
    headers: dict[str, Any] = {
        "type": "object",
        "properties": {field: {"type": "string", "description": about} for field, about in fields.items()},
        "required": [field for field in fields if field not in _TRACE],
    }
    payload = _ref("schemas", name)
    message: dict[str, Any] = {"name": name, "title": name, "contentType": _CLOUD_EVENT, "headers": headers}
    if q.CORRELATION_ID in fields:
        message["correlationId"] = {"location": f"$message.header#/{q.CORRELATION_ID}"}
    if name.startswith("inbox."):
        message["contentType"] = "application/json"
    if dead:
        headers["properties"][HEADER] |= {"contentMediaType": "application/json", "contentSchema": payload}
        message["contentType"] = "application/octet-stream"
        message["description"] = f"The value is the message as it came; the header {HEADER!r} is {name}."
        payload = {"type": "string", "description": "The raw bytes of the message that died."}
    return {**message, "payload": payload}


def _operations(table: tuple[TopicSpec, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    for spec in table:
        for who in spec.consumers:
            if who in _ENGINE:
                yield f"{who}.receive.{_id(spec)}", _operation("receive", who, spec)
        for who in spec.producers:
            if who in _ENGINE:
                yield f"{who}.send.{_id(spec)}", _operation("send", who, spec)


def _operation(action: str, who: str, spec: TopicSpec) -> dict[str, Any]:
    channel = {"$ref": f"#/channels/{_id(spec)}"}
    operation: dict[str, Any] = {"action": action, "channel": channel, "title": who}
    if action == "receive":
        group = {"type": "string", "enum": [f"{spec.name.partition('.')[0]}.{who}"]}
        operation["bindings"] = {"kafka": {"groupId": group, "bindingVersion": _BINDING}}
    if action == "receive" and _id(spec) == "queries":
        operation["reply"] = {"channel": {"$ref": "#/channels/replies"}}
    return operation


def _lifted(named: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The schemas side by side; a definition that only looks like another's gets its schema's name in front."""
    found: dict[str, Any] = {}
    for name, schema in sorted(named.items()):
        parts: dict[str, Any] = schema.get("$defs", {})
        own = _own_names(name, parts, found)
        found |= {own[part]: _moved(value, own) for part, value in parts.items()}
        found[name] = _moved({k: v for k, v in schema.items() if k not in {"$schema", "$id", "$defs"}}, own)
    return dict(sorted(found.items()))


def _own_names(name: str, parts: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, str]:
    """What the definitions of a schema are called beside those that were found before."""
    own = {part: part for part in parts}
    while True:
        unlike = {part for part, value in parts.items() if own[part] in found and found[part] != _moved(value, own)}
        if not (fresh := {part for part in unlike if own[part] == part}):
            return own
        own |= {part: f"{name}.{part}" for part in fresh}


def _moved(value: Any, names: Mapping[str, str]) -> Any:
    """The same schema, with references to where its parts lie now.

    A discriminator is left out: OpenAPI's form of it is none in AsyncAPI, and constants tell the parts apart anyway.
    """
    if isinstance(value, list):
        return [_moved(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    moved = {k: _moved(each, names) for k, each in value.items() if k != "discriminator" or not _openapi(each)}
    if isinstance(target := value.get("$ref"), str):
        moved["$ref"] = f"#/components/schemas/{names[target.rpartition('/')[2]]}"
    return moved


def _openapi(value: Any) -> bool:
    return isinstance(value, dict) and "propertyName" in value


def _ref(kind: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/components/{kind}/{name}"}


def _text() -> str:
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


def drifted() -> bool:
    """Whether the committed document is missing, or not what the code says."""
    return not FILE.exists() or FILE.read_text(encoding="utf-8") != _text()


def main() -> int:
    """Write the document, or only check it."""
    parser = argparse.ArgumentParser(prog="python -m engramlog.schemas.asyncapi", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when it is not up to date")
    if parser.parse_args().check:
        if drifted():
            sys.stderr.write("docs/asyncapi.json is not up to date: run python -m engramlog.schemas.asyncapi\n")
        return int(drifted())
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(_text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
