"""Where a talk is cut for summaries: what holds for any talk, and what is expected of some."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engramlog.engine.cutting import CutPolicy, cuts, due_of, rolled_up
from engramlog.engine.history.due import Due
from engramlog.engine.history.turns import Turn
from engramlog.schemas.summaries import Trigger

LEAST = 40
ADDRESS = ("acme", "bot", 's/:|"()-会话', "ada")
WHOLE: tuple[Trigger, ...] = ("idled", "ended", "request")
POLICY = CutPolicy(threshold_tokens=400, keep_tokens=200)
DUAL = CutPolicy(threshold_tokens=2_000, keep_tokens=1_000, messages=20, batch=4)


def turn(n: int, role: str = "user", tokens: int = 50, **more: Any) -> Turn:
    tool = role in {"tool", "function"} or bool(more.get("calls"))
    kept = more.pop("kept", role in {"system", "developer"})
    return Turn(f"记录{n}", n, 1_000 * n, role, tool, kept, tokens, **more)


def talk(*turns: tuple[str, int]) -> list[Turn]:
    return [turn(n, role, tokens) for n, (role, tokens) in enumerate(turns)]


def dialogue(messages: int, tokens: int = 50) -> list[Turn]:
    return [turn(n, ("user", "assistant")[n % 2], tokens) for n in range(messages)]


def places(parts: Sequence[Sequence[Turn]]) -> list[list[int]]:
    return [[one.position for one in part] for part in parts]


@st.composite
def talks(draw: st.DrawFn) -> list[Turn]:
    """Any talk: calls, answered at once, later or never; results of nothing; instructions and pinned memories."""
    made: list[Turn] = []
    open_calls: list[str] = []
    for n in range(draw(st.integers(0, 40))):
        tokens = draw(st.sampled_from((0, 1, 5, 30, 60, 200, 1_000, 20_000)))
        kind = draw(
            st.sampled_from(("user", "user", "assistant", "assistant", "call", "result", "stray", "system", "core"))
        )
        if kind == "call":
            ids = tuple(f"c{n}.{i}" for i in range(draw(st.integers(1, 9))))
            open_calls += ids
            made.append(turn(n, "assistant", tokens, calls=ids))
        elif kind == "result" and open_calls:
            answered = open_calls.pop(draw(st.integers(0, len(open_calls) - 1)))
            made.append(turn(n, "tool", tokens, answers=answered))
        elif kind in {"result", "stray"}:
            made.append(turn(n, draw(st.sampled_from(("tool", "function"))), tokens))
        else:
            made.append(turn(n, "user" if kind == "core" else kind, tokens, kept=kind in {"system", "core"}))
    return made


policies = st.builds(
    CutPolicy,
    threshold_tokens=st.sampled_from((50, 400, 2_000)),
    keep_tokens=st.sampled_from((25, 200)),
    messages=st.sampled_from((None, 4, 20)),
    batch=st.integers(1, 8),
)
triggers = st.sampled_from(("tokens", *WHOLE))


@given(talks(), policies, triggers)
def test_what_holds_for_any_talk(turns: list[Turn], policy: CutPolicy, trigger: Trigger) -> None:
    parts = cuts(turns, policy, trigger)
    taken = [one for part in parts for one in part]
    assert taken == sorted(taken, key=lambda one: one.position)
    assert len({one.record_id for one in taken}) == len(taken)
    assert all(sum(one.tokens for one in part) >= LEAST for part in parts)
    assert not any(one.kept for one in taken)
    said = [one for one in turns if not one.kept]
    assert taken == said[: len(taken)]  # no holes
    newest = max((one.position for one in said if one.role == "user"), default=None)
    assert all(one.position < newest if newest is not None else one is not said[-1] for one in taken)
    assert cuts(turns, policy, trigger) == parts


@given(talks(), policies, triggers)
def test_calls_stay_with_their_results(turns: list[Turn], policy: CutPolicy, trigger: Trigger) -> None:
    parts = cuts(turns, policy, trigger)
    home = {one.record_id: n for n, part in enumerate(parts) for one in part}
    said = [one for one in turns if not one.kept]
    callers = {i: one for one in said for i in one.calls}
    for n, one in enumerate(said):
        if one.answers:
            assert home.get(one.record_id) == home.get(callers[one.answers].record_id)
        elif one.role in {"tool", "function"} and n and said[n - 1].tool:
            assert home.get(one.record_id) == home.get(said[n - 1].record_id)


def folded(turns: Sequence[Turn], policy: CutPolicy) -> Iterator[list[int]]:
    """Record by record: what is due is taken away at once."""
    pending: list[Turn] = []
    for one in turns:
        pending.append(one)
        for part in cuts(pending, policy, "tokens"):
            gone = {taken.record_id for taken in part}
            pending = [left for left in pending if left.record_id not in gone]
            yield [taken.position for taken in part]


@given(talks(), policies)
def test_no_part_is_left_over_after_each_record(turns: list[Turn], policy: CutPolicy) -> None:
    """Whatever is pending after a record is not due: looking once more, or later, finds nothing."""
    pending: list[Turn] = []
    for one in turns:
        pending.append(one)
        gone = {taken.record_id for part in cuts(pending, policy, "tokens") for taken in part}
        pending = [left for left in pending if left.record_id not in gone]
        assert cuts(pending, policy, "tokens") == []


@pytest.mark.parametrize("trigger", WHOLE)
@given(turns=talks(), policy=policies)
@example(turns=[turn(0, "tool", 60), turn(1, "tool", 0)], policy=CutPolicy(50, 25))
def test_at_an_end_all_that_may_go_goes(trigger: Trigger, turns: list[Turn], policy: CutPolicy) -> None:
    taken = {one.record_id for part in cuts(turns, policy, trigger) for one in part}
    left = [one for one in turns if one.record_id not in taken]
    assert cuts(left, policy, trigger) == []
    said = [one for one in left if not one.kept]
    users = [n for n, one in enumerate(said) if one.role == "user"]
    free = said[: users[-1]] if users else said[:-1]
    start = len(free)
    while 0 < start < len(said) and said[start].role in {"tool", "function"}:  # results go with what they answer
        start -= 1
    # What is left is next to nothing, or it waits for results.
    assert sum(one.tokens for one in free[:start]) < LEAST or any(one.calls for one in free[:start])


def test_more_tokens_than_the_threshold_make_the_oldest_part_due() -> None:
    assert cuts(dialogue(8), POLICY, "tokens") == []  # 400 tokens are not more
    assert places(cuts(dialogue(9), POLICY, "tokens")) == [[0, 1, 2, 3, 4]]  # 200 stay
    assert list(folded(dialogue(20), POLICY)) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14]]


def test_of_21_messages_the_oldest_4_are_due() -> None:
    assert cuts(dialogue(20), DUAL, "tokens") == []
    assert places(cuts(dialogue(21), DUAL, "tokens")) == [[0, 1, 2, 3]]
    assert list(folded(dialogue(29), DUAL)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_the_head_does_not_count_as_a_message() -> None:
    assert cuts([turn(99, "system"), *dialogue(20)], DUAL, "tokens") == []
    assert places(cuts([turn(99, "system"), *dialogue(21)], DUAL, "tokens")) == [[0, 1, 2, 3]]


def test_of_next_to_nothing_there_is_no_summary() -> None:
    assert cuts(dialogue(30, tokens=1), DUAL, "tokens") == []
    assert places(cuts(dialogue(30, tokens=6), DUAL, "tokens")) == [list(range(7)), list(range(7, 14))]
    for trigger in WHOLE:
        assert cuts(dialogue(10, tokens=4), DUAL, trigger) == []


@pytest.mark.parametrize("trigger", WHOLE)
def test_what_goes_at_an_end_goes_in_parts_of_the_threshold(trigger: Trigger) -> None:
    assert places(cuts(dialogue(21), POLICY, trigger)) == [list(range(8)), list(range(8, 16)), [16, 17, 18, 19]]
    assert places(cuts(dialogue(4), POLICY, trigger)) == [[0, 1]]
    assert cuts(dialogue(1), POLICY, trigger) == []
    assert cuts([], POLICY, trigger) == []


def test_without_a_user_only_the_newest_turn_stays() -> None:
    turns = talk(*[("assistant", 50)] * 4)
    assert places(cuts(turns, POLICY, "ended")) == [[0, 1, 2]]


def test_one_giant_turn_is_a_part_of_its_own() -> None:
    turns = talk(("user", 20_000), ("assistant", 50), ("user", 50))
    assert places(cuts(turns, POLICY, "tokens")) == [[0]]
    assert places(cuts(turns, POLICY, "ended")) == [[0], [1]]


def test_a_giant_newest_message_stays() -> None:
    turns = talk(("user", 60), ("assistant", 60), ("user", 20_000), ("assistant", 60))
    assert places(cuts(turns, POLICY, "tokens")) == [[0, 1]]


def test_what_follows_the_newest_user_message_stays_however_much_it_is() -> None:
    turns = talk(("user", 60), *[("assistant", 500)] * 9)
    assert cuts(turns, POLICY, "tokens") == []


@pytest.mark.parametrize("cut_at", range(1, 10))
def test_nine_parallel_calls_stay_with_their_results(cut_at: int) -> None:
    ids = tuple(f"c{i}" for i in range(9))
    results = [turn(3 + i, "tool", 60, answers=answered) for i, answered in enumerate(ids)]
    turns = [turn(0), turn(1, "assistant"), turn(2, "assistant", 60, calls=ids), *results]
    turns += [turn(12, "user"), turn(13, "assistant"), turn(14, "user")]
    policy = replace(POLICY, threshold_tokens=100 + 60 * cut_at, keep_tokens=50)
    parts = cuts(turns, policy, "request")
    assert [one for part in places(parts) for one in part] == list(range(14))
    assert next(part for part in places(parts) if 2 in part)[-9:] == list(range(3, 12))


def test_a_result_that_comes_after_the_next_question_keeps_its_call() -> None:
    turns = [turn(0), turn(1, "assistant"), turn(2, "assistant", calls=("c",)), turn(3), turn(4, "tool", answers="c")]
    assert places(cuts(turns, POLICY, "request")) == [[0, 1]]
    assert places(cuts(turns[:4], POLICY, "request")) == [[0, 1]]  # it may still come
    turns += [turn(5, "assistant"), turn(6)]
    assert places(cuts(turns, POLICY, "request")) == [[0, 1, 2, 3, 4, 5]]


def test_a_call_that_nobody_answers_holds_nothing_back_for_long() -> None:
    turns = [turn(0), turn(1, "assistant", calls=("c",)), turn(2), turn(3, "assistant"), turn(4)]
    assert places(cuts(turns, POLICY, "request")) == [[0, 1, 2, 3]]


def test_results_without_ids_go_with_the_call_before_them() -> None:
    turns = [turn(0), turn(1, "assistant", 400, calls=("",)), turn(2, "function"), turn(3)]
    assert places(cuts(turns, POLICY, "request")) == [[0], [1, 2]]


def test_kept_turns_are_passed_over() -> None:
    turns = dialogue(9)
    turns[2] = replace(turns[2], kept=True)
    turns.append(turn(9))
    assert places(cuts(turns, POLICY, "tokens")) == [[0, 1, 3, 4, 5]]


def test_an_id_is_a_function_of_what_is_covered() -> None:
    part = dialogue(3)
    made = due_of(ADDRESS, part, partition=2, at=17, trigger="tokens")
    assert made == due_of(ADDRESS, part, partition=2, at=17, trigger="tokens")
    assert (made.first, made.last, made.tokens, made.level, made.reason) == (0, 2, 150, 1, "new")
    assert made.record_ids == ("记录0", "记录1", "记录2")
    others = [
        due_of(ADDRESS, part[:2], partition=2, at=17, trigger="tokens"),
        due_of((*ADDRESS[:3], ""), part, partition=2, at=17, trigger="tokens"),
        due_of((*ADDRESS[:2], "s", "ada"), part, partition=2, at=17, trigger="tokens"),
        due_of(("acme-corp", *ADDRESS[1:]), part, partition=2, at=17, trigger="tokens"),
    ]
    assert len({made.summary_id, *(other.summary_id for other in others)}) == 5


def active(n: int, level: int = 1, tokens: int = 100) -> Due:
    part = [turn(10 * n + i) for i in range(3)]
    due = due_of(ADDRESS, part, partition=2, at=10 * n + 9, trigger="tokens")
    return replace(due, level=level, summary_id=f"s{n}", made_tokens=tokens)


ROLLING = CutPolicy(budget_tokens=500, window_ratio=0.6)


def test_summaries_within_their_share_stay() -> None:
    assert rolled_up([active(n) for n in range(3)], ROLLING) is None
    assert rolled_up([], ROLLING) is None


def test_summaries_above_their_share_are_rolled_up_the_older_half_of_the_lowest_level() -> None:
    made = rolled_up([active(n) for n in range(5)], ROLLING)
    assert made is not None
    assert (made.level, made.summary_ids, made.replaces) == (2, ("s0", "s1"), ("s0", "s1"))
    assert (made.first, made.last, made.at, made.tokens) == (0, 12, 19, 200)
    assert made.record_ids == tuple(f"记录{n}" for n in (0, 1, 2, 10, 11, 12))
    assert (made.reason, made.trigger) == ("rolled_up", "rolled_up")
    mixed = rolled_up([active(0, level=2), active(1, level=2), *(active(n) for n in range(2, 7))], ROLLING)
    assert mixed is not None
    assert (mixed.level, mixed.summary_ids) == (2, ("s2", "s3"))


def test_one_summary_of_each_level_is_rolled_up_no_further() -> None:
    assert rolled_up([active(0, level=3, tokens=900), active(1, level=2), active(2)], ROLLING) is None


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 400)), max_size=12))
def test_rolling_up_comes_to_an_end(levels: list[tuple[int, int]]) -> None:
    standing = [active(n, level, tokens) for n, (level, tokens) in enumerate(levels)]
    for _ in range(40):
        made = rolled_up(standing, ROLLING)
        if made is None:
            return
        assert len(made.summary_ids) >= 2
        assert {one.level for one in standing if one.summary_id in made.summary_ids} == {made.level - 1}
        standing = [one for one in standing if one.summary_id not in made.summary_ids]
        standing.append(replace(made, made_tokens=made.tokens // 2))
        standing.sort(key=lambda one: one.first)
    pytest.fail("it goes on for ever")
