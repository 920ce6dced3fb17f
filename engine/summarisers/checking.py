"""Whether what came back is a summary. Pure."""
# ruff: noqa: RUF001, E501 - lists of words

import re
from collections.abc import Sequence
from typing import Final

from engramlog.engine.derivers.languages import language_of
from engramlog.engine.facts.sentences import sentences_of
from engramlog.engine.summarisers.languages import dominant_language, spoken_languages
from engramlog.engine.summarisers.passages import Passage, Summary, SummaryRefused

_REFUSAL: Final = re.compile(
    r"\b(?:i(?:'m| am) (?:sorry|unable|not able)|i (?:cannot|can't|can not|won't|will not|must decline|do not feel comfortable)|"
    r"sorry,? (?:but )?i (?:can't|cannot)|as an ai\b|as a language model|there is nothing to summari[sz]e|"
    r"no (?:conversation|text|content) (?:was )?(?:provided|given)|please provide (?:the|a|me))"
    r"|(?:很?抱歉|对不起)[，,]?.{0,4}(?:我|作为)?.{0,6}(?:不能|无法|没办法)|我(?:不能|无法)(?:提供|帮助|协助|完成|满足|回答|处理|生成|总结)"
    r"|作为(?:一个|一名)?(?:人工智能|AI|语言模型)|没有(?:提供|可以总结)|请提供",
    re.IGNORECASE,
)
_OF_THE_TASK: Final = re.compile(
    r"\b(?:summari[sz]\w*|assist|help (?:with|you)|comply|fulfil\w*|request|provide|ai|language model|content|conversation)\b"
    r"|总结|摘要|概括|帮助|协助|提供|请求|内容|对话|人工智能|AI|语言模型|回答|处理",
    re.IGNORECASE,
)
_REFUSING_SENTENCES: Final = 3
_SURE_CHARS: Final = 60
_LATIN: Final = frozenset({"en", "es", "fr", "de", "pt", "it"})
_SLACK_CHARS: Final = 16
_MAX_CHARS: Final = 100_000


def checked(summary: Summary, passages: Sequence[Passage]) -> None:
    """Accept a summary of these passages, or say why it is none.

    Raises:
        SummaryRefused: ``empty``; ``refused``: it only says that there will be none; ``too_long``: longer than what it
            stands for; ``wrong_language``: one that is not the talk's; ``invalid``: its numbers or lists are not what
            a summary may hold.
    """
    text = summary.text.strip()
    if not text:
        raise SummaryRefused("empty", "the summary is empty")
    if not summary.raw and _refuses(text):
        raise SummaryRefused("refused", "the model refuses to summarise")
    source = sum(len(passage.told()) + 1 for passage in passages)
    if len(text) > max(source, _SLACK_CHARS):
        raise SummaryRefused("too_long", f"the summary has {len(text)} characters, what it stands for {source}")
    _check_language(text, passages)
    _check_shape(summary)


def _refuses(text: str) -> bool:
    sentences = [sentence.text for sentence in sentences_of(text)]
    refusing = [bool(_REFUSAL.search(one) and _OF_THE_TASK.search(one)) for one in sentences]
    return bool(refusing) and refusing[0] and len(sentences) <= _REFUSING_SENTENCES and ":" not in text[:40]


def _check_language(text: str, passages: Sequence[Passage]) -> None:
    texts = [passage.text for passage in passages]
    talk, found = dominant_language(texts), language_of(text)
    if talk is None or found is None or found in spoken_languages(texts):
        return
    if {talk, found} <= _LATIN and len(text) < _SURE_CHARS:  # a few words may be of either
        return
    raise SummaryRefused("wrong_language", f"the talk is in {talk}, the summary in {found}")


def _check_shape(summary: Summary) -> None:
    if len(summary.text) > _MAX_CHARS:
        raise SummaryRefused("invalid", f"the summary has more than {_MAX_CHARS} characters")
    if not 0.0 <= summary.importance <= 1.0:
        raise SummaryRefused("invalid", "the importance of the summary is not between 0 and 1")
    for line in (*summary.facts, *summary.preferences, *summary.decisions, *summary.open_tasks):
        if not line.strip():
            raise SummaryRefused("invalid", "one of the summary's facts, preferences, decisions or tasks is empty")
