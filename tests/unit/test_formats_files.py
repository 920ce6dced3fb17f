"""Importers: every kind of file, in halves, damaged, twice; nothing is lost in silence."""

import io
import itertools
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engramlog.schemas import errors
from engramlog.schemas.formats import BadInput, Imported, read_camel, read_openai, to_camel, to_openai
from engramlog.schemas.formats.documents import Document

WHEN = datetime(2026, 3, 1, tzinfo=UTC)
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": '你好 👋\u2028\nline two, "quoted" \\ [ { ]'},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "42"},
]
OTHER = [TALK[0], {"role": "user", "content": "Bye."}]


def jsonl(values: Iterable[Any], end: str = "\n") -> bytes:
    return "".join(json.dumps(value, ensure_ascii=False) + end for value in values).encode()


def openai(data: bytes, **more: Any) -> list[Imported]:
    return list(read_openai(io.BytesIO(data), **more))


def said(imported: Iterable[Imported]) -> list[tuple[int, dict[str, Any]]]:
    return [(item.session, to_openai(item.record)) for item in imported]


ONE = [(0, message) for message in TALK]
TWO = ONE + [(1, message) for message in OTHER]
FILES: dict[str, tuple[bytes, list[tuple[int, dict[str, Any]]]]] = {
    "list": (json.dumps(TALK).encode(), ONE),
    "list, pretty": (json.dumps(TALK, indent=2, ensure_ascii=False).encode(), ONE),
    "list, behind blank lines": (b"\n \r\n\t" + json.dumps(TALK).encode() + b"\n\n", ONE),
    "list, empty": (b"[]", []),
    "object": (json.dumps({"messages": TALK}).encode(), ONE),
    "object, pretty": (
        json.dumps({"model": "m", "messages": TALK, "tools": [{"a": 1}], "n": 12}, indent=1).encode(),
        ONE,
    ),
    "object, empty": (b'{"messages": []}', []),
    "lines of messages": (jsonl(TALK), ONE),
    "lines of messages, no end": (jsonl(TALK).rstrip(), ONE),
    "lines of messages, Windows": (b"\xef\xbb\xbf" + jsonl(TALK, end="\r\n"), ONE),
    "lines of messages, blank ones": (jsonl(TALK, end="\n\n  \n"), ONE),
    "lines of conversations": (jsonl([{"messages": TALK}, {"messages": OTHER, "tools": []}]), TWO),
    "a conversation without messages": (jsonl([{"messages": TALK}, {"messages": []}]), ONE),
    "nothing": (b"", []),
    "blank": (b" \n\n", []),
}


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file(name: str) -> None:
    data, wanted = FILES[name]
    imported = openai(data)
    assert said(imported) == wanted
    assert {item.record.origin for item in imported} <= {"import"}


def test_a_path_and_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_bytes(b"\n" + jsonl(TALK))
    assert [item.line for item in read_openai(path, timestamp=WHEN)] == [2, 3, 4, 5]
    assert {item.record.timestamp for item in read_openai(str(path), timestamp=WHEN)} == {WHEN}
    path.write_text(pretty := json.dumps(TALK, indent=1))
    starts = [number for number, line in enumerate(pretty.splitlines(), start=1) if line == " {"]
    assert [item.line for item in read_openai(path)] == starts
    with pytest.raises(FileNotFoundError):
        list(read_openai(tmp_path / "none"))


def test_messages_that_are_imported_together_share_one_time() -> None:
    assert len({item.record.timestamp for item in openai(jsonl(TALK))}) == 1


# --- ids --------------------------------------------------------------------------------------------------------------


def ids(data: bytes, name: str | None) -> list[str]:
    return [item.record.record_id for item in openai(data, ids=name)]


def test_importing_twice_doubles_nothing() -> None:
    twice = jsonl([TALK[1]] * 2)
    assert ids(jsonl(TALK), "talk") == ids(jsonl(TALK), "talk")
    assert len({*ids(twice, "talk")}) == 2  # said twice
    assert ids(jsonl(TALK), "talk")[:3] == ids(jsonl(TALK[:3]), "talk")  # has grown
    assert not {*ids(jsonl(TALK), "talk")} & {*ids(jsonl(TALK), "another talk")}
    assert not {*ids(jsonl(TALK), None)} & {*ids(jsonl(TALK), None)}


def test_the_ids_do_not_depend_on_the_kind_of_file() -> None:
    shuffled = [dict(reversed(message.items())) for message in TALK]
    files = (json.dumps(shuffled, indent=2).encode(), jsonl(TALK, end="\n\n"), jsonl([{"messages": TALK}]))
    assert len({tuple(ids(data, "talk")) for data in files}) == 1


def test_conversations_that_begin_alike_share_no_ids() -> None:
    made = ids(jsonl([{"messages": TALK}, {"messages": TALK}]), "talks")
    assert len({*made}) == 2 * len(TALK)


def test_a_bad_line_moves_no_ids() -> None:
    lines = jsonl(TALK).splitlines(keepends=True)
    lines[1] = b'{"role": "user", "content": \n'
    made = [item.record.record_id for item in openai(b"".join(lines), ids="talk", on_bad=print)]
    whole = ids(jsonl(TALK), "talk")
    assert made == [whole[0], *whole[2:]]


# --- what is bad ------------------------------------------------------------------------------------------------------

GOOD = b'{"role": "user", "content": "hi"}\n'
BAD_LINES: dict[str, tuple[bytes, str, str]] = {
    "torn": (b'{"role": "user", "con', "not_json", "the line is not JSON"),
    "torn in a string": (b'{"role": "user", "content": "hi', "not_json", "the line is not JSON"),
    "torn in a character": ('{"role": "user", "content": "世'.encode()[:-1], "not_utf8", "save the file as UTF-8"),
    "UTF-16": ("世".encode("utf-16"), "not_utf8", "save the file as UTF-8"),
    "two values": (b"{} {}", "not_json", "Extra data"),
    "no object": (b"5", "schema_violation", "neither a message (an object with 'role') nor a conversation"),
    "no role": (b'{"content": "hi"}', "schema_violation", "neither a message"),
    "of another kind": (b'{"messages": []}', "schema_violation", "one kind a file"),
    "unknown role": (b'{"role": "narrator"}', "schema_violation", "role: "),
    "NaN": (b'{"role": "user", "x": NaN}', "schema_violation", "NaN and infinity are not JSON"),
    "too large a number": (b'{"role": "user", "x": 1e999}', "schema_violation", "NaN and infinity are not JSON"),
    "too many digits": (b'{"role": "user", "x": ' + b"1" * 5_000 + b"}", "not_json", "4300 digits"),
    "surrogate": (b'{"role": "user", "content": "\\ud800"}', "lone_surrogate", "repair the text"),
    "too deep": (b'{"role": "user", "x": ' + b"[" * 60 + b"]" * 60 + b"}", "too_deep", "nested"),
    "deeper": (b'{"role": "user", "x": ' + b"[" * 900 + b"]" * 900 + b"}", "too_deep", "nested"),
    "far too deep": (b'{"role": "user", "x": ' + b"[" * 200_000, "too_deep", "nested too deep"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_is_raised_with_its_place_after_all_before_it(name: str) -> None:
    line, reason, words = BAD_LINES[name]
    reading = read_openai(io.BytesIO(GOOD + b"\n" + line + b"\n" + GOOD), ids="talk")
    assert to_openai(next(reading).record) == json.loads(GOOD)
    with pytest.raises(BadInput) as raised:
        next(reading)
    bad = raised.value
    assert (bad.file, bad.line, bad.reason) == ("<stream>", 3, reason)
    assert str(bad).startswith("<stream>, line 3: ")
    assert words in str(bad)
    assert isinstance(bad, errors.Permanent)
    assert isinstance(bad.__cause__, errors.InvalidEvent)


@pytest.mark.parametrize("name", BAD_LINES)
def test_or_it_is_told_and_reading_goes_on(name: str) -> None:
    told: list[BadInput] = []
    imported = openai(GOOD + BAD_LINES[name][0] + b"\n" + GOOD, on_bad=told.append)
    assert [item.line for item in imported] == [1, 3]
    assert [(bad.line, bad.reason) for bad in told] == [(2, BAD_LINES[name][1])]


@pytest.mark.parametrize("name", BAD_LINES.keys() - {"no role", "of another kind"})
def test_the_first_line_may_be_bad_too(name: str) -> None:
    told: list[BadInput] = []
    imported = openai(BAD_LINES[name][0] + b" oops\n" + GOOD, on_bad=told.append)
    assert [item.line for item in imported] == [2]
    assert [bad.line for bad in told] == [1]


def test_a_conversation_is_read_as_a_whole_or_not_at_all() -> None:
    told: list[BadInput] = []
    lines = jsonl([{"messages": OTHER}, {"messages": [*OTHER, {"role": "narrator"}]}, {"messages": OTHER}])
    assert [item.session for item in openai(lines, on_bad=told.append)] == [0, 0, 2, 2]
    assert "line 2: messages[2]: role: " in str(told[0])


def test_messages_among_conversations_are_refused() -> None:
    with pytest.raises(BadInput, match="one kind a file"):
        openai(jsonl([{"messages": OTHER}, TALK[0]]))


DOCUMENTS: dict[str, tuple[bytes, int, int, str]] = {
    "torn list": (b'[\n{"role": "user"},\n{"role": "us', 1, 3, "the file ends inside of a value"),
    "torn behind a value": (b'[\n{"role": "user"},\n{"role": "user"}\n', 2, 4, "the file ends where ']' is missing"),
    "torn behind a comma": (b'[{"role": "user"},\n', 1, 2, "the file ends where ']' is missing"),
    "torn object": (
        b'{\n"messages": [{"role": "user"}, {"role": "user", "content": "hi',
        1,
        2,
        "ends inside of a value",
    ),
    "torn before the messages": (b'{\n"mess', 0, 2, "the file ends inside of a value"),
    "torn behind the messages": (b'{\n"messages": [{"role": "user"}]', 1, 2, "the file ends where '}' is missing"),
    "torn in a character": ('[{"role": "user"},\n{"a": "世'.encode()[:-1], 1, 2, "not UTF-8"),
    "no text": (b'[{"role": "user"}, {"role": "user"},{"\xff": 1}, {"role": "user"}]', 2, 1, "not UTF-8"),
    "broken": (b'[{"role": "user"},\n oops, ' + b" " * 99 + b"]", 1, 2, "the value is not JSON"),
    "no comma": (b'[{"role": "user"}\n{"role": "user"}]', 1, 2, "expected ']', found '{'"),
    "more behind the end": (b'[{"role": "user"}]\n{}', 1, 2, "something follows the end of the document"),
    "no messages": (b'{\n"prompt": "hi"\n}', 0, 3, "an object without a list 'messages'"),
    "messages no list": (b'{\n"messages": {"role": "user"}}', 0, 2, "an object without a list 'messages'"),
    "too deep": (b'[{"role": "user"},\n' + b"[" * 200_000, 1, 2, "nested too deep"),
    "too many digits": (b"[" + b"1" * 5_000 + b"]", 0, 1, "4300 digits"),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_is_whole_of_a_broken_document_is_in_and_the_break_is_told(name: str) -> None:
    data, count, line, words = DOCUMENTS[name]
    told: list[BadInput] = []
    assert len(openai(data, on_bad=told.append)) == count
    assert [bad.line for bad in told] == [line]
    assert words in str(told[0])
    with pytest.raises(BadInput):
        openai(data)


def test_a_bad_message_in_a_document_does_not_end_it() -> None:
    told: list[BadInput] = []
    data = b'[{"role": "user"},\n{"role": "narrator"},\n{"role": "user", "x": NaN},\n{"role": "user"}]'
    assert [item.line for item in openai(data, on_bad=told.append)] == [1, 4]
    assert [bad.line for bad in told] == [2, 3]


KINDS = [data for data, _ in FILES.values() if len(data) > 20]


@pytest.mark.parametrize("data", KINDS)
def test_a_file_in_halves_gives_what_is_whole_of_it_and_says_so(data: bytes) -> None:
    whole = said(openai(data))
    for end in range(len(data)):
        told: list[BadInput] = []
        part = said(openai(data[:end], on_bad=told.append))
        assert part == whole[: len(part)]
        assert told or len(part) == len(whole) or _ends_at_a_line(data, end)
        assert len(told) <= 1


def _ends_at_a_line(data: bytes, end: int) -> bool:
    """Cut between lines, a file of JSON lines is a shorter one, as good as any; and so is nothing at all."""
    torn = data[:end].removeprefix(b"\xef\xbb\xbf").rsplit(b"\n", 1)[-1].strip()
    return not torn or torn == data[:end].strip() == b"" or _is_json(torn)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


# --- streaming --------------------------------------------------------------------------------------------------------


class Endless(io.RawIOBase):
    """A file without an end, that counts what was read of it."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._left = b""
        self.taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._left or next(self._blocks)
        part, self._left = block[: len(buffer)], block[len(buffer) :]
        buffer[: len(part)] = part
        self.taken += len(part)
        return len(part)


@pytest.mark.parametrize("start", [b"", b"[\n", b"[", b'{\n"messages": ['])
def test_a_file_is_read_only_as_far_as_it_is_needed(start: bytes) -> None:
    end = b"," if start == b"[" else b",\n" if start else b"\n"
    message = b'{"role": "user", "content": "' + b"x" * 500 + b'"}' + end
    raw = Endless(itertools.chain([start + message], itertools.repeat(message)))
    reading = read_openai(io.BufferedReader(raw))
    for _ in range(5_000):
        next(reading)
    assert raw.taken < 5_000 * len(message) + 3_000_000


values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab\\"世', max_size=3), inner, max_size=3),
    max_leaves=8,
)


@example([1.5, -1e99, 1e-7, [10, 2], True, ""], 1, None, False, True)
@given(st.lists(values, max_size=4), st.integers(1, 9), st.sampled_from([None, 1]), st.booleans(), st.booleans())
def test_a_document_is_what_json_says_however_it_comes_in_blocks(
    items: list[Any], size: int, indent: int | None, named: bool, escaped: bool
) -> None:
    document = {"a": items, "messages": items, "b": 12} if named else items
    data = json.dumps(document, indent=indent, ensure_ascii=escaped).encode()
    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    assert json.dumps([value for _, value in Document(blocks).messages()]) == json.dumps(items)


# --- CAMEL ------------------------------------------------------------------------------------------------------------

GOLDEN = json.loads(Path(__file__).with_name("camel_records.json").read_text(encoding="utf-8"))
STORED: bytes = GOLDEN["storage"].encode()


def test_a_file_of_camels_storage() -> None:
    imported = list(read_camel(io.BytesIO(STORED)))
    assert [to_camel(item.record) for item in imported] == [json.loads(line) for line in STORED.splitlines()]
    assert [item.record.role for item in imported] == ["user", "tool", "assistant", "user"]
    assert [item.agent for item in imported] == ["agent-1", "agent-1", "", "agent-2"]
    assert [item.line for item in imported] == [1, 2, 3, 4]
    assert {item.record.origin for item in imported} == {"import"}
    assert imported[0].record.metadata["task"] == "greet"
    assert [item.record.record_id for item in imported] == [json.loads(line)["uuid"] for line in STORED.splitlines()]


def test_openai_is_sent_what_camel_sends_after_loading_the_file() -> None:
    imported = list(read_camel(io.BytesIO(STORED)))[:3]
    said = [to_openai(item.record) for item in imported]
    assert said[0] == GOLDEN["loaded"][0]
    # What the file has is a dict; CAMEL, too, no longer knows the model that it was.
    assert said[1] == GOLDEN["loaded"][1]
    assert said[2] != GOLDEN["loaded"][2]  # CAMEL drops an assistant's images, here is a line for each
    assert said[2]["content"][0]["text"] == GOLDEN["loaded"][2]["content"]


def test_every_record_that_camel_wrote_goes_through_a_file(tmp_path: Path) -> None:
    records = [item["record"] for item in GOLDEN["records"]]
    path = tmp_path / "memory.json"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="ascii")
    assert [to_camel(item.record) for item in read_camel(path)] == records


def test_camels_file_in_halves() -> None:
    lines = STORED.splitlines(keepends=True)
    for end in range(len(lines[0]), len(lines[0]) + len(lines[1])):
        told: list[BadInput] = []
        imported = list(read_camel(io.BytesIO(STORED[:end]), on_bad=told.append))
        whole = end in {len(lines[0]), len(lines[0] + lines[1]) - 1}
        assert len(imported) + len(told) == 1 + (end > len(lines[0]))
        assert not (whole and told)
        assert all(bad.line == 2 and bad.reason == "not_json" for bad in told)


@pytest.mark.parametrize(
    ("line", "reason", "words"),
    [
        (b"[]", "schema_violation", "a record of CAMEL is a dict"),
        (b'{"role": "user", "content": "hi"}', "schema_violation", "message: a dict with '__class__'"),
        (STORED.splitlines()[0].replace(b'"hi"', b'"\\ud800"'), "lone_surrogate", "repair the text"),
        (
            STORED.splitlines()[0].replace(b"1772323200.123456", b"NaN"),
            "schema_violation",
            "timestamp: a finite number",
        ),
        (b"\xff", "not_utf8", "save the file as UTF-8"),
    ],
)
def test_a_bad_line_of_camels_is_told_and_reading_goes_on(line: bytes, reason: str, words: str) -> None:
    told: list[BadInput] = []
    data = b"\n" + line + b"\n" + STORED
    assert len(list(read_camel(io.BytesIO(data), on_bad=told.append))) == 4
    assert [(bad.line, bad.reason) for bad in told] == [(2, reason)]
    assert words in str(told[0])
    with pytest.raises(BadInput):
        list(read_camel(io.BytesIO(data)))
