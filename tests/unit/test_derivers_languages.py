"""The language of a text."""

import pytest

from engramlog.engine.derivers.languages import language_of
from engramlog.engine.derivers.texts import read


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The train leaves at nine, and I am still not ready.", "en"),
        ("thanks", "en"),
        ("El tren sale a las nueve y yo todavía no estoy listo.", "es"),
        ("Le train part à neuf heures et je ne suis pas prêt.", "fr"),
        ("Der Zug fährt um neun und ich bin noch nicht fertig.", "de"),
        ("O trem sai às nove e eu ainda não estou pronto.", "pt"),
        ("Il treno parte alle nove e io non sono ancora pronto.", "it"),
        ("火车九点开，我还没准备好。", "zh"),
        ("電車は九時に出ますが、まだ準備ができていません。", "ja"),
        ("기차는 아홉 시에 떠나는데 나는 아직 준비가 안 됐어요.", "ko"),
        ("Поезд уходит в девять, а я ещё не готов.", "ru"),
        ("我在 GitHub 上提交了 pull request，请帮我看看。", "zh"),
        ("She wrote 你好 on the board, and we all laughed.", "en"),
    ],
)
def test_a_language_is_told_by_its_script_or_its_commonest_words(text: str, language: str) -> None:
    assert language_of(read(text).prose) == language


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   \n\t ",
        "👋🎉",
        "12345 67.8 %",
        "https://example.org/the/a/and",
        "```python\nfor the in a:\n    and_(the)\n```",
        "def and_the(of):\n    return of(the, [a])\n",
        "\ud800\x00",
    ],
)
def test_what_is_no_language_is_none(text: str) -> None:
    assert language_of(read(text).prose) is None


def test_the_talk_around_code_is_what_tells_the_language() -> None:
    assert language_of(read("这个函数报错了：\n```\nthe and of to in is\n```").prose) == "zh"
