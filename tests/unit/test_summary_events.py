"""Summaries of summaries keep what their parts had found."""

from engramlog.engine.summaries import inheriting
from engramlog.engine.summarisers import Summary
from engramlog.schemas.summaries import Covered, SummaryCreated


def below(name: str, **lists: tuple[str, ...]) -> SummaryCreated:
    return SummaryCreated(
        summary_id=name,
        text=name,
        covers=Covered(first=0, last=1),
        at=2,
        tokens_before=10,
        tokens_after=5,
        model="extractive",
        prompt="extractive.v1",
        **lists,
    )


def test_a_summary_of_summaries_holds_the_lists_of_its_parts_once_in_order() -> None:
    own = Summary("text", ("a",), (), ("d",), (), "en", None, 0.5, "extractive", "extractive.v1")
    parts = [below("s1", facts=("a", "b"), preferences=("用户喜欢茶。",)), below("s2", facts=("c",), open_tasks=("t",))]
    merged = inheriting(own, parts)
    assert merged.facts == ("a", "b", "c")
    assert merged.preferences == ("用户喜欢茶。",)
    assert (merged.decisions, merged.open_tasks, merged.text) == (("d",), ("t",), "text")
    assert inheriting(own, []) == own
