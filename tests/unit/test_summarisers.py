"""Summaries without a model: the talk's own sentences, or its beginning."""

import asyncio
import re
import time
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engramlog.engine.ports import Matrix
from engramlog.engine.summarisers import Passage, Summary, SummaryRefused, checked, names, summariser_by_name
from engramlog.engine.summarisers.archive import cut
from engramlog.engine.summarisers.centrality import text_rank
from engramlog.engine.summarisers.choosing import GROUP
from engramlog.engine.summarisers.extractive import Extractive
from engramlog.engine.tokens import count_text
from engramlog.schemas.errors import ConfigurationError
from engramlog.schemas.summaries import SummaryCreated
from tests.model_server import pseudo_vector

DAY = datetime(2023, 5, 8, 9, tzinfo=UTC)


def said(*turns: str, role: str = "user", importance: float | None = None) -> list[Passage]:
    """Passages of ``"Speaker: text"``."""
    told = [turn.partition(": ") for turn in turns]
    return [Passage(f"r{at}", who, role, text, DAY, importance, "turn") for at, (who, _, text) in enumerate(told)]


def summarised(passages: list[Passage], max_tokens: int, previous: str | None = None) -> Summary:
    return asyncio.run(summariser_by_name().summarise(passages, max_tokens=max_tokens, previous=previous))


ENGLISH = said(
    "Ann: Hey Bob! Long time no see, how are you?",
    "Bob: Hi Ann! I'm doing great, thanks for asking!",
    "Ann: I adopted a puppy named Biscuit from the shelter on Elm Street last Friday, you know?",
    "Bob: Wow, that's awesome!",
    "Ann: Thanks, Bob! I love hiking with him in the mountains.",
    "Bob: Well, we decided to move to Portland in July because Carol got a job at the university there.",
    "Ann: That's so cool, Bob!",
    "Bob: I need to book the movers before June 12.",
    "Ann: Talk to you soon!",
)
CHINESE = said(
    "王峰: 你好，朋友。",
    "王峰: 嗯，其实我最近在学习世界历史，但是有些难懂。",
    "王峰: 谢谢你的建议。我喜欢徒步、长跑和攀岩，对吧？",
    "王峰: 我们决定5月3日去郊外的香山徒步旅行。",
    "王峰: 好的，再见！",
)


def test_an_english_talk_is_told_by_who_said_what_without_courtesies() -> None:
    summary = summarised(ENGLISH, 90)
    assert count_text(summary.text) <= 90
    assert "8 May 2023" in summary.text
    assert re.search(r"^Ann: .*Biscuit.*Elm Street", summary.text, re.MULTILINE)
    assert re.search(r"^Bob: .*Portland in July", summary.text, re.MULTILINE)
    assert not re.search(r"awesome|cool|see you|Talk to|you know|Hey", summary.text)
    assert summary.text.index("Biscuit") < summary.text.index("Portland")
    assert (summary.language, summary.model, summary.prompt, summary.raw) == (
        "en",
        "extractive",
        "extractive.v1",
        False,
    )
    assert "Ann loves hiking with him in the mountains." not in summary.facts
    assert summary.decisions == (
        "Bob decided to move to Portland in July because Carol got a job at the university there.",
    )
    assert summary.open_tasks == ("Bob: I need to book the movers before June 12.",)
    assert summary.facts == ("Ann adopted a puppy named Biscuit.",)
    assert summary.topic
    checked(summary, ENGLISH)


def test_a_chinese_talk_gets_a_chinese_summary() -> None:
    summary = summarised(CHINESE, 90)
    assert count_text(summary.text) <= 90
    assert summary.text.startswith("2023年5月8日\n王峰: ")
    assert "攀岩" in summary.text
    assert "5月3日" in summary.text
    assert not re.search(r"你好|谢谢|再见|对吧", summary.text)
    assert summary.language == "zh"
    assert summary.preferences == ("王峰喜欢徒步、长跑和攀岩。",)
    assert summary.decisions == ("王峰决定5月3日去郊外的香山徒步旅行。",)
    checked(summary, CHINESE)


def test_an_earlier_summary_is_taken_in_with_its_days_and_speakers() -> None:
    summary = summarised(
        ENGLISH[5:], 200, previous="1 May 2023\nAnn: Mother lives in Oslo.\n2 May 2023\nBob: Sold car."
    )
    assert summary.text.startswith(
        "1 May 2023\nAnn: Mother lives in Oslo.\n2 May 2023\nBob: Sold car.\n8 May 2023\nBob: "
    )


def test_summaries_are_rolled_up_with_their_days_and_speakers() -> None:
    lines = ["1 May 2023\nAnn: Mother lives in Oslo.\nBob: Sold car.", "2023年5月2日\n王峰: 决定七月搬到上海。"]
    passages = [Passage(str(at), "", "assistant", text, DAY, 0.7, "turn") for at, text in enumerate(lines)]
    summary = summarised(passages, 200)
    assert summary.text == "\n".join(lines)
    checked(summary, passages)


def test_what_repeats_is_told_once() -> None:
    turns = [f"Ann: I bought a red bicycle in Utrecht{'!' * at}" for at in range(1, 9)]
    assert summarised(said(*turns), 200).text.count("Utrecht") == 1


def test_what_matters_more_comes_first_when_room_is_short() -> None:
    passages = [
        *said("Ann: The bus was a bit late again this morning near the station.", importance=0.1),
        *said("Ann: My brother Tom is allergic to penicillin and carries a card.", importance=0.9),
    ]
    text = summarised(passages, 26).text
    assert "penicillin" in text
    assert "station" not in text


def test_denials_stay_denials() -> None:
    text = summarised(
        said("Ann: Nope, never been there.", "Ann: No, I don't eat meat.", "Ann: It is not just a job."), 90
    ).text
    assert "never been there" in text
    assert "don't eat meat" in text
    assert "not just" in text


def test_nothing_to_summarise_is_refused() -> None:
    for passages in ([], said("Ann: "), said("Ann:   \n ")):
        for summariser in (summariser_by_name("extractive"), summariser_by_name("archive")):
            with pytest.raises(SummaryRefused) as refused:
                asyncio.run(summariser.summarise(passages, max_tokens=100, previous=None))
            assert refused.value.code == "empty"


def test_courtesies_alone_are_still_kept_within_the_budget() -> None:
    summary = summarised(said("Ann: Hi Bob!", "Bob: 👋"), 20)
    assert summary.text
    assert count_text(summary.text) <= 20


class Vectors:
    """An embedder that answers at once."""

    model, dimension, chunk_chars = "pseudo", 32, 1_000

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def passages(self, texts: list[str]) -> Matrix:
        rows = np.array([pseudo_vector(text, self.dimension) for text in texts])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    async def query(self, text: str) -> Matrix:
        return (await self.passages([text]))[0]


def test_an_embedder_adds_what_is_central_by_meaning() -> None:
    summariser = summariser_by_name("extractive", embedder=Vectors())
    summary = asyncio.run(summariser.summarise(ENGLISH, max_tokens=90, previous=None))
    assert "Portland" in summary.text
    assert count_text(summary.text) <= 90


def test_text_rank_prefers_what_is_like_the_rest() -> None:
    rows = np.array([[1, 0, 0], [0.9, 0.436, 0], [0.9, -0.436, 0], [0, 0, 1]], dtype=np.float32)
    rank = text_rank(rows)
    assert sum(rank) == pytest.approx(4)
    assert max(rank) == rank[0]
    assert min(rank) == rank[3]
    assert text_rank(rows[:1]) == pytest.approx([1.0])


_TALK = st.lists(
    st.tuples(
        st.sampled_from(["Ann", "Bob", "王峰", "assistant", ""]),
        st.sampled_from(
            [
                "I love tea. ",
                "我喜欢爬山。",
                "Hey Bob! ",
                "a" * 300,
                "👨‍👩‍👧‍👦🇩🇪",
                "。。。",
                "\n\n",
                "Dr. No: ",
                "```x```",
            ]
        )
        | st.text(max_size=60),
    ),
    max_size=12,
)


@given(_TALK, st.integers(0, 120), st.none() | st.text(max_size=60))
@settings(max_examples=150, deadline=None)
def test_a_summary_is_never_above_its_budget(talk: list[tuple[str, str]], budget: int, previous: str | None) -> None:
    passages = [Passage(str(at), who, "user", text, DAY, None, "turn") for at, (who, text) in enumerate(talk)]
    try:
        summary = summarised(passages, budget, previous)
    except SummaryRefused:
        assert budget < 12 or not any(passage.text.strip("\0 \n") for passage in passages)
        return
    assert 0 < count_text(summary.text) <= budget
    assert 0.0 <= summary.importance <= 1.0
    assert len(summary.facts) <= 100
    assert all(0 < len(line) <= 2_000 for line in (*summary.facts, *summary.preferences, *summary.open_tasks))


@given(_TALK, st.integers(1, 60))
@settings(max_examples=50, deadline=None)
def test_the_budget_is_counted_as_the_caller_counts(talk: list[tuple[str, str]], budget: int) -> None:
    passages = [Passage(str(at), who, "user", text, DAY, 0.5, "turn") for at, (who, text) in enumerate(talk)]
    summariser = Extractive(count=lambda text: 2 * len(text))
    try:
        summary = asyncio.run(summariser.summarise(passages, max_tokens=budget, previous=None))
    except SummaryRefused:
        return
    assert 2 * len(summary.text) <= budget


def test_time_grows_with_the_talk_and_not_with_its_square() -> None:
    def seconds(turns: int) -> float:
        talk = said(
            *(f"Ann: I saw exhibit {at % 97} number {at} in hall {at % 13}, it was {at}." for at in range(turns))
        )
        began = time.process_time()
        summarised(talk, turns * 3)
        return time.process_time() - began

    seconds(50)
    few, many = seconds(200), seconds(1_600)
    assert many < 8 * 4 * few + 1.0


def test_one_very_long_passage_is_summarised_too() -> None:
    text = " ".join(f"Item {at} costs {at * 7} euros in shop {at % 11}." for at in range(2_000))
    began = time.process_time()
    summary = summarised(said(f"Ann: {text}"), 300)
    assert 150 < count_text(summary.text) <= 300
    assert time.process_time() - began < 10


def test_the_archive_keeps_the_beginning_and_says_that_it_is_no_summary() -> None:
    summariser = summariser_by_name("archive")
    passages = said(*["王峰: 我喜欢猫👋"] * 80)
    summary = asyncio.run(summariser.summarise(passages, max_tokens=1, previous=None))
    assert summary.raw
    assert len(summary.text) <= 500
    assert summary.text.startswith("王峰: 我喜欢猫👋\n王峰: ")
    assert (summary.model, summary.language, summary.facts) == ("archive", "zh", ())
    checked(summary, passages)


@pytest.mark.parametrize("whole", ["👨‍👩‍👧‍👦", "e\u0301", "👍🏽", "🇩🇪", "❤️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"])
def test_a_cut_tears_nothing_apart(whole: str) -> None:
    for most in range(1, len(whole)):
        assert cut("ab" + whole + "c", 2 + most) == "ab"
    assert cut("ab" + whole + "c", 2 + len(whole)) == "ab" + whole
    assert cut("🇩🇪🇫🇷🇮🇹", 5) == "🇩🇪🇫🇷"


def test_summarisers_are_chosen_by_name() -> None:
    assert names()[:3] == ("extractive", "archive", "llm")
    assert summariser_by_name().model == "extractive"
    with pytest.raises(ConfigurationError, match="ENGRAMLOG_LLM_MODEL"):
        summariser_by_name("llm")
    with pytest.raises(ConfigurationError, match=r"no summariser 'x'.*extractive, archive, llm"):
        summariser_by_name("x")


def test_other_packages_bring_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name = "mine"

        def load(self) -> object:
            return lambda **given: ("mine", sorted(given))

    monkeypatch.setattr(
        "engramlog.engine.summarisers.choosing.entry_points", lambda *, group: [Point()] if group == GROUP else []
    )
    assert "mine" in names()
    assert summariser_by_name("mine") == ("mine", ["count", "embedder", "endpoints", "model"])


def test_what_is_made_fits_the_event() -> None:
    assert SummaryCreated.model_fields["text"].metadata
    summary = summarised(ENGLISH, 90)
    made = SummaryCreated.model_validate(
        {
            "summary_id": "s1",
            "covers": {"record_ids": ["r0"], "first": 0, "last": 8},
            "at": 9,
            "tokens_before": 200,
            "tokens_after": count_text(summary.text),
            **{name: getattr(summary, name) for name in Summary.__dataclass_fields__},
        }
    )
    assert made.text == summary.text
