"""Migration without a broker: offsets are translated, partitions wait for each other."""

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engramlog.engine.client.copying.ordering import Meeting, everywhere, is_watermark
from engramlog.engine.client.copying.places import Moved, Places
from engramlog.engine.client.copying.translating import is_of_nothing, speaks_of_offsets, translated
from engramlog.schemas.codec import derived_codec, records_codec, summaries_codec
from engramlog.schemas.derived import Derived, RecallChanged, RecallChangedEvent, RecordDerived
from engramlog.schemas.envelope import HistoryClearedEvent, RecordWritten, ScopeErasedEvent
from engramlog.schemas.keys import parse_key, watermark_key
from engramlog.schemas.records import HistoryCleared, MemoryRecord, ScopeErased
from engramlog.schemas.summaries import Covered, SummaryCreated, SummaryCreatedEvent


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=30), st.integers(0, 200))
def test_the_same_messages_lie_below_a_translated_offset(steps: list[tuple[int, int]], at: int) -> None:
    places, pairs, old, new = Places(), [], 0, 0
    for by_old, by_new in steps:
        old, new = old + by_old, new + by_new
        places.add(old, new)
        pairs.append((old, new))
    moved = places.below(at)
    assert [o < at for o, _ in pairs] == [n < moved for _, n in pairs]
    assert [o <= at for o, _ in pairs] == [n <= places.at(at) and o <= at for o, n in pairs]
    assert [o >= at for o, _ in pairs] == [n >= places.since(at) for _, n in pairs]
    assert places.find(at) == dict(pairs).get(at)
    assert places.first_from(at) == min((n for o, n in pairs if o >= at), default=None)
    assert places.next == (old + 1 if steps else 0)


def test_what_was_copied_twice_counts_where_it_came_last() -> None:
    places = Places()
    for old, new in [(0, 10), (1, 11), (2, 12), (1, 13)]:
        places.add(old, new)
    assert (list(places.old), list(places.new), places.next) == ([0, 1], [10, 13], 2)
    assert places.below(2) == 14


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


THEN = datetime(2026, 3, 1, tzinfo=UTC)
ADDRESS: dict[str, Any] = {"source": "t", "tenantid": "acme", "agentid": "小助手", "time": THEN}


def moved() -> Moved:
    """Old partition 0 lies in new partition 1: offsets 2, 4, 6 at 10, 11, 12; an erasure of all at 5, which is 3."""
    found = Moved(2)
    for old, new in [(2, 10), (4, 11), (6, 12)]:
        found.of(0, 1).add(old, new)
    found.everywhere["event acme//~e"].old |= {0: 5}
    found.everywhere["event acme//~e"].new |= {0: 7, 1: 3}
    return found


def derived(offset: int) -> RecordDerived:
    data = Derived(
        record_id="r", offset=offset, turn=0, role="user", timestamp=THEN, importance=0.5, deriver="rules.v1"
    )
    return RecordDerived(id="d", data=data, **ADDRESS)


def changed(event: Any, codec: Any) -> Any:
    return json.loads(translated(event, codec.encode(event), (0, 1), moved(), codec=codec))["data"]


def test_a_mark_keeps_everything_but_its_offset() -> None:
    event = HistoryClearedEvent(id="m", data=HistoryCleared(at=5), **ADDRESS)
    assert speaks_of_offsets(event)
    value = records_codec().encode(event)
    unknown = json.dumps(json.loads(value) | {"unknown": "谢谢"}).encode()
    found = json.loads(translated(event, unknown, (0, 1), moved(), codec=records_codec()))
    assert found == json.loads(unknown) | {"data": {"at": 12}}
    record = RecordWritten.of(MemoryRecord(role="user"), source="t", tenant="acme", agent="a")
    assert not speaks_of_offsets(record)


def test_a_derivation_says_where_its_record_lies_now() -> None:
    assert changed(derived(4), derived_codec())["offset"] == 11
    assert not is_of_nothing(derived(4), (0, 1), moved())
    assert is_of_nothing(derived(3), (0, 1), moved())


def test_a_change_of_recall_touches_the_same_records() -> None:
    own = RecallChangedEvent(id="m", data=RecallChanged(cause="removed", before=5, ids=("r",)), **ADDRESS)
    assert changed(own, derived_codec())["before"] == 12
    of_all = RecallChangedEvent(
        id="e", data=RecallChanged(cause="erased", before=5, scope="tenant"), **{**ADDRESS, "agentid": None}
    )
    assert changed(of_all, derived_codec())["before"] == 3


def test_a_summary_covers_the_same_records() -> None:
    def summary(first: int, last: int, at: int) -> SummaryCreatedEvent:
        covers = Covered(record_ids=("r",), first=first, last=last)
        more = {"tokens_before": 9, "tokens_after": 1, "model": "m", "prompt": "p"}
        return SummaryCreatedEvent(
            id="s", data=SummaryCreated(summary_id="s", text="谢谢", covers=covers, at=at, **more), **ADDRESS
        )

    found = changed(summary(2, 4, 6), summaries_codec())
    assert (found["covers"]["first"], found["covers"]["last"], found["at"]) == (10, 11, 12)
    gaps = changed(summary(1, 5, 7), summaries_codec())  # compaction took what lay at 1, 5 and 7
    assert (gaps["covers"]["first"], gaps["covers"]["last"], gaps["at"]) == (10, 11, 13)


def test_a_new_partition_is_passed_as_far_as_all_that_lies_in_it_was_passed() -> None:
    places = moved()
    places.of(1, 1).add(0, 14)
    assert places.passed({0: 7, 1: 1}, 1, end=15) == 15
    assert places.passed({0: 6, 1: 1}, 1, end=15) == 12
    assert places.passed({0: 7}, 1, end=15) == 14
    assert places.passed({0: 5, 1: 1}, 1, end=15) == 3
    assert places.passed({0: 7, 1: 1}, 0, end=8) == 8
    assert places.passed({0: 5, 1: 1}, 0, end=8) == 7


def test_a_watermark_is_one_partitions_own() -> None:
    key = parse_key(watermark_key(3))
    assert is_watermark(key)
    assert everywhere(key, None, watermark_key(3)) is None
