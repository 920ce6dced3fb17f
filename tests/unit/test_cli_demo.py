"""The demonstration's questions without a broker: which are asked, and how what is recalled is shown."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from engramlog.engine.cli import demonstration
from engramlog.engine.cli.comparing import Outcome
from engramlog.engine.cli.demonstration import Demonstration, _end_of
from engramlog.engine.cli.files import sample
from engramlog.engine.cli.questions import SAMPLE_QUESTIONS, Answered, Question, ask_all, questions_of
from engramlog.engine.cli.root import cli
from engramlog.engine.cli.sending import Sent
from engramlog.engine.cli.turns import Maker, Turn, Whose
from engramlog.engine.client import Recall, Scope, Seen
from engramlog.engine.terms import terms
from engramlog.schemas.queries import RecallHit, ScorePart, StoredRecord
from engramlog.schemas.records import MemoryRecord
from tests.commands import own_logging

AT = datetime(2026, 3, 1, tzinfo=UTC)
ANSWERS = ("kyoto-change-03", "billing-retry-11", "会员-20260313-05")
"""What answers the sample's questions."""
PARTS = (ScorePart(name="semantic", value=0.5, weight=1.0), ScorePart(name="recency", value=1.0, weight=0.1))
HIT = RecallHit(
    stored=StoredRecord(
        record=MemoryRecord(record_id="r1", role="user", content="别的快递总是摔", timestamp=AT), offset=3, recorded=AT
    ),
    score=0.6,
    parts=PARTS,
)


def turns_of_the_sample() -> list[Turn]:
    return [t for t in sample().turns(Maker(Whose(), now=AT)) if isinstance(t, Turn)]


def recalled(*hits: RecallHit, stale: bool = False, degraded: Sequence[str] = ()) -> Recall:
    return Recall(hits, None, tuple(degraded), AT, 0, Seen((), stale=stale))


def test_the_samples_questions_are_about_what_is_in_it() -> None:
    by_id = {turn.event.data.record_id: turn.event for turn in turns_of_the_sample()}
    assert len(SAMPLE_QUESTIONS) == len(ANSWERS)
    for question, answer in zip(SAMPLE_QUESTIONS, ANSWERS, strict=True):
        event = by_id[answer]
        assert (event.tenantid, event.agentid, event.userid) == (
            question.scope.tenant,
            question.scope.agent,
            question.scope.user,
        )
    assert any(any("\u4e00" <= c <= "\u9fff" for c in question.text) for question in SAMPLE_QUESTIONS)


def test_two_of_them_share_no_word_with_their_answer_as_they_claim() -> None:
    by_id = {turn.event.data.record_id: turn.event.data.content for turn in turns_of_the_sample()}
    for question, answer in zip(SAMPLE_QUESTIONS, ANSWERS, strict=True):
        shared = set(terms(question.text)) & set(terms(by_id[answer]))
        assert bool(shared) != question.remark.startswith("no word"), (question, shared)


def test_ones_own_questions_go_to_every_agent_for_all_users() -> None:
    asked = questions_of(turns_of_the_sample(), ["a?", "b?"])
    assert [(q.scope.agent, q.text) for q in asked] == [
        (agent, text) for text in ("a?", "b?") for agent in ("travel", "coder", "客服", "analyst")
    ]
    assert {q.scope.users for q in asked} == {"all"}
    assert questions_of([], ["a?"]) == []


async def test_they_are_asked_as_of_the_end_of_the_conversation() -> None:
    calls: list[tuple[Any, ...]] = []

    class Client:
        async def recall(self, scope: Scope, text: str, **named: Any) -> Recall:
            calls.append((scope, text, named))
            return recalled(HIT)

    turns = turns_of_the_sample()
    end = _end_of(turns)
    assert end == max(turn.event.data.timestamp for turn in turns)
    client: Any = Client()
    answered = await ask_all(client, SAMPLE_QUESTIONS, now=end, timeout_s=7.0)
    assert [a.question for a in answered] == list(SAMPLE_QUESTIONS)
    assert all(a.good and a.took_s >= 0 for a in answered)
    assert [text for _, text, _ in calls] == [q.text for q in SAMPLE_QUESTIONS]
    assert [named for _, _, named in calls] == [{"limit": 3, "now": end, "timeout_s": 7.0}] * len(calls)


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command with a demonstration that only answers its questions."""

    def run(found: Recall, *arguments: str) -> Result:
        async def demonstrate(
            turns: Sequence[Turn], questions: Sequence[Question], _folder: Path, _progress: Any
        ) -> Demonstration:
            return Demonstration(
                engine="0",
                broker="none",
                placed=[],
                sent=Sent(),
                outcome=Outcome(len(turns), len(turns), (), (), (), ()),
                dead_letters=0,
                windows=[],
                publish_s=0.0,
                read_s=0.0,
                answered=[Answered(question, found, 0.5) for question in questions],
            )

        monkeypatch.setattr(demonstration, "demonstrate", demonstrate)
        with own_logging():
            return CliRunner().invoke(cli, ["demo", *arguments])

    return run


def test_people_see_hits_with_their_score_parts(demo: Any) -> None:
    result = demo(recalled(HIT))
    assert result.exit_code == 0, result.stderr
    assert "Asked of northwind / coder (user ada): What is our convention for determinism? (no word of" in result.stdout
    assert "semantic + recency" in result.stdout
    assert "= +0.500 +0.100" in result.stdout
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines.count("recency 1.000 × 0.1 = +0.100") == 3
    assert (
        "questions 3 3 of them found something; the first waited for all to be indexed: 0.50 s, then 0.50, 0.50 s"
        in lines
    )


def test_programs_get_them_too(demo: Any) -> None:
    result = demo(recalled(HIT), "--json", "--ask", "猫？")
    found = json.loads(result.stdout)["questions"]
    assert [(q["scope"]["agent"], q["text"], q["seconds"]) for q in found] == [
        (agent, "猫？", 0.5) for agent in ("travel", "coder", "客服", "analyst")
    ]
    assert found[0]["hits"][0]["parts"][1] == {"name": "recency", "value": 1.0, "weight": 0.1, "contribution": 0.1}


@pytest.mark.parametrize(
    "found", [recalled(), recalled(HIT, stale=True), recalled(HIT, degraded=["no query embedding"])], ids=str
)
def test_a_question_that_finds_nothing_or_not_all_is_a_failure(demo: Any, found: Recall) -> None:
    assert demo(found).exit_code == 1


def test_data_of_ones_own_is_asked_only_what_one_asks(demo: Any, tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text('{"agent": "a", "role": "user", "content": "hello"}\n')
    assert json.loads(demo(recalled(), "--data", str(file), "--json").stdout)["questions"] == []
    (one,) = json.loads(demo(recalled(HIT), "--data", str(file), "--json", "--ask", "x").stdout)["questions"]
    assert one["scope"] == {"tenant": "default", "agent": "a", "session": None, "user": None, "users": "all"}
    assert json.loads(demo(recalled(), "--limit", "3", "--json").stdout)["questions"] == []
