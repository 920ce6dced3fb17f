"""Conversation files: what becomes of each form, and of what is none."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest

from engramlog.engine.cli.conversations import form_of, form_of_document, read_camel, read_document, read_lines
from engramlog.engine.cli.files import open_source, sample
from engramlog.engine.cli.sending import checked
from engramlog.engine.cli.turns import Invalid, Maker, Turn, Whose
from engramlog.schemas.codec import records_codec
from engramlog.schemas.formats import to_camel, to_openai

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LOCOMO = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Ben",
            "session_10_date_time": "12:05 am on 3 June, 2023",
            "session_10": [{"speaker": "Ann", "dia_id": "D10:1", "text": "Late!"}],
            "session_2_date_time": "1:56 pm on 8 May, 2023",
            "session_2": [
                {"speaker": "Ann", "dia_id": "D2:1", "text": "Hi Ben"},
                {
                    "speaker": "Ben",
                    "dia_id": "D2:2",
                    "text": "Look",
                    "img_url": ["https://images.example.org/dog.jpg"],
                    "blip_caption": "a dog",
                },
            ],
            "session_3_date_time": "1:56 pm on 9 May, 2023",
        },
    }
]
BANK = {
    "张三": {"history": {"2023-04-27": [{"query": "你好", "response": "你好呀"}, {"query": "再见", "response": "👋"}]}}
}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": "https://images.example.org/x.png", "detail": "low"}},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            {"type": "file", "file": {"file_id": "file-1"}},
        ],
    },
    {
        "role": "assistant",
        "content": None,
        "refusal": "no",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "42"},
]


def maker(*, ids_from_content: bool = False, **whose: str) -> Maker:
    return Maker(Whose(**whose), now=NOW, ids_from_content=ids_from_content)


def good(read: Any) -> list[Turn]:
    found = list(read)
    assert not [item for item in found if isinstance(item, Invalid)]
    return found


def document(value: Any, make: Maker) -> list[Turn]:
    form = form_of_document(value)
    assert form is not None
    return good(read_document(value, form, make, name="file"))


def lines(*values: Any, make: Maker | None = None) -> list[Turn | Invalid]:
    written = [v if isinstance(v, bytes) else json.dumps(v).encode() for v in values]
    return list(read_lines(written, make or maker(), name="talk.jsonl"))


def test_locomo() -> None:
    turns = document(LOCOMO, maker())
    assert [t.event.id for t in turns] == ["conv-1/D2:1", "conv-1/D2:2", "conv-1/D10:1"]
    assert [t.event.data.role for t in turns] == ["user", "assistant", "user"]
    assert [t.event.data.role_name for t in turns] == ["Ann", "Ben", "Ann"]
    assert {(t.event.tenantid, t.event.agentid) for t in turns} == {("default", "conv-1")}
    assert [t.event.sessionid for t in turns] == ["conv-1/session_2", "conv-1/session_2", "conv-1/session_10"]
    times = [t.event.data.timestamp for t in turns]
    assert times[0] == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert times[2] == datetime(2023, 6, 3, 0, 5, tzinfo=UTC)
    assert times == sorted(set(times))
    image = turns[1].event.data.parts[1]
    assert (image.type, image.url, image.detail) == (
        "image",
        "https://images.example.org/dog.jpg",
        {"caption": "a dog"},
    )


def test_the_command_line_names_agent_and_session_of_locomo() -> None:
    turns = document(LOCOMO, maker(tenant="acme", agent="a", session="s"))
    assert {(t.event.tenantid, t.event.agentid, t.event.sessionid) for t in turns} == {("acme", "a", "s")}


def test_locomo_without_a_date_is_told_and_the_rest_is_read() -> None:
    talk = {**LOCOMO[0]["conversation"], "session_2_date_time": "one day"}  # type: ignore[dict-item]
    found = list(read_document([{**LOCOMO[0], "conversation": talk}], "locomo", maker(), name="file"))
    assert [type(item) for item in found] == [Invalid, Turn]
    assert found[0].where == "file: conv-1 session_2"


def test_memorybank() -> None:
    turns = document(BANK, maker(agent="friend"))
    assert [(t.event.data.role, t.event.data.content) for t in turns] == [
        ("user", "你好"),
        ("assistant", "你好呀"),
        ("user", "再见"),
        ("assistant", "👋"),
    ]
    assert {(t.event.agentid, t.event.userid, t.event.sessionid) for t in turns} == {
        ("friend", "张三", "张三/2023-04-27")
    }
    times = [t.event.data.timestamp for t in turns]
    assert times[0] == datetime(2023, 4, 27, tzinfo=UTC)
    assert times == sorted(set(times))


@pytest.mark.parametrize("wrapped", [False, True])
def test_openai(*, wrapped: bool) -> None:
    turns = document({"messages": CHAT} if wrapped else CHAT, maker(session="s"))
    assert [t.event.data.role for t in turns] == ["system", "user", "assistant", "tool"]
    assert [t.event.data.content for t in turns] == ["Be brief.", "What is this?", "no", "42"]
    assert [part.type for part in turns[1].event.data.parts] == ["text", "image", "audio", "file"]
    assert [to_openai(t.event.data) for t in turns] == CHAT
    times = [t.event.data.timestamp for t in turns]
    assert times == sorted(set(times))


def test_lines_say_whose_they_are_or_the_command_line_does() -> None:
    said, unsaid, shared = lines(
        {"role": "user", "content": "a", "tenant": "t", "agent": "x", "session": "1", "user": "u", "record_id": "r"},
        {"role": "user", "content": "b"},
        {"role": "system", "content": "c", "user": None},
        make=maker(tenant="acme", agent="a", session="s", user="ada"),
    )
    assert isinstance(said, Turn)
    assert (said.key, said.event.sessionid, said.event.userid) == (("t", "x", "r"), "1", "u")
    assert isinstance(unsaid, Turn)
    assert (unsaid.key[:2], unsaid.event.sessionid, unsaid.event.userid) == (("acme", "a"), "s", "ada")
    assert isinstance(shared, Turn)
    assert (shared.event.sessionid, shared.event.userid) == ("s", None)
    (nobody,) = lines({"role": "user"})
    assert isinstance(nobody, Turn)
    assert (nobody.key[:2], nobody.event.sessionid, nobody.event.userid) == (("default", "default"), None, None)
    assert nobody.event.data.timestamp == NOW


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not_json"),
        (b"\xff", "not_json"),
        (b"[" * 100_000, "too_deep"),
        (b"[]", "schema_violation"),
        (b'{"role":"boss"}', "schema_violation"),
        (b'{"content":"no role"}', "schema_violation"),
        (b'{"role":"user","content":1}', "schema_violation"),
        (b'{"role":"user","tenant":7}', "schema_violation"),
        (b'{"role":"user","tenant":"\\u0000"}', "schema_violation"),
        (b'{"role":"user","timestamp":"2026-03-01T00:00:00"}', "naive_time"),
        (b'{"role":"user","content":"\\ud83d"}', "lone_surrogate"),
        (b'{"role":"user","spelt":"wrongly"}', "schema_violation"),
    ],
)
@pytest.mark.parametrize("ids_from_content", [False, True])
def test_a_bad_line_is_named_and_spoils_no_other(line: bytes, reason: str, *, ids_from_content: bool) -> None:
    before, bad, after = lines({"role": "user"}, line, {"role": "user"}, make=maker(ids_from_content=ids_from_content))
    assert isinstance(bad, Invalid)
    assert (bad.where, bad.error.reason) == ("talk.jsonl:2", reason)
    assert isinstance(before, Turn)
    assert isinstance(after, Turn)


def test_what_is_too_large_for_an_event_is_invalid() -> None:
    small, large = checked(lines({"role": "user"}, {"role": "user", "content": "x" * 1_000_000}))
    assert isinstance(small, tuple)
    assert small[1] == len(records_codec().encode(small[0].event))
    assert isinstance(large, Invalid)
    assert (large.where, large.error.reason) == ("talk.jsonl:2", "too_large")


def test_ids_from_content_are_the_same_the_next_time_and_keep_repeated_lines_apart() -> None:
    same = {"role": "user", "content": "ok"}
    first = [t.key for t in good(lines(same, same, make=maker(ids_from_content=True)))]
    later = Maker(Whose(), now=datetime(2027, 1, 1, tzinfo=UTC), ids_from_content=True)
    assert first == [t.key for t in good(lines(same, same, make=later))]
    assert len(set(first)) == 2
    assert first != [t.key for t in good(lines(same, same, make=maker()))]
    chat = [t.key for t in document(CHAT, maker(ids_from_content=True))]
    assert chat == [t.key for t in document(CHAT, later)]


def test_forms_are_found_out() -> None:
    assert form_of(b'{"role":"user"}') == "jsonl"
    assert form_of(b"[") is None
    assert form_of_document({"some": "thing"}) is None
    assert form_of_document([]) is None


@pytest.mark.parametrize("form", ["openai", "locomo", "memorybank"])
def test_a_document_of_another_form_than_was_said_is_told(form: Any) -> None:
    found = list(read_document({"a": 1}, form, maker(), name="file"))
    assert [type(item) for item in found] == [Invalid]


def test_files(tmp_path: Path) -> None:
    for name, content, form in [
        ("a.jsonl", "\ufeff" + '{"role":"user"}\n\n{"role":"user"}', "jsonl"),
        ("b.ndjson", "not json", "jsonl"),
        ("c.json", json.dumps(CHAT, indent=1), "openai"),
        ("d.json", json.dumps(LOCOMO), "locomo"),
        ("e.json", "\ufeff" + json.dumps(BANK, indent=1), "memorybank"),
    ]:
        (tmp_path / name).write_text(content, encoding="utf-8")
        source = open_source(str(tmp_path / name))
        assert (source.form, source.repeatable) == (form, True)
        assert len(list(source.turns(maker()))) == len(list(source.turns(maker())))
    assert len(good(open_source(str(tmp_path / "a.jsonl")).turns(maker()))) == 2


@pytest.mark.parametrize("content", ["", "hello", '{"some": "thing"}', "[]"])
def test_a_file_of_no_known_form_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(click.UsageError, match="--format"):
        open_source(str(tmp_path / "x.json"))


def test_the_sample_is_what_it_promises() -> None:
    turns = good(sample().turns(maker()))
    events = [t.event for t in turns]
    assert 60 <= len(turns) <= 100
    assert len({t.key for t in turns}) == len(turns)
    assert len({e.tenantid for e in events}) >= 2
    assert len({e.userid for e in events if e.userid}) >= 2
    text = "".join(e.data.content for e in events)
    assert "🌸" in text
    assert "补发" in text
    assert max(len(e.data.content) for e in events) > 1_500
    assert any(part.type == "image" and part.url for e in events for part in e.data.parts)
    called = {call["id"] for e in events for call in e.data.tool_calls}
    assert called == {e.data.tool_call_id for e in events if e.data.role == "tool"}
    by_session: dict[str | None, list[datetime]] = {}
    for e in events:
        by_session.setdefault(e.sessionid, []).append(e.data.timestamp)
    assert all(times == sorted(times) for times in by_session.values())


def test_camels_storage_file_comes_with_its_ids_and_agents() -> None:
    made = json.loads((Path(__file__).parent / "camel_records.json").read_text())
    records = [each["record"] for each in made["records"]]
    lines = [json.dumps(r).encode() for r in records]
    assert form_of(lines[0]) == "camel"
    turns = list(read_camel(lines, Maker(Whose(tenant="acme"), now=NOW), name="memory.json"))
    assert [t for t in turns if isinstance(t, Invalid)] == []
    assert [to_camel(t.event.data) for t in turns] == records  # type: ignore[union-attr]
    agents = [t.event.agentid for t in turns]  # type: ignore[union-attr]
    assert agents == [r.get("agent_id") or "default" for r in records]
