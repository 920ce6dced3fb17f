"""Whatever is said: no error, no surprise, bounded time and space, and a fold that does not depend on its pieces."""

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engramlog.engine.derivers.rules import MAX_KEYWORDS, SessionState, understand
from engramlog.engine.derivers.understanding import Understanding
from tests.deriving import said

STATE_BYTES = 4_096

sentences = st.sampled_from(
    [
        "I planted tomatoes in my garden last weekend.",
        "By the way, I bought a bicycle yesterday.",
        "Thanks!",
        "Have you been to Lisbon? I'm from Porto.",
        "话说回来，我最近在学吉他，你会弹吉他吗？",
        "我对花生过敏，住在成都。",
        "谢谢！",
        "ValueError in engine/derive.py:\n```\nx = y[0]\n```",
        "今日は寒いですね。",
        "👋\ud800",
        "",
    ]
)
texts = st.one_of(
    sentences,
    st.text(max_size=80),
    st.lists(sentences, max_size=4).map(" ".join),
    st.text("我去了的a-'._/\"\\ \n\t0,。？", max_size=60),
)
vectors = st.one_of(
    st.none(), st.lists(st.floats(-1, 1, width=32), min_size=8, max_size=8).map(lambda v: np.array(v, dtype=np.float32))
)
lines = st.tuples(st.sampled_from(["user", "user", "assistant", "tool", "system"]), texts, vectors)


def fold(
    talk: list[tuple[str, str, np.ndarray | None]], state: SessionState | None, *, through_json: bool
) -> tuple[list[Understanding], SessionState | None]:  # type: ignore[type-arg]
    found = []
    for role, text, vector in talk:
        if through_json and state is not None:
            state = SessionState.model_validate_json(state.model_dump_json())
        understanding, state = understand(said(text, role), text, state, vector=vector)
        found.append(understanding)
    return found, state


@settings(max_examples=60, deadline=None)
@given(st.lists(lines, max_size=8), st.integers(0, 8))
def test_a_fold_in_pieces_is_the_fold_in_one_go(talk: list[tuple[str, str, np.ndarray | None]], cut: int) -> None:  # type: ignore[type-arg]
    whole = fold(talk, None, through_json=False)
    first, between = fold(talk[:cut], None, through_json=True)
    second, last = fold(talk[cut:], between, through_json=True)
    assert (first + second, last) == whole


@settings(max_examples=150, deadline=None)
@given(lines)
def test_what_is_understood_is_bounded_and_of_whole_characters(line: tuple[str, str, np.ndarray | None]) -> None:  # type: ignore[type-arg]
    (understanding,), state = fold([line], None, through_json=False)
    assert 0.0 <= understanding.importance <= 1.0
    assert len(understanding.keywords) <= MAX_KEYWORDS
    assert len(understanding.entities) <= 64
    assert len(understanding.relations) <= 16
    for word in (*understanding.keywords, understanding.topic or "x"):
        assert 0 < len(word) <= 256
        word.encode("utf-8")
    assert state is not None
    assert len(state.model_dump_json().encode()) <= STATE_BYTES


@settings(max_examples=40, deadline=None)
@given(st.text(min_size=1, max_size=256).filter(lambda topic: topic.isprintable() or "\x01" in topic), texts)
def test_any_label_of_the_publisher_is_carried_in_a_small_state(topic: str, text: str) -> None:
    whole = topic.encode("utf-8", "ignore").decode() or "x"
    understanding, state = understand(said(text, topic=whole), text, None, vector=None)
    assert understanding.topic == whole
    assert SessionState.model_validate_json(state.model_dump_json()) == state
    assert len(state.model_dump_json().encode()) <= STATE_BYTES


def test_the_state_is_small_however_many_words_were_said() -> None:
    state = None
    vector = np.linspace(-1, 1, 3_072, dtype=np.float32)
    for start in range(0, 400, 20):
        words = " ".join(
            f"\u0416{chr(0x10400 + n % 40) * 9}{chr(0x400 + n)}" + "ж" * 12 for n in range(start, start + 20)
        )
        _, state = understand(said(words, topic='\x01"\\' * 85), words, state, vector=vector)
        assert len(state.model_dump_json().encode()) <= STATE_BYTES


HUGE = {
    "letters": "a" * 900_000,
    "digits": "1" * 900_000,
    "spaces": " " * 900_000,
    "lines": "\n" * 900_000,
    "Han": "我今天去了" * 180_000,
    "one Han": "刚" * 300_000,
    "quotes": '"`《' * 300_000,
    "dashes": "a-" * 450_000,
    "dots": "a." * 450_000,
    "paths": "a/" * 450_000,
    "snakes": "a_b" * 300_000,
    "mails": "a@" * 450_000,
    "names": "Aa " * 300_000,
    "I am": "I'm " * 225_000,
    "here is": "here's a " * 100_000,
    "NUL": "\0" * 900_000,
    "surrogates": "\ud800" * 300_000,
    "emoji": "👋" * 225_000,
    "talk": "I went to Lisbon last week, and my sister joined me there. " * 15_000,
}


@pytest.mark.parametrize("kind", HUGE)
def test_a_huge_text_takes_no_longer_than_a_long_one(kind: str) -> None:
    text = HUGE[kind]
    understand(said("我"), "我", None, vector=None)
    started = time.process_time()
    understanding, state = understand(said("x"), text, None, vector=None)
    assert time.process_time() - started < 3.0
    assert len(state.model_dump_json().encode()) <= STATE_BYTES
    assert understanding == understand(said("x"), text[:20_000], None, vector=None)[0]


def test_the_same_record_says_the_same_again() -> None:
    text = "By the way, my sister Ana moved to Porto last week."
    times = [understand(said(text), text, None, vector=None) for _ in range(3)]
    assert all(one == other for one, other in pairwise(times))
