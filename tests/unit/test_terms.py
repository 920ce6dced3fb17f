"""Terms: the same rules for documents and questions, in every script, in bounded time."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engramlog.engine.terms import MAX_TERM_CHARS, term_counts, terms
from engramlog.schemas.derived import MAX_TERMS, Derived


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Caroline's kids were painting", ["carolin", "kid", "paint"]),
        ("I don't know what it\u2019s about", ["know"]),
        ("a well-known café", ["known", "café"]),
        ("5,000 yuan for 16GB", ["5000", "yuan", "16gb", "16", "gb"]),
        ("ＦＵＬＬ width", ["full", "width"]),
        ("straße ÜBER", ["strass", "über"]),
        ("the IT department in the US asked us", ["it", "depart", "us", "ask"]),
        ("", []),
        ("   \n\t", []),
    ],
)
def test_words_are_folded_stemmed_and_freed_of_function_words(text: str, found: list[str]) -> None:
    assert terms(text) == found


@pytest.mark.parametrize(
    ("identifier", "pieces"),
    [
        ("file_path", ["file", "path"]),
        ("camelCase", ["camel", "case"]),
        ("HTTPServer", ["http", "server"]),
        ("v1.2", ["v", "1", "2"]),
        ("src/engine/store.py", ["src", "engin", "store", "py"]),
        ("max.poll.interval.ms", ["poll", "interval", "ms"]),
        ("user@example.com", ["user", "exampl", "com"]),
    ],
)
def test_an_identifier_counts_as_a_whole_and_in_its_pieces(identifier: str, pieces: list[str]) -> None:
    found = terms(f"look at {identifier} please")
    assert identifier.lower() in found
    assert set(pieces) <= set(found)


def test_chinese_gives_pairs_and_meaningful_characters() -> None:
    assert terms("天气") == ["天", "天气", "气"]
    assert "的了" not in terms("好的了")
    assert "的" not in terms("我的猫")
    assert "猫" in terms("我的猫")


@pytest.mark.parametrize(("question", "fact"), [("那里天气怎么样", "大连今天天气真好！"), ("猫叫什么", "我养了一只猫")])
def test_a_chinese_question_shares_terms_with_its_fact(question: str, fact: str) -> None:
    assert set(terms(question)) & set(terms(fact))


def test_japanese_korean_and_thai_are_cut_without_spaces() -> None:
    for text, part in (("東京に住んでいます", "東京"), ("서울에 살아요", "서울"), ("ฉันรักแมว", "แม")):
        assert part in terms(text)


def test_words_with_vowel_signs_stay_whole() -> None:
    assert terms("हिन्दी привет") == ["हिन्दी", "привет"]


def test_emoji_are_terms_without_their_skin_tones() -> None:
    assert terms("👋🏽") == terms("👋") == ["👋"]
    assert terms("👨‍👩‍👧") == ["👨", "👩", "👧"]
    assert "☔" in terms("☔️")


def test_counts_tell_the_length_and_the_repetitions() -> None:
    counts, length = term_counts("cats and cats and a dog")
    assert counts == {"cat": 2, "dog": 1}
    assert length == 3


def test_of_too_many_terms_the_most_frequent_are_kept() -> None:
    counts, length = term_counts(" ".join(f"w{i}x" for i in range(MAX_TERMS)) + " often often")
    assert len(counts) == MAX_TERMS
    assert counts["often"] == 2
    assert length > MAX_TERMS


@pytest.mark.parametrize(
    "piece", ["a", "a.", "aB", "aB_", "中", "don't ", "1,234", "1,", "-", "a--", "é", "\u0301", "👋", "ﷺ", "'"]
)
def test_a_large_text_of_anything_takes_linear_time(piece: str) -> None:
    def took(chars: int) -> float:
        text = piece * (chars // len(piece))
        began = time.process_time()
        term_counts(text)
        return time.process_time() - began

    took(1_000)
    assert took(160_000) < 60 * max(took(10_000), 0.001)


@given(st.text(max_size=300))
def test_any_text_gives_terms_that_an_event_can_hold(text: str) -> None:
    counts, length = term_counts(text)
    assert all(0 < len(term) <= MAX_TERM_CHARS for term in counts)
    assert length == sum(counts.values()) or len(counts) == MAX_TERMS
    assert Derived.__pydantic_validator__.validate_assignment(
        Derived.model_construct(), "terms", counts
    )  # the schema takes them


@given(st.text(max_size=100), st.text(max_size=100))
def test_terms_of_a_text_are_those_of_its_lines(one: str, other: str) -> None:
    assert terms(f"{one}\n\n{other}") == terms(one + "\n\n") + terms("\n\n" + other)
