"""``engramlog recall``, ``similar`` and ``subjects`` without a broker: what they ask, and how answers are shown."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, get_args

import click
import pytest
from click.testing import CliRunner, Result

from engramlog.engine import client as clients
from engramlog.engine.cli import asking, recall_options
from engramlog.engine.cli.recall_options import make_filter
from engramlog.engine.cli.root import cli
from engramlog.engine.client import MemoryClient, Position, Recall, RecallFilter, Scope, Seen, TopicList
from engramlog.engine.client.recalling import Expand
from engramlog.schemas import recalls, records
from engramlog.schemas.asking import AsOf
from engramlog.schemas.errors import DeadlineExceeded, RequestRefused
from engramlog.schemas.queries import Invalidation, ScorePart, StoredRecord, TopicCount
from tests.commands import own_logging

AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
END = Position("memory.records", 3, 41)
SEEN = Seen((END,), stale=False)


def hit(record_id: str, content: str, **more: Any) -> recalls.RecallHit:
    said = records.MemoryRecord(record_id=record_id, role="user", role_name="王芳", content=content, timestamp=AT)
    stored = StoredRecord(
        record=said, session="选茶", user="ada", offset=7, recorded=AT, invalidated=more.pop("invalidated", None)
    )
    return recalls.RecallHit(stored=stored, **{"score": 1.005, **more})


CAT = hit(
    "r1",
    "I am allergic to cats\x1b[31m",
    parts=(
        ScorePart(name="semantic", value=0.75, weight=1.0),
        ScorePart(name="importance", value=0.9, weight=0.2),
        ScorePart(name="recency", value=0.75, weight=0.1),
    ),
    relevance=0.75,
    relevance_parts=(ScorePart(name="dense", value=1.25, weight=0.6), ScorePart(name="words", value=2.5, weight=0.4)),
    similarity=0.8312,
    words=("allerg", "cat"),
    topic="pets [red]",
    importance=0.9,
    conflicts=("r2", "elsewhere"),
)
KEEPS = hit("r2", "我养了一只猫 🐈", score=0.8, conflicts=("r1",))
OLD = hit(
    "r3", "I like tea", score=-0.25, superseded_by="r9", invalidated=Invalidation(offset=9, reason="", replaced_by="r9")
)
FOUND = Recall((CAT, KEEPS, OLD), None, (), AT, 0, SEEN)
TOPICS = TopicList((TopicCount(topic="选茶", records=1200, sessions=2, first=AT, last=AT),), truncated=True, seen=SEEN)


class Asked:
    """In the place of the client: keeps what it is asked, and answers what it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.answers: dict[str, Any] = {"recall": FOUND, "similar": FOUND, "topics": TOPICS}

    def __call__(self, *_: Any, **__: Any) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*arguments: Any, **named: Any) -> Any:
            getattr(MemoryClient, name)  # there is such a method
            self.calls.append((name, arguments, named))
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    async def log_end(*_: Any) -> list[Position]:
        return [END]

    fake = Asked()
    monkeypatch.setattr(clients, "MemoryClient", fake)
    monkeypatch.setattr(asking, "_log_end", log_end)
    with own_logging():
        yield fake


def run(*arguments: str, code: int = 0, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(cli, arguments, input=stdin)
    assert result.exit_code == code, result.stderr or result.exception
    return result


def test_recall_asks_with_the_presets_weights_and_waits_for_the_logs_end(asked: Asked) -> None:
    run("recall", "cats?", "--tenant", "acme", "--agent", 'a/:|"()-猫', "--session", "s1", "--user", "ada")
    ((name, (scope, text), named),) = asked.calls
    assert (name, text) == ("recall", "cats?")
    assert scope == Scope("acme", 'a/:|"()-猫', "s1", "ada")
    assert named.pop("filter") == RecallFilter()
    assert named.pop("min_positions") == [END]
    assert (named.pop("preset"), named.pop("expand")) == ("assistant", "rules")
    assert set(named.values()) == {None}


def test_without_waiting_nothing_is_waited_for(asked: Asked) -> None:
    for command in (["recall", "x"], ["similar", "x"], ["subjects"]):
        run(*command, "--no-wait", "--all-users")
    assert [named["min_positions"] for _, _, named in asked.calls] == [[], [], []]
    assert {arguments[0].users for _, arguments, _ in asked.calls} == {"all"}


def test_every_option_reaches_the_client(asked: Asked) -> None:
    run(
        *("recall", "-", "--preset", "coding", "--limit", "7", "--candidates", "99", "--semantic", "1.5"),
        *("--importance", "0.4", "--recency", "0", "--half-life-days", "2.5", "--diversity", "0.3", "--expand", "off"),
        *("--now", "2026-03-01T20:30:00+08:00", "--sessions", "s1", "--sessions", "选茶", "--layer", "core"),
        *("--kind", "rule", "--kind", "fact", "--tag", "快递", "--all-tags", "a", "--all-tags", "b", "--topic", "茶"),
        *("--role", "assistant", "--origin", "dialogue", "--since", "2026-03-01T00:00:00Z"),
        *("--until", "2026-03-02T00:00:00Z", "--min-importance", "0.5", "--min-confidence", "1"),
        *("--meta", "repo.branch=main", "--meta", "repo.branch=dev", "--meta", "n:=3", "--meta", "done:=true"),
        *("--meta", "url=https://x.example/?a=b", "--with-invalidated", "--with-expired"),
        stdin="What did we\nagree on? 👋\n",
    )
    ((_, (_, text), named),) = asked.calls
    assert text == "What did we\nagree on? 👋"
    assert named.pop("filter") == RecallFilter(
        sessions=("s1", "选茶"),
        layers=("core",),
        kinds=("rule", "fact"),
        tags=("快递",),
        all_tags=("a", "b"),
        topics=("茶",),
        roles=("assistant",),
        origins=("dialogue",),
        happened_from=datetime(2026, 3, 1, tzinfo=UTC),
        happened_until=datetime(2026, 3, 2, tzinfo=UTC),
        min_importance=0.5,
        min_confidence=1.0,
        metadata={"repo.branch": ("main", "dev"), "n": 3, "done": True, "url": "https://x.example/?a=b"},
        invalidated=True,
        expired=True,
    )
    assert named == {
        "preset": "coding",
        "limit": 7,
        "candidates": 99,
        "semantic": 1.5,
        "importance": 0.4,
        "recency": 0.0,
        "half_life_days": 2.5,
        "diversity": 0.3,
        "expand": "off",
        "now": AT,
        "as_of": None,
        "min_positions": [END],
    }


def test_recall_similar_and_subjects_are_asked_as_of_a_point_in_the_past(asked: Asked) -> None:
    run("recall", "猫", "--as-of", "1200")
    run("similar", "猫", "--as-of", "2026-03-01T12:30:00Z")
    run("subjects", "--as-of-happened", "2026-03-01T12:30:00Z")
    assert [named["as_of"] for _, _, named in asked.calls] == [
        AsOf(offset=1200),
        AsOf(recorded=AT),
        AsOf(happened=AT),
    ]
    assert "no time" in run("recall", "猫", "--as-of", "yesterday", code=2).stderr


def test_similar_and_subjects_ask_too(asked: Asked) -> None:
    run("similar", "宠物", "--limit", "9", "--min-similarity", "-0.5", "--kind", "fact")
    run("subjects", "--limit", "5", "--session", "s1")
    (_, _, near), (name, (scope,), listed) = asked.calls
    assert (near["limit"], near["min_similarity"], near["filter"].kinds) == (9, -0.5, ("fact",))
    assert (name, scope.session, listed["limit"]) == ("topics", "s1", 5)


def test_people_see_what_was_found_and_what_contradicts_what(asked: Asked) -> None:
    shown = run("recall", "cats [bold]?", "--user", "ada").stdout
    assert "default / default (user ada): 3 memories for “cats [bold]?”" in shown
    assert "⚠ contradicts #2, elsewhere · I am allergic to cats\ufffd[31m" in shown
    assert "⚠ contradicts #1 · 我养了一只猫 🐈" in shown
    assert "no longer true, replaced by r9 · I like tea" in shown
    assert "pets [red]" in shown
    assert "user (王芳)" in shown
    assert "\x1b" not in shown
    assert "weight" not in shown


def test_explain_shows_every_part_of_every_score(asked: Asked) -> None:
    shown = run("recall", "cats?", "--explain").stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    for line in (
        "semantic 0.750 × 1 = +0.750",
        "└ dense 1.250 × 0.6 +0.750",
        "└ words 2.500 × 0.4 +1.000",
        "importance 0.900 × 0.2 = +0.180",
        "recency 0.750 × 0.1 = +0.075",
        "score +1.005",
        "score -0.250",
        "words: allerg, cat",
        "words: none of the question's",
        "cosine similarity 0.831; importance 0.90; topic pets [red]",
        "no vector was compared; importance 0.50; topic (none)",
        "⚠ contradicts #2, elsewhere",
    ):
        assert line in lines, (line, shown)


def test_programs_get_one_document_with_everything(asked: Asked) -> None:
    asked.answers["recall"] = Recall((CAT,), "cats and dogs?", ("no query embedding: slow",), AT, 3, SEEN)
    result = run("recall", "cats?", "--user", "ada", "--json")
    (line,) = result.stdout.splitlines()
    found = json.loads(line)
    assert found["scope"]["user"] == "ada"
    assert (found["text"], found["asked"], found["unread"]) == ("cats?", "cats and dogs?", 3)
    assert (found["stale"], found["positions"], found["degraded"]) == (
        False,
        ["memory.records/3@41"],
        ["no query embedding: slow"],
    )
    (first,) = found["hits"]
    assert sum(part["contribution"] for part in first["parts"]) == pytest.approx(first["score"])
    assert first["relevance_parts"][0] == {"name": "dense", "value": 1.25, "weight": 0.6, "contribution": 0.75}
    assert (first["similarity"], first["conflicts"], first["importance"]) == (0.8312, ["r2", "elsewhere"], 0.9)
    assert first["stored"]["record"]["record_id"] == "r1"
    assert "degraded: no query embedding: slow" in result.stderr


def test_people_are_told_what_the_question_became_and_what_is_left(asked: Asked) -> None:
    asked.answers["recall"] = Recall((CAT,), "大连天气怎么样", ("LLM is slow",), AT, 3, SEEN)
    result = run("recall", "那里天气怎么样")
    assert "1 memory for “那里天气怎么样” (asked as “大连天气怎么样”); 3 more did not fit" in result.stdout
    assert result.stderr == "degraded: LLM is slow\n"


@pytest.mark.parametrize("command", [["recall", "x"], ["similar", "x"], ["subjects"]], ids=lambda c: c[0])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_stale_answer_is_printed_and_said_to_be_stale(asked: Asked, command: list[str], *, as_json: bool) -> None:
    stale = Seen((), stale=True)
    nothing = Recall((), None, (), None, 0, stale)
    asked.answers = {"recall": nothing, "similar": nothing, "topics": TopicList((), truncated=False, seen=stale)}
    result = run(*command, *(["--json"] if as_json else []), code=3)
    assert "stale: what was published last may be missing" in result.stderr
    assert json.loads(result.stdout)["stale"] if as_json else "0 " in result.stdout


def test_subjects_shows_topics_with_counts_and_times(asked: Asked) -> None:
    shown = run("subjects").stdout
    assert "default / default (shared): 1 topic; there are more (--limit)" in shown
    assert "2026-03-01 12:30+00:00" in shown
    assert "1200" in shown
    (found,) = map(json.loads, run("subjects", "--json").stdout.splitlines())
    assert found["topics"][0] == {
        "topic": "选茶",
        "records": 1200,
        "sessions": 2,
        "first": "2026-03-01T12:30:00Z",
        "last": "2026-03-01T12:30:00Z",
    }
    assert found["truncated"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["recall"], "Missing argument 'TEXT'"),
        (["recall", "x", "--preset", "nobody"], "'nobody' is not one of 'assistant'"),
        (["recall", "x", "--limit", "0"], "--limit"),
        (["recall", "x", "--diversity", "1.5"], "0<=x<=1"),
        (["recall", "x", "--layer", "top"], "'core', 'working', 'long_term'"),
        (["recall", "x", "--since", "2026-03-01T00:00:00"], "has no offset"),
        (["recall", "x", "--since", "2026-03-02T00:00:00Z", "--until", "2026-03-01T00:00:00Z"], "later than --since"),
        (["recall", "x", "--meta", "project"], "write KEY=TEXT"),
        (["recall", "x", "--meta", "=p1"], "write KEY=TEXT"),
        (["recall", "x", "--meta", ":=1"], "write KEY=TEXT"),
        (["recall", "x", "--meta", "n:=1.5"], "a whole number, true, false"),
        (["recall", "x", "--meta", "n:=three"], "a whole number, true, false"),
        (["recall", "x", "--sessions", ""], "--sessions ''"),
        (["recall", "x", "--tag", "t" * 257], "--tag"),
        (["recall", "x", "--meta", f"{'k' * 257}=1"], "--meta"),
        (["similar", "x", "--min-similarity", "2"], "-1<=x<=1"),
        (["subjects", "--limit", "1001"], "1<=x<=1000"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_wrong_use_is_told_before_anything_is_asked(asked: Asked, arguments: list[str], says: str) -> None:
    assert says in run(*arguments, code=2).stderr
    assert not asked.calls


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestRefused("bad_request", "customer_service needs a user"), 2),
        (DeadlineExceeded("no answer to 'recall': is 'answer' running? (10 s)"), 3),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_the_engines_refusal_is_one_line(asked: Asked, error: Exception, code: int) -> None:
    asked.answers["recall"] = error
    result = run("recall", "x", code=code)
    assert result.stderr == f"engramlog: {error}\n"
    assert result.stdout == ""


def test_the_choices_are_those_of_the_schemas() -> None:
    assert get_args(recalls.PresetName) == recall_options.PRESETS
    assert get_args(Expand) == recall_options.EXPANSIONS
    assert get_args(records.Role) == recall_options.ROLES
    assert get_args(records.Layer) == recall_options.LAYERS
    assert get_args(records.Kind) == recall_options.KINDS
    assert get_args(records.Origin) == recall_options.ORIGINS


def test_every_field_of_the_filter_has_an_option() -> None:
    assert set(recall_options._FIELDS.values()) == set(RecallFilter.model_fields) - {"leave_out"}
    for command in (cli.commands["recall"], cli.commands["similar"]):
        assert {p.name for p in command.params} >= set(recall_options._FIELDS)


def test_no_options_are_no_filter() -> None:
    assert make_filter({}) == RecallFilter()
    with pytest.raises(click.UsageError, match="--meta"):
        make_filter({"metadata": {"": "x"}})
