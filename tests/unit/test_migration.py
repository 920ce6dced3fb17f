"""Migration without a broker: offsets are translated, partitions wait for each other."""

import json

from hypothesis import given
from hypothesis import strategies as st

from engramlog.engine.client.migration import Meeting, Places, everywhere, with_at
from engramlog.schemas.envelope import ScopeErasedEvent
from engramlog.schemas.keys import parse_key
from engramlog.schemas.records import ScopeErased


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=30), st.integers(0, 200))
def test_the_same_messages_lie_below_a_translated_offset(steps: list[tuple[int, int]], at: int) -> None:
    places, pairs, old, new = Places(), [], 0, 0
    for by_old, by_new in steps:
        old, new = old + by_old, new + by_new
        places.add(old, new)
        pairs.append((old, new))
    translated = places.translate(at)
    assert [o < at for o, _ in pairs] == [n < translated for _, n in pairs]
    assert places.next == (old + 1 if steps else 0)


def test_what_was_copied_twice_counts_where_it_came_last() -> None:
    places = Places()
    for old, new in [(0, 10), (1, 11), (2, 12), (1, 13)]:
        places.add(old, new)
    assert (list(places.old), list(places.new), places.next) == ([0, 1], [10, 13], 2)
    assert places.translate(2) == 14


def test_all_come_to_a_message_of_every_partition_before_it_is_copied() -> None:
    meeting = Meeting(frozenset({0, 1, 2}))
    assert meeting.ready() == [0, 1, 2]
    assert meeting.arrive(0, "e")
    assert meeting.next() is None
    assert meeting.ready() == [1, 2]
    assert meeting.arrive(2, "e")
    meeting.end(1)  # it does not hold it: whoever published it died in between
    assert meeting.next() == "e"
    assert meeting.ready() == [0, 2]
    assert not meeting.arrive(0, "e")
    assert meeting.next() is None


def test_two_that_were_written_at_once_do_not_block_each_other() -> None:
    meeting = Meeting(frozenset({0, 1}))
    assert meeting.arrive(0, "a")
    assert meeting.arrive(1, "b")
    assert meeting.next() is None
    (free,) = meeting.ready()
    other = "b" if free == 0 else "a"
    assert meeting.arrive(free, other)
    assert meeting.next() == other
    waiting = 1 - free
    assert meeting.arrive(waiting, "a" if other == "b" else "b")
    assert meeting.next() == ("a" if other == "b" else "b")
    assert meeting.ready() == [0, 1]


def test_entries_of_one_request_are_one() -> None:
    def entry(request_id: str | None, **more: str) -> ScopeErasedEvent:
        data = ScopeErased(scope="user" if more else "tenant", request_id=request_id)
        return ScopeErasedEvent(source="t", tenantid="acme", data=data, **more)

    def name(event: ScopeErasedEvent) -> str | None:
        return everywhere(parse_key(event.key()), event, event.key())

    assert name(entry("q1")) == name(entry("q1"))
    assert name(entry("q1")) != name(entry("q1", userid="ada"))
    assert name(entry(None)) != name(entry(None))
    assert name(entry("q1", agentid="helper", userid="ada")) is None


def test_only_the_offset_of_a_mark_changes() -> None:
    value = json.dumps({"id": "1", "unknown": "谢谢", "data": {"ids": ["a"], "at": 7}}).encode()
    assert json.loads(with_at(value, 3)) == {"id": "1", "unknown": "谢谢", "data": {"ids": ["a"], "at": 3}}
