"""The committed AsyncAPI document says what the running engine does."""

import json
import sys
from collections.abc import Iterator
from typing import Any, cast

import pytest
from faststream.kafka import KafkaBroker
from faststream.specification.asyncapi.v3_0_0.schema import ApplicationSchema

from engramlog.consumers.app import CONSUMERS
from engramlog.consumers.health import Health
from engramlog.consumers.metrics import Metrics
from engramlog.consumers.wire import Wiring
from engramlog.engine.client.admin import Cluster, TopicState
from engramlog.engine.history import History
from engramlog.engine.history.versions import VECTORS, Version
from engramlog.engine.settings import Settings
from engramlog.engine.wiring import Backends
from engramlog.schemas import asyncapi
from engramlog.schemas.export import schemas
from engramlog.schemas.topics import Topics

DOCUMENT: dict[str, Any] = json.loads(asyncapi.FILE.read_text(encoding="utf-8"))


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = [*value.values()]
    if isinstance(value, list):
        for each in value:
            yield from references(each)


def resolved(reference: str) -> Any:
    assert reference.startswith("#/"), reference
    found: Any = DOCUMENT
    for part in reference[2:].split("/"):
        found = found[part]
    return found


def test_the_committed_document_did_not_drift(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not asyncapi.drifted(), "run: python -m engramlog.schemas.asyncapi"
    monkeypatch.setattr(sys, "argv", ["asyncapi", "--check"])
    assert asyncapi.main() == 0
    monkeypatch.setattr(asyncapi, "_VERSION", "9.9.9")
    assert asyncapi.main() == 1
    assert "docs/asyncapi.json is not up to date" in capsys.readouterr().err


def test_every_reference_leads_somewhere() -> None:
    assert all(resolved(reference) is not None for reference in {*references(DOCUMENT)})


def test_it_is_a_document_as_faststream_knows_them() -> None:
    server = DOCUMENT["servers"]["kafka"] | {"pathname": ""}  # FastStream's model wants one, AsyncAPI does not
    ApplicationSchema.model_validate(DOCUMENT | {"servers": {"kafka": server}})


def test_every_topic_is_a_channel_with_its_configuration_and_messages() -> None:
    table = Topics().table()
    assert [c["address"] for c in DOCUMENT["channels"].values()] == [spec.name for spec in table]
    for spec in table:
        channel = DOCUMENT["channels"][spec.name.partition(".")[2]]
        kafka = channel["bindings"]["kafka"]
        assert kafka["partitions"] == spec.partitions
        config = {k: v[0] if isinstance(v, list) else str(v) for k, v in kafka["topicConfiguration"].items()}
        assert config == spec.config
        assert channel["messages"]


def test_every_json_schema_is_there_and_every_message_is_sent_somewhere() -> None:
    names = {name.removesuffix(".schema.json") for name in schemas()}
    assert names <= {*DOCUMENT["components"]["schemas"]}
    assert {*DOCUMENT["components"]["messages"]} == names == {n for ns in asyncapi.MESSAGES.values() for n in ns}


def test_it_receives_what_the_app_subscribes_to() -> None:
    table = Topics().table()
    cluster = Cluster(None, 12, tuple(TopicState(spec, partitions=12) for spec in table))
    settings, metrics, broker = Settings(), Metrics(), KafkaBroker()
    history = History("sqlite:///never-opened.db", topics=Topics())
    backends = Backends(
        history,
        Version(VECTORS, 1, 1, "ready"),
        embedder=cast("Any", object()),
        summariser=cast("Any", object()),
        vectors=cast("Any", object()),
    )
    wiring = Wiring(settings, cluster, Topics(), broker, history, metrics, Health(metrics, max_lag=1), backends)
    for register in CONSUMERS.values():
        register(wiring)
    subscribed = {(s.group_id, topic) for s in broker.subscribers for topic in s.topic_names}
    received = {
        (operation["bindings"]["kafka"]["groupId"]["enum"][0], resolved(operation["channel"]["$ref"])["address"])
        for operation in DOCUMENT["operations"].values()
        if operation["action"] == "receive"
    }
    assert received == subscribed


def test_a_definition_that_only_looks_like_another_keeps_apart() -> None:
    one = {"$defs": {"A": {"type": "string"}, "B": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/B"}
    other = {"$defs": {"A": {"type": "integer"}, "B": {"$ref": "#/$defs/A"}}, "$ref": "#/$defs/B"}
    assert asyncapi._lifted({"one": one, "two": other, "three": one}) == {
        "A": {"type": "string"},
        "B": {"$ref": "#/components/schemas/A"},
        "one": {"$ref": "#/components/schemas/B"},
        "three": {"$ref": "#/components/schemas/B"},
        "two": {"$ref": "#/components/schemas/two.B"},
        "two.A": {"type": "integer"},
        "two.B": {"$ref": "#/components/schemas/two.A"},
    }
