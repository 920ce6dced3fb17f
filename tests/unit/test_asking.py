"""Points in the past: positions as a token, and the ways of naming one."""

import string
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from engramlog.engine.history.view import offset_of
from engramlog.schemas.asking import AsOf, PointInTime, Reached, point_of, positions_of, positions_token
from engramlog.schemas.errors import RequestRefused

RECORDS = "memory.records"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(topic: str, partition: int, offset: int) -> Reached:
    return Reached(topic=topic, partition=partition, offset=offset)


places = st.tuples(st.sampled_from((RECORDS, "memory.summaries", "memory.derived.g12")), st.integers(0, 2_000))
positions = st.dictionaries(places, st.integers(0, 2**62), max_size=40).map(
    lambda found: tuple(at(topic, partition, offset) for (topic, partition), offset in found.items())
)
TWELVE = tuple(
    at(topic, partition, 987_654_321 + 1_234_567 * partition**3)
    for topic in (RECORDS, "memory.derived.g1", "memory.summaries")
    for partition in range(12)
)


@given(positions)
def test_a_token_gives_back_its_positions_and_goes_through_a_url(given_positions: tuple[Reached, ...]) -> None:
    token = positions_token(given_positions)
    assert positions_of(f"  {token}\n") == tuple(sorted(given_positions, key=lambda p: (p.topic, p.partition)))
    assert token == positions_token(reversed(given_positions))
    assert {*token} <= {*string.ascii_letters, *string.digits, *"-_."}


def test_a_token_of_a_whole_engine_is_short() -> None:
    assert len(positions_token(TWELVE)) < 400


@given(st.data())
def test_a_damaged_token_is_refused(data: st.DataObject) -> None:
    token = positions_token(TWELVE)
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from(string.ascii_letters + string.digits + "-_ .👋"))
    damaged = token[:place] + other + token[place + 1 :]
    assume(damaged != token)
    with pytest.raises(RequestRefused):
        positions_of(damaged)


@pytest.mark.parametrize("cut", [-1, -7, 5, 2])
def test_a_token_that_is_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(RequestRefused, match="token"):
        positions_of(positions_token(TWELVE)[:cut])


@pytest.mark.parametrize("text", ["", "p1.", "p1.AAAA", "p2.abc", "x", "p1.🙂", "p1.eyJ9", "12"])
def test_what_is_no_token_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(RequestRefused, match=r"copy it again|status --token"):
        positions_of(text)


def test_a_partition_has_one_position() -> None:
    twice = (at(RECORDS, 0, 1), at(RECORDS, 0, 2))
    with pytest.raises(ValueError, match="twice"):
        positions_token(twice)
    with pytest.raises(ValidationError, match="twice"):
        AsOf(positions=twice)


@pytest.mark.parametrize(
    ("given_point", "meant"),
    [
        (None, None),
        (AsOf(happened=NOON), AsOf(happened=NOON)),
        (NOON, AsOf(recorded=NOON)),
        ("2026-03-01T20:00:00+08:00", AsOf(recorded=NOON.astimezone(timezone(timedelta(hours=8))))),
        ("2026-03-01T12:00:00Z", AsOf(recorded=NOON)),
        ("1200", AsOf(offset=1200)),
        (positions_token(TWELVE[:2]), AsOf(positions=TWELVE[:2])),
        (positions_token(()), AsOf(positions=())),
    ],
    ids=str,
)
def test_a_point_in_the_past_may_be_given_in_many_ways(given_point: PointInTime | None, meant: AsOf | None) -> None:
    assert point_of(given_point) == meant


@pytest.mark.parametrize(
    "given_point",
    [datetime(2026, 3, 1), "2026-03-01", "2026-03-01T12:00:00", "yesterday", "-1", "", "昨天", "1.5", "p1.zzz", "１２"],  # noqa: DTZ001
    ids=str,
)
def test_what_names_no_point_is_refused(given_point: PointInTime) -> None:
    with pytest.raises(RequestRefused) as refused:
        point_of(given_point)
    assert refused.value.code == "bad_request"


def test_of_positions_the_one_of_the_agents_partition_counts() -> None:
    point = AsOf(positions=(at("memory.summaries", 1, 5), at(RECORDS, 1, 7), at(RECORDS, 2, 2**70)))
    assert [offset_of(point, (RECORDS, partition)) for partition in (0, 1)] == [-1, 7]
    assert offset_of(point, (RECORDS, 2)) == 2**62
    assert offset_of(AsOf(positions=()), (RECORDS, 0)) == -1
    assert (offset_of(AsOf(offset=3), (RECORDS, 0)), offset_of(AsOf(recorded=NOON), (RECORDS, 0))) == (3, None)
    with pytest.raises(RequestRefused, match=r"other\.records.*not of memory\.records"):
        offset_of(AsOf(positions=(at("other.records", 0, 7),)), (RECORDS, 0))
