"""``engramlog context``, ``summaries``, ``summarise`` and ``tail summaries`` without a broker."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import pytest
from click.testing import CliRunner, Result

from engramlog.engine import client as clients
from engramlog.engine.cli import asking
from engramlog.engine.cli.root import cli
from engramlog.engine.client import (
    Context,
    MemoryClient,
    Position,
    RecallPart,
    Scope,
    Seen,
    SummaryList,
    SummaryReceived,
)
from engramlog.schemas.asking import AsOf, Reached, positions_token
from engramlog.schemas.contexts import LeftOut, StoredSummary, Used
from engramlog.schemas.errors import RequestRefused
from engramlog.schemas.summaries import SummaryCreated, SummaryFailed
from tests.commands import own_logging

AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
END = Position("memory.records", 3, 41)
SEEN = Seen((END,), stale=False)
CONTEXT = Context(
    messages=(
        {"role": "system", "content": "You are brief.\x1b[31m"},
        {"role": "user", "content": [{"type": "text", "text": "这是什么?"}, {"type": "image_url", "image_url": {}}]},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "look", "arguments": '{"x":1}'}}]},
        {"role": "tool", "tool_call_id": "c", "content": "[red] 👋"},
    ),
    tokens=1_234,
    exact=False,
    used=(Used(section="head", items=1, tokens=8), Used(section="recent", items=3, tokens=1_226)),
    left_out=tuple(LeftOut(id=f"r{n}", section="recent", why="budget", tokens=900, score=0.5) for n in range(12)),
    left_out_total=40,
    recalled=("r9",),
    summaries=("z1",),
    degraded=("recall: slow",),
    now=AT,
    seen=SEEN,
)
SUMMARY = SummaryCreated.model_validate(
    {
        "summary_id": "z1",
        "text": "他们谈到了猫 🐈.\nTwo lines.",
        "covers": {"record_ids": ["r1"], "first": 1, "last": 7},
        "at": 9,
        "tokens_before": 1_090,
        "tokens_after": 60,
        "model": "archive",
        "prompt": "archive.v1",
        "topic": "猫",
        "replaces": ["z0"],
        "reason": "rolled_up",
        "level": 2,
    }
)
FAILED = SummaryFailed.model_validate(
    {
        "summary_id": "z2",
        "covers": {"record_ids": ["r1"], "first": 1, "last": 7},
        "code": "wrong_language",
        "error": "it speaks\nEnglish",
        "attempts": 3,
        "model": "m",
    }
)
LISTED = SummaryList(
    (StoredSummary(summary=SUMMARY, session="选茶", user="ada", active=False, recorded=AT, offset=4),),
    truncated=True,
    seen=SEEN,
)


def received(summary: SummaryCreated | SummaryFailed) -> SummaryReceived:
    return SummaryReceived(
        kind="created" if isinstance(summary, SummaryCreated) else "failed",
        summary=summary,
        tenant="acme",
        agent='a/:|"()-猫',
        session="s1",
        user="ada",
        position=Position("memory.summaries", 2, 7),
        recorded=AT,
        event_id=summary.summary_id,
    )


class Asked:
    """In the place of the client: keeps what it is asked, and answers what it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.answers: dict[str, Any] = {"context": CONTEXT, "list_summaries": LISTED, "summarise": END}
        self.stream = [received(SUMMARY), received(FAILED), received(SUMMARY)]
        self.acknowledged = 0

    def __call__(self, *_: Any, **__: Any) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    @asynccontextmanager
    async def summaries(self, **named: Any) -> AsyncIterator[Any]:
        self.calls.append(("summaries", (), named))
        yield self

    async def __aiter__(self) -> AsyncIterator[SummaryReceived]:
        for one in self.stream:
            yield one

    async def acknowledge(self) -> None:
        self.acknowledged += 1

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


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == code, result.stderr or result.exception
    return result


def test_a_context_is_asked_with_the_clients_defaults(asked: Asked) -> None:
    run("context", "--session", "s1", "--user", "ada")
    ((name, (scope,), named),) = asked.calls
    assert (name, scope) == ("context", Scope("default", "default", "s1", "ada"))
    assert named == {
        "budget_tokens": 4_000,
        "model": None,
        "window": None,
        "recall": RecallPart(),
        "current_topic": None,
        "summaries": True,
        "as_messages": False,
        "wait_for_summary": False,
        "keep_rate": 0.9,
        "now": None,
        "as_of": None,
        "min_positions": [END],
    }


def test_every_option_reaches_the_client(asked: Asked) -> None:
    run(
        *("context", "--budget", "900", "--model", "gpt-4o", "--window", "0", "--topic", "猫", "--preset"),
        *("dual_source", "--recall-limit", "5", "--no-summaries", "--as-messages", "--wait-for-summary"),
        *("--keep-rate", "0.5", "--now", "2026-03-01T20:30:00+08:00", "--no-wait"),
    )
    run("context", "--no-recall")
    named, without = (named for _, _, named in asked.calls)
    assert named == {
        "budget_tokens": 900,
        "model": "gpt-4o",
        "window": 0,
        "recall": RecallPart(preset="dual_source", limit=5),
        "current_topic": "猫",
        "summaries": False,
        "as_messages": True,
        "wait_for_summary": True,
        "keep_rate": 0.5,
        "now": AT,
        "as_of": None,
        "min_positions": [],
    }
    assert without["recall"] is None


def test_a_context_is_shown_with_tokens_by_section_and_what_was_left_out(asked: Asked) -> None:
    result = run("context", "--budget", "4000")
    shown = result.stdout
    assert "4 messages, 1,234 of 4,000 tokens, counted as o200k_base" in shown
    assert "这是什么? [image_url]" in shown
    assert '→ look({"x":1})' in shown
    assert "[red] 👋" in shown
    assert "\x1b" not in shown
    assert [line.split() for line in shown.splitlines() if "1,226" in line] == [["recent", "3", "1,226"]]
    assert "left out, the first 10 of 40" in shown
    assert "it did not fit" in shown
    assert "r9" in shown
    assert "r10" not in shown
    assert result.stderr == "degraded: recall: slow\n"


def test_a_context_as_json_has_the_messages_as_they_are(asked: Asked) -> None:
    (line,) = run("context", "--json").stdout.splitlines()
    found = json.loads(line)
    assert found["messages"] == list(CONTEXT.messages)
    assert (found["tokens"], found["exact"], found["left_out_total"]) == (1_234, False, 40)
    assert found["used"][0] == {"section": "head", "items": 1, "tokens": 8}
    assert (found["recalled"], found["summaries"], found["stale"]) == (["r9"], ["z1"], False)


def test_a_budget_that_is_too_small_is_one_line(asked: Asked) -> None:
    asked.answers["context"] = RequestRefused("bad_request", "ask for at least 77")
    result = run("context", "--budget", "5", code=2)
    assert result.stderr == "engramlog: ask for at least 77 [bad_request]\n"


def test_summaries_are_listed(asked: Asked) -> None:
    shown = run("summaries", "--session", "s1").stdout
    assert "1 summary; there are older ones (--limit)" in shown
    assert "他们谈到了猫 🐈. Two lines." in shown
    assert "1,090 → 60" in shown
    (line,) = run("summaries", "--everything", "--level", "2", "--limit", "5", "--json").stdout.splitlines()
    assert json.loads(line)["summaries"][0]["summary"]["summary_id"] == "z1"
    assert [{k: named[k] for k in ("level", "active", "limit")} for _, _, named in asked.calls] == [
        {"level": None, "active": True, "limit": 100},
        {"level": 2, "active": False, "limit": 5},
    ]


def test_a_session_is_summarised_by_name(asked: Asked) -> None:
    assert "name it: --session" in run("summarise", code=2).stderr
    assert not asked.calls
    (line,) = run("summarise", "--session", "s1", "--request-id", "again", "--json").stdout.splitlines()
    assert json.loads(line)["event"] == {"topic": "memory.records", "partition": 3, "offset": 41}
    assert asked.calls[0][2] == {"request_id": "again"}


def test_summaries_are_tailed_as_they_come(asked: Asked) -> None:
    first, second, third = run("tail", "summaries").stdout.splitlines()
    assert first == third
    assert first == (
        'memory.summaries/2@7 2026-03-01 12:30:00.000+00:00 acme / a/:|"()-猫 / s1 [ada] level 2 rolled_up'
        ", replaces 1, 1,090 → 60 tokens: 他们谈到了猫 🐈. Two lines."
    )
    assert "FAILED wrong_language (attempt 3): it speaks English" in second
    assert asked.calls[0][2] == {
        "tenant": "default",
        "agent": None,
        "user": None,
        "session": None,
        "level": None,
        "active_only": True,
        "failures": False,
        "group": None,
        "start": "now",
    }
    assert asked.acknowledged == 0


def test_a_tail_ends_after_so_many_and_has_done_with_them(asked: Asked) -> None:
    result = run(
        *("tail", "summaries", "--tenant", "acme", "--agent", "h", "--session", "s", "--user", "u", "--level", "2"),
        *("--everything", "--failures", "--group", "g", "--from", "2026-03-01T20:30:00+08:00", "-n", "2", "--json"),
    )
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert (first["kind"], first["summary"]["text"], first["offset"]) == ("created", SUMMARY.text, 7)
    assert (second["kind"], second["summary"]["code"]) == ("failed", "wrong_language")
    assert asked.acknowledged == 1
    assert asked.calls[0][2] == {
        "tenant": "acme",
        "agent": "h",
        "user": "u",
        "session": "s",
        "level": 2,
        "active_only": False,
        "failures": True,
        "group": "g",
        "start": AT,
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["context", "--budget", "0"], "1<=x"),
        (["context", "--keep-rate", "2"], "0<=x<=1"),
        (["tail", "summaries", "--from", "yesterday"], "is no time"),
        (["summaries", "--level", "0"], "1<=x<=16"),
    ],
)
def test_wrong_use_is_told_before_anything_is_asked(asked: Asked, arguments: list[str], says: str) -> None:
    assert says in run(*arguments, code=2).stderr
    assert not asked.calls


def test_contexts_and_summaries_are_asked_as_of_a_point_in_the_past(asked: Asked) -> None:
    token = positions_token((Reached(topic="memory.records", partition=3, offset=40),))
    run("context", "--session", "s1", "--as-of", token)
    run("context", "--session", "s1", "--as-of-happened", "2026-03-01T20:30:00+08:00")
    run("summaries", "--session", "s1", "--as-of", "2026-03-01T12:30:00Z")
    assert [named["as_of"] for _, _, named in asked.calls] == [
        AsOf(positions=(Reached(topic="memory.records", partition=3, offset=40),)),
        AsOf(happened=AT),
        AsOf(recorded=AT),
    ]
    assert "damaged" in run("context", "--as-of", token[:-3], code=2).stderr
    assert (
        "--as-of-happened" in run("context", "--as-of", "3", "--as-of-happened", "2026-03-01T00:00:00Z", code=2).stderr
    )
