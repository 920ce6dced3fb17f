"""CAMEL's memories and ours, side by side: what CAMEL does is stated as data, what we do is run.

Each case: CAMEL 0.2.90's result, ours, and, where they differ, why.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from engramlog.engine.context import pack
from engramlog.engine.contexts import Contexts
from engramlog.engine.history import History
from engramlog.schemas.contexts import ContextQuery, RecallPart
from engramlog.schemas.errors import RequestRefused
from engramlog.schemas.queries import AsOf, HistoryQuery
from engramlog.schemas.recalls import RecallAnswer, RecallQuery
from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.summaries import SummaryFailed, SummaryFailedEvent
from tests.contract.test_history_summaries import Book, summary
from tests.history_log import Log, contents, given, scope, window
from tests.unit.context_material import NOW, calling, hit, result, said, stored, talk

TALK = scope("s")
LONG = "many words about the same thing, over and over again. " * 20


async def roles(history: History, *of: str) -> Log:
    """A talk; each record's id and content is its number."""
    log = Log()
    for n, role in enumerate(of):
        log.says(f"r{n}", role=role, session="s")
    await given(history, log)
    return log


async def score_of_the_newest(history: History) -> Any:
    await roles(history, "user", "assistant", "user")
    return [round(c.score, 2) for c in (await window(history, TALK, keep_rate=0.9)).records]


async def system_is_first_and_does_not_decay(history: History) -> Any:
    await roles(history, "system", "user", "assistant")
    first = (await window(history, TALK, 1)).records[0]
    return first.record.role, first.score


async def developer_is_first_and_does_not_decay(history: History) -> Any:
    await roles(history, "developer", "user", "assistant")
    first = (await window(history, TALK, 1)).records[0]
    return first.record.role, first.score


async def negative_windows(history: History) -> Any:
    await roles(history, "user")
    try:
        HistoryQuery(window=-1)
    except ValueError:
        return "refused"
    return "taken"


async def window_shorter_than_the_history(history: History) -> Any:
    await roles(history, "user", "assistant", "user")
    answer = await window(history, TALK, 1)
    return [c.record.content for c in answer.records], answer.truncated


async def budget(history: History) -> Any:
    records = [said(f"r{n}", ("user", "assistant")[n % 2], LONG) for n in range(9)]
    answer = pack(talk(*records), ContextQuery(budget_tokens=500), now=NOW, tokens={})
    return "kept" if answer.tokens <= 500 else "exceeded"


async def budget_that_nothing_fits_in(history: History) -> Any:
    try:
        pack(talk(said("r0", "user", LONG)), ContextQuery(budget_tokens=20), now=NOW, tokens={})
    except RequestRefused as error:
        return "at least" in error.message
    return "exceeded"


async def recalled_that_stands_in_the_history(history: History) -> Any:
    head, question = said("h", "system", "You are kind."), said("q", "user", "Where is my key?")
    again = [hit(head), hit(said("a", "assistant", "In the drawer.")), hit(said("old", "user", "I have a blue key."))]
    material = talk(said("a", "assistant", "In the drawer."), question, head=stored(head), recalled=again)
    answer = pack(material, ContextQuery(), now=NOW, tokens={})
    return answer.recalled, str(answer.messages).count("You are kind."), str(answer.messages).count("In the drawer.")


async def order_of_recalled(history: History) -> Any:
    hits = [hit(said("best", "user", "one"), 0.9), hit(said("next", "user", "two"), 0.5)]
    answer = pack(talk(said("q", "user", "which?"), recalled=hits), ContextQuery(), now=NOW, tokens={})
    return answer.recalled


@dataclass
class Asked:
    """A retrieval that notes what is looked for."""

    text: str = ""

    async def recall(self, _scope: Any, query: RecallQuery, *, max_bytes: int, until: float) -> RecallAnswer:
        assert max_bytes
        assert until > 0.0
        self.text = query.text
        return RecallAnswer(kind="recall", hits=())


async def current_topic(history: History) -> Any:
    await roles(history, "system", "user", "assistant", "user", "assistant")
    asked: Any = Asked()
    contexts = Contexts(history, asked, clock=lambda: datetime(2026, 3, 2, tzinfo=UTC))
    await contexts.read(TALK, ContextQuery(recall=RecallPart()), until=0.0)
    default = asked.text
    await contexts.read(TALK, ContextQuery(current_topic="tea"), until=0.0)
    return default, asked.text


async def after_summarising(history: History) -> Any:
    await roles(history, "user", "assistant", "user")
    await Book(history).take(summary("S", "r0", "r1"))
    everything = (await history.read_history(TALK, HistoryQuery(summaries=False), max_bytes=10**6)).answer.records
    return len(everything), set(await history.recallable(TALK, ["r0", "r1"])) == {"r0", "r1"}


async def summary_that_fails(history: History) -> Any:
    await roles(history, "user", "assistant", "user")
    made = summary("S", "r0", "r1")
    data = SummaryFailed(summary_id="S", covers=made.data.covers, code="unavailable", attempts=1, model="fake")
    address = {"tenantid": "acme", "agentid": "bot", "sessionid": "s"}
    await Book(history).take(SummaryFailedEvent(id="S-failed", source="test", data=data, **address))
    return await contents(history, TALK)


async def image_in_the_last_user_message(history: History) -> Any:
    image = {"type": "image", "url": "https://example.org/cat.png"}
    question = MemoryRecord.model_validate(
        {"record_id": "q", "role": "user", "content": "What is this?", "parts": [image], "timestamp": NOW}
    )
    answer = pack(talk(said("a", "user", LONG), question), ContextQuery(budget_tokens=2_000), now=NOW, tokens={})
    return "cat.png" in str(answer.messages[-1])


async def tool_results(history: History) -> Any:
    call, results = calling("c", "c1", "c2"), [result("x1", "c1", LONG), result("x2", "c2", LONG)]
    turns = talk(said("u", "user", "go"), call, *results, said("q", "user", "and?"))
    seen = set()
    for tokens in range(50, 1_200, 50):
        messages = pack(turns, ContextQuery(budget_tokens=tokens), now=NOW, tokens={}).messages
        seen.add(tuple(m["role"] for m in messages if m["role"] in {"assistant", "tool"}))
    return seen == {(), ("assistant", "tool", "tool")}


async def cleared_history(history: History) -> Any:
    log = await roles(history, "user", "assistant")
    log.clears(session="s")
    await given(history, log)
    return await contents(history, TALK), await contents(history, TALK, as_of=AsOf(offset=1))


async def popped(history: History) -> Any:
    log = await roles(history, "system", "user", "assistant")
    ids = await history.select_newest(TALK, 2)
    log.removes(*ids, session="s")
    await given(history, log)
    return ids, await contents(history, TALK), sorted(await history.recallable(TALK, ids))


@dataclass(frozen=True)
class Case:
    run: Callable[[History], Awaitable[Any]]
    camel: Any
    ours: Any
    why: str = ""


CASES = [
    # retrieve
    Case(score_of_the_newest, [0.73, 0.81, 0.9], [0.81, 0.9, 1.0], "as CAMEL's own documentation has it"),
    Case(system_is_first_and_does_not_decay, ("system", 1.0), ("system", 1.0)),
    Case(developer_is_first_and_does_not_decay, ("assistant", 0.9), ("developer", 1.0), "developers instruct, too"),
    Case(negative_windows, "refused", "refused"),
    # window warning
    Case(
        window_shorter_than_the_history,
        (["r2"], "a warning at each call"),
        (["r2"], True),
        "the answer says it; the client warns once for each scope",
    ),
    # get_context
    Case(budget, "exceeded", "kept", "a context that does not fit is of no use to a model"),
    Case(budget_that_nothing_fits_in, "exceeded", True, "an error that names the least budget can be acted on"),
    Case(image_in_the_last_user_message, False, True, "the newest user message is always in, all of it"),
    Case(tool_results, False, True, "OpenAI refuses a result without its call"),
    # long-term merge
    Case(
        recalled_that_stands_in_the_history,
        (("h", "a", "old"), 2, 2),
        (("old",), 1, 1),
        "what is said twice costs tokens twice, and a system message is no memory",
    ),
    Case(order_of_recalled, ("next", "best"), ("best", "next"), "CAMEL sorts by time, and loses what is relevant"),
    # current topic
    Case(current_topic, ("r3", "r3"), ("r3", "tea"), "the same default; a caller may say what it is about"),
    # summarising
    Case(after_summarising, (0, False), (3, True), "nothing is deleted; the vectors stay"),
    Case(summary_that_fails, [], ["r0", "r1", "r2"], "CAMEL wipes first, and loses it all when the model fails"),
    # clear and pop
    Case(cleared_history, ([], []), ([], ["r0", "r1"]), "a clear begins a new epoch"),
    Case(popped, (("r1", "r2"), ["r0"], ["r1", "r2"]), (("r1", "r2"), ["r0"], ["r1", "r2"])),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.run.__name__)
async def test_camel_and_ours_side_by_side(history: History, case: Case) -> None:
    assert await case.run(history) == case.ours
    assert bool(case.why) == (case.camel != case.ours)
