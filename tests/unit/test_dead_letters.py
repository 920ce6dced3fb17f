"""Dead letters: byte by byte, with what was known, and always small enough to be written."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engramlog.schemas.codec import MAX_EVENT_BYTES
from engramlog.schemas.dead_letters import DeadLetter, messages, packed_headers, packed_key, shown
from engramlog.schemas.errors import NotUtf8
from engramlog.schemas.instants import now
from engramlog.schemas.topics import MAX_MESSAGE_BYTES


def letter(**changes: object) -> DeadLetter:
    known = {
        "reason": "not_utf8",
        "error": "byte 0 is not UTF-8",
        "consumer": "store",
        "died": now(),
        "topic": "memory.records",
        "partition": 3,
        "offset": 41,
        "recorded_ms": 1_772_323_200_000,
        "key": None,
    }
    return DeadLetter.model_validate(known | changes)


headers = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=40)), max_size=5)


@given(st.none() | st.binary(max_size=60), headers, st.text())
def test_a_dead_letter_comes_out_as_it_went_in(
    key: bytes | None, given: list[tuple[str, bytes | None]], error: str
) -> None:
    packed, left_out = packed_headers(given)
    packed_, key_left_out = packed_key(key)
    dead = letter(key=packed_, headers=packed, headers_left_out=left_out, error=shown(ValueError(error)))
    assert DeadLetter.model_validate_json(dead.model_dump_json().encode()) == dead
    assert (None if dead.key is None else base64.b64decode(dead.key)) == key
    assert (left_out, key_left_out) == (0, 0)


def test_its_key_is_its_origin() -> None:
    assert letter().origin() == b"memory.records/3/41"


@pytest.mark.parametrize("value", [b"", b"\xff{", b"x" * MAX_EVENT_BYTES])
def test_a_value_that_fits_is_one_message(value: bytes) -> None:
    ((carried, dead),) = messages(letter(), value)
    assert carried == value
    assert (dead.tombstone, dead.part, dead.parts) == (False, 1, 1)


def test_a_tombstone_stays_one_and_no_bytes_are_no_tombstone() -> None:
    ((carried, dead),) = messages(letter(), None)
    assert carried is None
    assert dead.tombstone


def test_a_large_value_comes_in_numbered_parts() -> None:
    value = bytes(range(256)) * 12_000
    parts = list(messages(letter(), value))
    assert b"".join(carried or b"" for carried, _ in parts) == value
    assert [(dead.part, dead.parts) for _, dead in parts] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert {dead.origin() for _, dead in parts} == {b"memory.records/3/41"}


@pytest.mark.parametrize(
    "flood",
    [
        [("h", b"x" * 1_000_000)],
        [("", b"")] * 300_000,
        [("", None)] * 300_000,
        [("\x01" * 5_000, b"")] * 10,
        [("\ud800" * 5_000, b"")] * 10,
    ],
    ids=["one large", "many empty", "many null", "control characters", "surrogates"],
)
def test_the_worst_dead_letter_fits_into_a_message(flood: list[tuple[str, bytes | None]]) -> None:
    key, key_left_out = packed_key(b"k" * 900_000)
    packed, left_out = packed_headers(flood)
    dead = letter(
        key=key,
        key_bytes_left_out=key_left_out,
        headers=packed,
        headers_left_out=left_out,
        error=shown(ValueError("\ud800\x01" * 10_000)),
        topic="t" * 249,
    )
    assert left_out == len(flood) - len(packed)
    assert key_left_out == 900_000 - 32_768
    assert MAX_EVENT_BYTES + len(dead.model_dump_json().encode()) + 1_000 < MAX_MESSAGE_BYTES


def test_an_error_is_shown_short_and_in_valid_unicode() -> None:
    assert shown(NotUtf8("byte 0")) == "byte 0"
    assert shown(KeyError()) == "KeyError"
    assert shown(ValueError("\ud800")) == "\\ud800"
    assert len(shown(ValueError("👋\ud800" * 5_000))) == 2_000
