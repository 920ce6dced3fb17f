"""Questions that lean on the turns before them, in English and Chinese."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engramlog.engine.expansion import MAX_ADDED_CHARS, expanded, with_referents
from engramlog.engine.expansion_llm import LlmExpansion, Referents
from engramlog.schemas.errors import ConfigurationError, ModelRefused, ModelUnavailable
from engramlog.schemas.records import MemoryRecord, Role
from engramlog.schemas.stored import StoredRecord

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def talk(*turns: str, roles: Sequence[Role] = ()) -> list[StoredRecord]:
    """Turns of the user and the assistant in alternation, oldest first."""
    said = []
    for number, content in enumerate(turns):
        role: Role = roles[number] if roles else ("assistant" if number % 2 else "user")
        at = BEGIN + timedelta(minutes=number)
        record = MemoryRecord(record_id=str(number), role=role, content=content, timestamp=at)
        said.append(StoredRecord(record=record, offset=number, recorded=at))
    return said


PLACES = [
    (["我下周要去大连出差。"], "那里天气怎么样", "大连"),
    (["我想去大连玩。", "大连很美，海鲜也好吃。"], "那边有什么好吃的？", "大连"),
    (["我去了北京，又去了西安。"], "那儿有什么景点？", "西安"),
    (["周末想去鼓浪屿岛看看"], "那里远吗？", "鼓浪屿岛"),
    (["I am moving to Lisbon in May."], "What is the weather like there?", "Lisbon"),
    (["We flew to New York.", "Sounds exciting!"], "How long did we stay there?", "New York"),
    (["We had lunch at Harrowgate."], "Is parking easy there?", "Harrowgate"),
    (["I grew up in Leeds.", "Nice!", "Now I live in Bristol."], "Do I like it there?", "Bristol"),
]
PEOPLE = [
    (["I met Anna and we talked about the budget."], "What did she say about it?", ["Anna", "budget"]),
    (["My sister called yesterday."], "What does she want?", ["sister"]),
    (["My brother and my mother visited me."], "When is she coming again?", ["mother"]),
    (["My brother and my mother visited me."], "When is he coming again?", ["brother"]),
    (["Yesterday Tom told me about Rome."], "Where does he live?", ["Tom"]),
    (["我姐昨天打电话来了。"], "她说什么了？", ["姐"]),
    (["小李说他买了新车。"], "他住在哪里？", ["小李"]),
    (["我和王老师聊了论文。"], "她有什么建议？", ["王老师"]),
    (["我哥和我妈都来了。"], "她什么时候回去？", ["妈"]),
]
THINGS = [
    (["I bought a new laptop last week."], "How much did it cost?", "laptop"),
    (["I finally replaced my old bicycle."], "What colour is it?", "bicycle"),
    (["We switched to PostgreSQL."], "Why did we choose it?", "PostgreSQL"),
    (["我在看《三体》。"], "它的作者是谁？", "三体"),
    (["我买了一台笔记本电脑。"], "它多少钱？", "笔记本电脑"),
    (["我昨天买了一双跑鞋。"], "那个是什么牌子的？", "跑鞋"),
]
ELLIPSIS = [
    (["What is the weather like in Dalian?"], "And in winter?", ["Dalian", "weather"]),
    (["What is the price of the red scooter?"], "What about the blue one?", ["price", "scooter"]),
    (["大连今天天气怎么样？"], "那北京呢？", ["天气"]),
    (["我的生日聚会在哪里办？"], "什么时候？", ["生日聚会"]),
    (["The dentist moved my appointment."], "Why?", ["dentist", "appointment"]),
]
ALONE = [
    "What is my favourite colour?",
    "Where does Anna live?",
    "What did Anna say about the book that I lent her?",
    "Is there a pharmacy near my office?",
    "What time is it?",
    "How do I get to Leeds, and what can I do there?",
    "Did my laptop break when I dropped it?",
    "有没有适合出差带的、价格不太贵的电脑",
    "我喜欢什么运动？",
    "大连那里天气怎么样",
    "其他人都喜欢什么？",
    "吉他课是几点？",
    "界面颜色主题",
    "When did John start his job in IT?",
    "On which side should people stand when they talk to me?",
    "What did Ben do that put a strain on his wallet?",
    "How long did it take for Ben to finish the game?",
    "生成预览图的那个程序为什么内存爆掉？",
    "我和小李说好他几点来？",
    "天气",
    "👋",
    "What do I know about the thing that broke?",
]


@pytest.mark.parametrize(("turns", "question", "place"), PLACES)
def test_there_is_the_last_place_named(turns: list[str], question: str, place: str) -> None:
    assert expanded(question, talk(*turns)) == f"{question} {place}"


@pytest.mark.parametrize(("turns", "question", "names"), PEOPLE)
def test_he_and_she_are_the_last_person_named(turns: list[str], question: str, names: list[str]) -> None:
    assert expanded(question, talk(*turns)) == " ".join([question, *names])


@pytest.mark.parametrize(("turns", "question", "thing"), THINGS)
def test_it_is_the_last_thing_named(turns: list[str], question: str, thing: str) -> None:
    found = expanded(question, talk(*turns))
    assert found.startswith(f"{question} ")
    assert found.endswith(thing)


@pytest.mark.parametrize(("turns", "question", "subjects"), ELLIPSIS)
def test_what_is_left_out_comes_from_the_last_question(turns: list[str], question: str, subjects: list[str]) -> None:
    added = expanded(question, talk(*turns)).removeprefix(question)
    assert [subject for subject in subjects if subject not in added] == []


@pytest.mark.parametrize("question", ALONE)
def test_a_question_that_stands_alone_is_unchanged(question: str) -> None:
    turns = talk("I met Ben in Oslo and bought a lamp.", "我姐在上海买了一台电视。")
    assert expanded(question, turns) == question


def test_another_place_replaces_the_one_of_the_last_question() -> None:
    assert "大连" not in expanded("那北京呢？", talk("大连今天天气怎么样？"))
    assert "Dalian" not in expanded("What about Oslo?", talk("What is the weather like in Dalian?"))


def test_the_newest_turn_counts_in_whatever_order_they_come() -> None:
    turns = talk("I was in Oslo.", "Nice.", "Then I went to Rome.")
    assert expanded("What did I eat there?", turns[::-1]) == expanded("What did I eat there?", turns)
    assert expanded("What did I eat there?", turns).endswith(" Rome")


def test_what_lies_six_turns_back_is_forgotten() -> None:
    turns = talk("I was in Oslo.", *["Hm."] * 6)
    assert expanded("What did I eat there?", turns) == "What did I eat there?"
    assert expanded("What did I eat there?", turns[:6]).endswith(" Oslo")


def test_instructions_and_tool_results_name_nothing() -> None:
    turns = talk("You work in Paris.", "Weather in Berlin: rain.", "Hm.", roles=("system", "tool", "user"))
    assert expanded("How is it there?", turns) == "How is it there?"


def test_the_question_itself_may_be_among_the_turns() -> None:
    question = "How do I get there from Leeds?"
    assert expanded(question, talk("We meet in Oslo.", "Fine.", question)) == f"{question} Oslo"


def test_nothing_recent_changes_nothing() -> None:
    assert expanded("那里天气怎么样", []) == "那里天气怎么样"


def test_at_most_three_referents_are_added_and_none_twice() -> None:
    assert with_referents("q", ["a", "A", "b", "c", "d"]) == "q a b"
    assert len(with_referents("q", ["x" * 99, "y" * 99, "z" * 99, "w"])) <= 1 + MAX_ADDED_CHARS


WORDS = st.sampled_from(
    [
        "it",
        "there",
        "she",
        "they",
        "what about",
        "那里",
        "他",
        "呢？",
        "大连",
        "Anna",
        "the lamp",
        "👋",
        "?",
        "。",
        " ",
        "\0",
        "买了",
    ]
)


@settings(deadline=None)
@given(
    st.one_of(st.text(), st.lists(WORDS, max_size=12).map(" ".join)),
    st.lists(st.one_of(st.text(), st.lists(WORDS, max_size=20).map(" ".join)), max_size=8),
)
def test_any_question_is_kept_and_grows_little(question: str, turns: list[str]) -> None:
    found = expanded(question, talk(*turns))
    assert found.startswith(question)
    assert len(found) <= len(question) + MAX_ADDED_CHARS


@pytest.mark.parametrize(
    "piece", ["a", "Aa ", "my ", "the a ", "买了", "我在", "小王", "he ", "“", " ", "👋", "1,", "in A"]
)
def test_long_texts_take_no_long_time(piece: str) -> None:
    long = (piece * 20_000)[:20_000]
    begin = time.process_time()
    assert expanded(long, talk(long)) == long
    expanded("what did she say about it there?", talk(*[long] * 6))
    expanded((piece * 300)[:300], talk(*[long] * 6))
    assert time.process_time() - begin < 1.0


class Model:
    """Stands for an endpoint: answers, fails, or never answers."""

    def __init__(self, answer: list[str] | Exception | None) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []

    async def structured(self, **question: Any) -> Referents:
        self.asked.append(question)
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            await asyncio.Event().wait()
        return Referents(referents=list(self.answer or ()))


def by(model: Model, *, timeout_s: float = 2.0) -> LlmExpansion:
    return LlmExpansion(model, model="m", timeout_s=timeout_s)  # type: ignore[arg-type]


async def test_a_model_names_what_the_rules_do_not_see() -> None:
    model = Model(["red kayak"])
    turns = talk("We finally got round to painting, red kayak, blue canoe.", "Lovely.")
    assert await by(model).expanded("And the paddle?", turns) == "And the paddle? red kayak"
    assert "red kayak, blue canoe" in model.asked[0]["user"]
    assert model.asked[0]["timeout_s"] <= 2


async def test_what_a_model_makes_up_is_not_searched_for() -> None:
    model = Model(["Atlantis", "oslo", "", "  "])
    assert await by(model).expanded("How is it there?", talk("I was in Oslo.")) == "How is it there? oslo"


@pytest.mark.parametrize(
    "failure",
    [ModelUnavailable("down"), ModelRefused("nonsense"), ConfigurationError("no key")],
    ids=lambda e: type(e).__name__,
)
async def test_the_rules_answer_when_the_model_fails(failure: Exception) -> None:
    assert await by(Model(failure)).expanded("那里天气怎么样", talk("我要去大连。")) == "那里天气怎么样 大连"


async def test_a_model_that_never_answers_is_not_waited_for() -> None:
    assert (
        await by(Model(None), timeout_s=0.01).expanded("那里天气怎么样", talk("我要去大连。")) == "那里天气怎么样 大连"
    )


async def test_a_model_is_not_asked_where_there_is_nothing_to_resolve_from() -> None:
    model = Model(["x"])
    assert await by(model).expanded("How is it there?", []) == "How is it there?"
    assert await by(model).expanded("x" * 20_000, talk("x")) == "x" * 20_000
    assert model.asked == []
