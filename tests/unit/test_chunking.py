"""Long texts are cut where a reader would cut them, and nothing is lost silently."""

import itertools
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engramlog.engine.embedders.chunking import CHUNK_CHARS, WIDE, border, chunks, is_grapheme_border, weight

FAMILY = "👨‍👩‍👧‍👦"
PIECES = st.sampled_from(
    [
        *("word", " ", "  ", "\n", "\n\n", "\r\n", "\r\n\r\n", ". ", "! ", "? ", '." ', "3.14", "...", "\t", "-"),
        *("今天", "天气", "。", "！", "？」", "……", "ひらがな", "한국어", "e\u0301", "n\u0303\u0323", "\u0915\u093f"),
        *(FAMILY, "👍🏽", "🇨🇳", "🇩🇪🇫🇷", "❤️", "1️⃣", "\ud83d\udc4b", "\ud800", "\0", "\u200d", "\u1112\u1161\u11ab"),
    ]
)
TEXTS = st.one_of(st.lists(PIECES, max_size=120).map("".join), st.text(max_size=200))


def total(text: str) -> float:
    return sum(map(weight, text))


@given(text=TEXTS, size=st.integers(8, 60), share=st.floats(0, 0.49), most=st.integers(1, 40))
def test_spans_cover_the_text_in_order_with_overlap_and_keep_the_limits(
    text: str, size: int, share: float, most: int
) -> None:
    overlap = int(size * share)
    spans = chunks(text, chunk_chars=size, overlap_chars=overlap, most=most)
    assert len(spans) <= most
    assert bool(spans) == bool(text)
    for start, end in spans:
        assert 0 <= start < end <= len(text)
        assert total(text[start:end]) <= size
    for (start, end), (next_start, next_end) in itertools.pairwise(spans):
        assert start < next_start <= end < next_end
        assert total(text[next_start:end]) <= overlap
    if spans:
        assert spans[0][0] == 0
        assert spans[-1][1] == len(text) or len(spans) == most


@given(text=TEXTS, size=st.integers(8, 60), share=st.floats(0, 0.49))
@example(text="wordwordwordword\r\n\r\n", size=18, share=0.0625)
def test_no_cut_goes_through_a_surrogate_pair_or_a_grapheme_that_fits(text: str, size: int, share: float) -> None:
    places = [0, *(place for place in range(1, len(text)) if is_grapheme_border(text, place)), len(text)]
    widest = max((total(text[a:b]) for a, b in itertools.pairwise(places)), default=0)
    overlap = int(size * share)
    for start, end in chunks(text, chunk_chars=size, overlap_chars=overlap, most=1_000):
        for place in (start, end):
            if 0 < place < len(text):
                assert not ("\ud800" <= text[place - 1] <= "\udbff" and "\udc00" <= text[place] <= "\udfff")
        if widest <= size / 2 - WIDE:
            assert is_grapheme_border(text, end)
            assert is_grapheme_border(text, start)


@given(text=TEXTS)
def test_what_fits_is_one_chunk(text: str) -> None:
    assert chunks(text, chunk_chars=1_000, overlap_chars=100, most=64) == ([(0, len(text))] if text else [])


def cut(text: str, size: int, overlap: int = 0, most: int = 100) -> list[str]:
    return [text[a:b] for a, b in chunks(text, chunk_chars=size, overlap_chars=overlap, most=most)]


@pytest.mark.parametrize(
    ("text", "size", "pieces"),
    [
        ("One two. Three four.\n\nFive six. Seven eight.", 40, ["One two. Three four.\n\n", "Five six. Seven eight."]),
        ("One two three. Four five six seven.", 24, ["One two three. ", "Four five six seven."]),
        ('She said "yes." Then she left us.', 26, ['She said "yes." ', "Then she left us."]),
        ("Pi is 3.14159 and e is 2.71828", 24, ["Pi is 3.14159 and e is ", "2.71828"]),
        ("alpha beta\ngamma delta eps", 20, ["alpha beta\n", "gamma delta eps"]),
        ("alphabet soup", 10, ["alphabet ", "soup"]),
        ("今天天气真好。我们去散步吧！", 26, ["今天天气真好。", "我们去散步吧！"]),
        ("他说：「好。」然后走了。", 22, ["他说：「好。」", "然后走了。"]),
        ("abcdefghijklmnop", 10, ["abcdefghij", "klmnop"]),
    ],
    ids=["paragraph", "sentence", "quote", "number", "line", "word", "chinese", "chinese quote", "nothing to cut at"],
)
def test_it_cuts_at_the_best_border(text: str, size: int, pieces: list[str]) -> None:
    assert cut(text, size) == pieces


def test_neighbours_share_whole_sentences() -> None:
    text = "The first one is here. The second one is here. The third one is here. The fourth one is here."
    assert cut(text, 50, 24) == [
        "The first one is here. The second one is here. ",
        "The second one is here. The third one is here. ",
        "The third one is here. The fourth one is here.",
    ]


def test_emoji_sequences_stay_whole() -> None:
    for piece in cut(FAMILY * 20, 30, 14):
        assert piece.replace(FAMILY, "") == ""
    for piece in cut("🇨🇳🇩🇪🇫🇷🇯🇵" * 10, 23, 10):
        assert len(piece) % 2 == 0
    for piece in cut("e\u0301" * 50, 9, 4):
        assert unicodedata.combining(piece[0]) == 0


def test_more_than_it_may_have_ends_early_and_visibly() -> None:
    text = "word " * 10_000
    spans = chunks(text, chunk_chars=100, overlap_chars=10, most=3)
    assert len(spans) == 3
    assert spans[-1][1] < 300 < len(text)


def test_a_grapheme_larger_than_a_chunk_is_cut_all_the_same() -> None:
    text = "z" + "\u0301" * 10_000
    spans = chunks(text, chunk_chars=100, overlap_chars=10, most=1_000)
    assert spans[-1][1] == len(text)


def test_a_chinese_chunk_holds_fewer_characters() -> None:
    (_, english), *_ = chunks("word " * 1_000, chunk_chars=CHUNK_CHARS, overlap_chars=0, most=9)
    (_, chinese), *_ = chunks("天" * 5_000, chunk_chars=CHUNK_CHARS, overlap_chars=0, most=9)
    assert (english, chinese) == (CHUNK_CHARS, CHUNK_CHARS / WIDE)


@pytest.mark.parametrize("numbers", [(7, 0, 1), (10, 5, 1), (10, -1, 1), (10, 0, 0)])
def test_numbers_that_do_not_fit_together_are_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="chunk_chars="):
        chunks("text", chunk_chars=numbers[0], overlap_chars=numbers[1], most=numbers[2])


@given(text=TEXTS, place=st.integers(1, 150))
def test_every_border_has_a_rank(text: str, place: int) -> None:
    if place < len(text):
        assert border(text, place) in range(6)
