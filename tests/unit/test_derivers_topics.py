"""The running topic of a session."""

from datetime import timedelta

import numpy as np
import pytest

from engramlog.engine.derivers.rules import SessionState, understand
from tests.deriving import THEN, said, session, understood

GARDEN = [
    "I planted tomatoes in my garden last weekend.",
    "Nice! How are the tomatoes doing?",
    "They are growing fast, the garden gets a lot of sun.",
    "Great, thanks for telling me!",
]
TAXES = "By the way, I got a letter from the tax office yesterday."
COOKING = [
    "我最近开始学做红烧肉了。",
    ("assistant", "听起来很不错！红烧肉是一道经典的家常菜。"),
    "是啊，红烧肉的火候很难掌握。",
    ("assistant", "慢慢练习，你一定会越做越好。"),
]


def test_a_label_stays_while_the_talk_stays_on_the_subject() -> None:
    labels = {understanding.topic for understanding in session(GARDEN)}
    assert labels == {"garden"}


def test_a_chinese_label_stays_while_the_talk_stays_on_the_subject() -> None:
    labels = {understanding.topic for understanding in session(COOKING)}
    assert labels == {"红烧肉"}


def test_another_subject_changes_the_label_and_its_reply_keeps_it() -> None:
    topics = [understanding.topic for understanding in session([*GARDEN, TAXES, "Oh no, what does it say?"])]
    assert topics[-2] != topics[-3]
    assert "tax" in (topics[-2] or "")
    assert topics[-1] == topics[-2]


def test_another_subject_changes_a_chinese_label() -> None:
    topics = [understanding.topic for understanding in session([*COOKING, "话说回来，我最近在学吉他，你会弹吉他吗？"])]
    assert topics[-2] == "红烧肉"
    assert topics[-1] == "吉他"


@pytest.mark.parametrize("filler", ["Thanks!", "Hey there!", "ok", "👍", "Wow, that's awesome!", "", "\ud800", "Bye!"])
def test_filler_never_changes_the_label(filler: str) -> None:
    assert session([*GARDEN[:2], filler, filler, filler])[-1].topic == "garden"


@pytest.mark.parametrize("filler", ["谢谢！", "你好！", "嗯", "太棒了！", "再见，晚安！", "好的，没问题。"])
def test_chinese_filler_never_changes_the_label(filler: str) -> None:
    assert session([*COOKING[:2], filler, filler, filler])[-1].topic == "红烧肉"


def test_a_greeting_alone_is_no_topic() -> None:
    assert understood("Hello! How are you?").topic is None
    assert understood("你好！").topic is None


def test_a_message_in_another_language_does_not_change_the_language_of_the_label() -> None:
    mixed = [*COOKING, "By the way, I bought a new bicycle yesterday."]
    assert session(mixed)[-1].topic == "红烧肉"
    other = [*GARDEN, "对了，我昨天买了一辆自行车。"]
    assert session(other)[-1].topic == "garden"


def test_a_talk_that_goes_on_in_another_language_gets_labels_in_it() -> None:
    chinese = [
        "我昨天买了一辆自行车。",
        "这辆自行车很轻。",
        "我周末想去骑行。",
        "我今天又去修了自行车。",
        "昨天我去了博物馆。",
    ]
    topic = session([*GARDEN, *chinese])[-1].topic
    assert topic is not None
    assert all("\u4e00" <= character <= "\u9fff" for character in topic)


def test_labels_are_short() -> None:
    for text in [
        "Yesterday I visited the very old municipal botanical research station library annex in Kew.",
        "我昨天参观了国家自然科学博物馆地质古生物标本陈列馆。",
    ]:
        topic = understood(text).topic
        assert topic is not None
        assert len(topic.split()) <= 4
        assert len(topic) <= 40


def test_the_publishers_topic_wins_and_steers_the_session() -> None:
    first, state = understand(said(GARDEN[0], topic="balcony"), GARDEN[0], None, vector=None)
    second, state = understand(said(GARDEN[2]), GARDEN[2], state, vector=None)
    third, _ = understand(said(TAXES), TAXES, state, vector=None)
    assert (first.topic, second.topic) == ("balcony", "balcony")
    assert third.topic not in ("balcony", None)


def test_an_answer_of_the_assistant_opens_no_subject() -> None:
    lines = [*GARDEN[:3], ("assistant", "Compost helps. Many gardeners also keep bees, rabbits and chickens.")]
    assert session(lines)[-1].topic == "garden"


def test_a_long_pause_speaks_for_a_new_subject() -> None:
    text = "The printer on the second floor is out of paper."
    _, state = understand(said(GARDEN[0]), GARDEN[0], None, vector=None)
    _, state = understand(said(GARDEN[2]), GARDEN[2], state, vector=None)
    at_once, _ = understand(said(text), text, state, vector=None)
    later, _ = understand(said(text, timestamp=THEN + timedelta(days=2)), text, state, vector=None)
    assert at_once.topic == "garden"
    assert later.topic != "garden"


def _direction(degrees: float, dimension: int = 384) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    vector = np.zeros(dimension, dtype=np.float32)
    vector[0], vector[1] = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return vector


def _state_about(dimension: int) -> SessionState:
    state = None
    for degrees, text in zip((0, 4, 8, 4), [*GARDEN[:3], "The tomatoes need water."], strict=True):
        _, state = understand(said(text), text, state, vector=_direction(degrees, dimension))
    assert state is not None
    return state


@pytest.mark.parametrize("dimension", [384, 1536])
def test_a_distant_vector_speaks_for_a_change_and_a_near_one_against_it(dimension: int) -> None:
    text = "We want a kitchen shelf for our pots."
    state = _state_about(dimension)
    near, _ = understand(said(text), text, state, vector=_direction(5, dimension))
    far, _ = understand(said(text), text, state, vector=_direction(85, dimension))
    assert (near.topic, far.topic) == ("garden", "kitchen shelf")


@pytest.mark.parametrize("odd", [np.zeros(384, np.float32), np.full(384, np.nan, np.float32), np.ones(7, np.float32)])
def test_a_vector_that_says_nothing_is_left_out(odd: np.ndarray[tuple[int], np.dtype[np.float32]]) -> None:
    state = _state_about(384)
    understanding, after = understand(said(GARDEN[2]), GARDEN[2], state, vector=odd)
    assert understanding.topic == "garden"
    assert SessionState.model_validate_json(after.model_dump_json()) == after
