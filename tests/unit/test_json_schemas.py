"""The committed JSON Schemas say what the codec says."""

import json
import sys

import pytest

from engramlog.schemas import export


def test_the_committed_schemas_did_not_drift() -> None:
    assert export.drifted() == [], "run: python -m engramlog.schemas.export"


def test_check_writes_nothing_and_names_what_is_stale(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["export", "--check"])
    assert export.main() == 0
    monkeypatch.setattr(export, "drifted", lambda: ["record.written.v1.schema.json"])
    assert export.main() == 1
    assert "record.written.v1.schema.json is not up to date" in capsys.readouterr().err


def test_what_the_wire_requires_is_required() -> None:
    written = export.schemas()["record.written.v1.schema.json"]
    assert written["$id"] == "urn:engramlog:schema:record.written.v1"
    assert {"specversion", "type", "id", "source", "time", "tenantid", "agentid", "data"} == {*written["required"]}
    assert {"record_id", "role", "timestamp"} == {*written["$defs"]["MemoryRecord"]["required"]}
    assert "ask" in export.schemas()["query.asked.v1.schema.json"]["$defs"]["HistoryQuery"]["required"]


def test_they_hold_no_absolute_address() -> None:
    text = json.dumps(export.schemas()).replace("https://json-schema.org/draft/2020-12/schema", "")
    assert "http" not in text
