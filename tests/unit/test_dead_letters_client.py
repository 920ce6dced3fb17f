"""Dead letters as operators handle them, without a broker."""

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engramlog.engine.cli.replaying import safe
from engramlog.engine.client.dead_letters import Assembly, Letter, Refusal, Wanted, once_each, plan
from engramlog.engine.client.publisher import Outgoing
from engramlog.engine.client.reader import Message
from engramlog.schemas.codec import MAX_EVENT_BYTES
from engramlog.schemas.dead_letters import HEADER, DeadLetter, messages
from engramlog.schemas.keys import partition_for
from engramlog.schemas.scope import Position

NOW = datetime(2026, 3, 1, tzinfo=UTC)
RECORDS, INBOX = "memory.records", "memory.inbox"


def about(**more: object) -> DeadLetter:
    fields = {"reason": "not_json", "error": "no", "consumer": "store", "died": NOW, "topic": RECORDS, "partition": 1,
              "offset": 7, "recorded_ms": 1, **more}  # fmt: skip
    return DeadLetter.model_validate(fields)


def written(letter: DeadLetter, value: bytes | None, first: int = 0) -> list[Message]:
    return [
        Message(
            Position("memory.dead-letters", 0, first + n),
            NOW,
            letter.origin(),
            chunk or b"",
            ((HEADER, part.model_dump_json(exclude_none=True).encode()),),
        )
        for n, (chunk, part) in enumerate(messages(letter, value))
    ]


def letter(value: bytes | None = b"{", **more: object) -> Letter:
    assembly = Assembly()
    (made,) = [found for message in written(about(**more), value) if (found := assembly.add(message))]
    return made


def test_pieces_are_put_together_whoever_died_in_between() -> None:
    value = bytes(range(256)) * 8_000
    pieces = written(about(), value)
    assert len(pieces) == 3
    assembly = Assembly()
    told = [assembly.add(message) for message in (pieces[0], *written(about(), value, 10), pieces[1])]
    assert [found is not None for found in told] == [False, False, False, True, False]
    made = told[3]
    assert made is not None
    assert (made.size, [p.offset for p in made.places], assembly.incomplete) == (len(value), [0, 11, 12], 0)
    lonely = Assembly()
    lonely.add(pieces[2])
    assert lonely.incomplete == 1


@pytest.mark.parametrize("header", [None, b"", b"{}", b"\xff", about(key="%%%").model_dump_json().encode()])
def test_what_is_no_dead_letter_is_counted(header: bytes | None) -> None:
    assembly = Assembly()
    headers = () if header is None else ((HEADER, header),)
    assert assembly.add(Message(Position("d", 0, 0), NOW, None, b"", headers)) is None
    assert assembly.unreadable == 1


def test_a_replay_goes_to_the_agents_partition_in_agent_topics_only() -> None:
    key = base64.b64encode(b"acme/helper/r1").decode()
    counts = {RECORDS: 5, INBOX: 5}

    def planned(made: Letter, value: bytes | None) -> Outgoing | Refusal:
        return plan(made, value, partitions=counts, agent_topics=[RECORDS])

    right = partition_for("acme", "helper", 5)
    moved = planned(letter(key=key, partition=(right + 1) % 5), b"{")
    assert moved == Outgoing(RECORDS, right, b"acme/helper/r1", b"{")
    assert planned(letter(None, key=key, topic=INBOX, partition=4), None) == Outgoing(INBOX, 4, b"acme/helper/r1", None)
    tenant = base64.b64encode(b"acme//~e1").decode()
    assert planned(letter(key=tenant, partition=3), b"{") == Outgoing(RECORDS, 3, b"acme//~e1", b"{")
    for refused in (letter(topic="x"), letter(partition=5), letter(key=key, key_bytes_left_out=1)):
        assert isinstance(planned(refused, b"{"), Refusal)
    assert isinstance(planned(letter(b"x" * (MAX_EVENT_BYTES * 2)), b""), Refusal)


def test_one_message_is_sent_once_in_the_order_of_origins() -> None:
    letters = [letter(offset=10), letter(offset=9, consumer="derive"), letter(offset=9), letter(partition=0)]
    assert [made.origin for made in once_each(letters)] == [f"{RECORDS}/{n}" for n in ("0/7", "1/9", "1/10")]


def test_a_letter_without_a_key_of_ours_is_nobodys() -> None:
    wanted = Wanted(tenant="acme")
    assert not wanted(letter())
    assert not wanted(letter(key=base64.b64encode(b"acme").decode()))
    assert wanted(letter(key=base64.b64encode(b"acme/helper/r1").decode()))
    assert not Wanted(tenant="acme", agent="x")(letter(key=base64.b64encode(b"acme/helper/r1").decode()))


@given(st.binary(max_size=50) | st.text(max_size=50))
def test_whatever_is_shown_is_printable(value: bytes | str) -> None:
    assert safe(value).isprintable()
    if isinstance(value, str) and value.isprintable():
        assert safe(value) == value
