# ruff: noqa: RUF001 - Chinese punctuation is meant
"""By which words speakers open, change and continue a subject, in English and Chinese."""

import re
from dataclasses import dataclass
from typing import Final

from engramlog.engine.derivers.texts import any_of

_DAY: Final = r"(?:week|weekend|month|year|night|summer|mon|tues|wednes|thurs|fri|satur|sun)\w*"


_OPENS: Final = any_of(
    r"^\W*(?:hey|hi|hello|good (?:morning|afternoon|evening)|long time no|what's up)\b",
    r"^\W*(?:你好|您好|嗨|哈喽|早上好|下午好|晚上好|早安|好久不见|好久没)",
)
_TURNS_AWAY: Final = any_of(
    r"\b(?:by the way|btw|anyways?,|speaking of|on (?:another|a different) note|that reminds me|in other news"
    r"|guess what)\b",
    r"\b(?:changing the subject|other than that|besides that|as for me|same with me|oh (?:yeah|and),? (?:I|we|my)"
    r"|what about you)\b",
    r"\bhere(?:'s| is) (?:a|an|another|my) (?:\w+ )?(?:pic|photo|picture|snap|shot)\w*\b",
    r"话说回来|对了[，,]|顺便|另外|除此之外|除了[^，。？！]{1,12}[，,]|换个话题|说到|[，。！]还有[，,一]|我还(?:想|有|尝试|去|喜欢|在)",
)
_COUNTERS: Final = any_of(r"\b(?:I|we)(?:'m| am|'ve|'re)? [^.?!]{2,50}\btoo\b", r"我也(?:在|有|去|会|喜欢)")
_NEWS: Final = any_of(
    r"\b(?:I|we)(?:'ve| have|'m|'re)? (?:just|recently|finally|even|actually|was wondering|got|bought|made|joined"
    r"|started|went|attended|visited|took|had|won|lost|passed|met|finished|signed|adopted|tried|moved|hosted"
    r"|organi[sz]ed|learned)\b",
    rf"\b(?:last|next|this) {_DAY}|\byesterday|\b(?:a few|two|three|couple of) (?:days|weeks|months) ago|\blately\b",
    r"\b(?:I'm|we're|I've been) (?:getting|planning|going|thinking|learning|working on|taking|challenging|trying)\b",
    r"(?:今天|最近|近来|昨天|昨晚|上周末?|这周末?|周末|这几天|前几天|刚刚|明天|晚上)[^。？！]{0,6}(?:我|感|想|在|去)|我(?:今天|最近|昨天|刚刚?|还|正|也在|打算|计划)",
)
_ASKS_FOR_MORE: Final = any_of(
    r"\b(?:do you have|have you|are you|what else|what other|any(?:thing)?)\b[^.?!]{0,80}\?",
    r"(?:有没有|有什么|你(?:也)?喜欢|你觉得|你认为)[^。？！]{0,30}(?:[？?]|吗|呢)",
)
_BEGINS_WITH_NEWS: Final = any_of(
    r"^\W*(?:(?:hey|hi|hello)[^.!?]{0,30}[.!?,] *)?(?:last|yesterday|recently|lately"
    r"|I (?:just|recently|finally)|guess what)\b",
    r"^\W*(?:(?:你好|您好|嗨)[^。！，]{0,6}[。！，][^。！，]{0,4}?)?(?:今天|最近|昨天|昨晚|上周|这几天|周末)",
)
_SPEAKS: Final = re.compile(r"(?<![\w'\u2019])(?:I|I'm|I've|I'd|we|we're|my|our|me|us)(?!\w)|我")
_ASKS: Final = ("?", "？", "吗", "呢")


@dataclass(frozen=True, slots=True)
class Cues:
    """What the words of a turn do to the subject; each 0 or 1, where nothing else is said.

    Attributes:
        opens: It greets, as one does at the beginning of a talk.
        away: It turns to something else ("by the way"), or tells its own counterpart ("I paint, too").
        away_at: From where on it does so, as a share of the text; 0 where it does not.
        news: It tells of something that happened, is planned or was begun.
        news_first: It begins with that.
        more: It asks for something else than was told.
        speaks: How much the speaker speaks of themselves, 0 to 1.
        asks: It ends as a question.
    """

    opens: float = 0.0
    away: float = 0.0
    away_at: float = 0.0
    news: float = 0.0
    news_first: float = 0.0
    more: float = 0.0
    speaks: float = 0.0
    asks: float = 0.0


def cues_of(prose: str) -> Cues:
    """The cues of a text."""
    text = prose.replace("\u2019", "'")
    away, counter = _TURNS_AWAY.search(text), _COUNTERS.search(text)
    turn = away.end() if away else counter.start() if counter else 0
    return Cues(
        opens=float(_OPENS.match(text) is not None),
        away=float(away is not None or counter is not None),
        away_at=turn / len(text) if turn else 0.0,
        news=float(_NEWS.search(text) is not None),
        news_first=float(_BEGINS_WITH_NEWS.match(text) is not None),
        more=float(_ASKS_FOR_MORE.search(text) is not None),
        speaks=min(1.0, len(_SPEAKS.findall(text)) / 4),
        asks=float(text.rstrip(" ~～!！").endswith(_ASKS)),
    )
