"""Ways of living of which one excludes the others, told by many words. English and Chinese."""
# ruff: noqa: E501 - a table of patterns

import re
from collections.abc import Iterator
from functools import cache

from engramlog.engine.conflicts.claims import ME, Claim

_WAYS: tuple[tuple[str, str, str], ...] = (
    ("housing", "rented", r"\brent(?:s|ing)? (?:an? |my |our |the )?(?:\w+ )?(?:flat|apartment|room|house|studio|place)\b|租房|租的房|租住"),
    ("housing", "owned", r"\b(?:bought|own|owns) (?:an? |my |our )?(?:own )?(?:\w+ )?(?:flat|apartment|house|place|home)\b|买了(?:新|二手|套)?房|自己的房子"),
    ("occupation", "studying", r"\b(?:am|is|still) an? (?:\w+ )?student\b|读(?:大[学一二三四]|高中|研究?生?|博士?)|上(?:大[学一二三四]|高中)|还在上学|是(?:一名|个)?.{0,4}学生"),
    ("occupation", "working", r"\bwork(?:s|ing)? (?:full-time|as an?|at|for) |工作(?:了)?.{1,3}年|去公司上班|每天.{0,8}上班|在.{2,8}上班"),
    ("occupation", "retired", r"\b(?:am|is|have|has) (?:\w+ )?retired\b|\bretired (?:last|in)\b|退休(?!前|以?后)"),
    ("occupation", "unemployed", r"\b(?:unemployed|jobless|out of work|between jobs)\b|失业|待业|没(?:有)?工作"),
    ("company", "alone", r"\bliv(?:e|es|ing) (?:alone|by myself|on my own)\b|一个人住|独居|自己住"),
    ("company", "shared", r"\b(?:roommates?|flatmates?|housemates?)\b|\bliv(?:e|es|ing) with (?:my )?\w+|室友|合租|和.{1,6}(?:一起|同)住"),
    ("shift", "night", r"\bnight shifts?\b|夜班"),
    ("shift", "day", r"\bday shifts?\b|白班"),
    ("sweetness", "none", r"\bcoffee (?:black|without|with no|unsweetened)|\bblack coffee\b|咖啡.{0,3}(?:不加|不放|无)糖|黑咖啡"),
    ("sweetness", "some", r"\bcoffee with .{0,12}(?:sugar|milk)|\bsugars? in my coffee|咖啡.{0,6}(?<!不)(?:要|得|必须|喜欢)?(?:多)?[加放](?:糖|奶)"),
    ("rising", "early", r"\bmorning person\b|\bearly (?:bird|riser)\b|早睡|早起"),
    ("rising", "late", r"\bnight owl\b|\b(?:sleep in|stay up late)\b|晚睡|熬夜|夜猫子|睡到中午|睡懒觉"),
    ("telephone", "apple", r"\biphones?\b|苹果手机|手机.{0,4}苹果"),
    ("telephone", "android", r"\b(?:android|pixel|samsung|huawei|xiaomi)\b|安卓|(?:用|手机|换).{0,4}(?:华为|小米|三星)|(?:华为|小米|三星)手机"),
    ("zodiac", r"\1", r"属([鼠牛虎兔龙蛇马羊猴鸡狗猪])"),
    ("sign", r"\1", r"(白羊|金牛|双子|巨蟹|狮子|处女|天秤|天蝎|射手|摩羯|水瓶|双鱼)座"),
    ("hand", "left", r"\bleft-handed\b|左撇子"),
    ("hand", "right", r"\bright-handed\b|右撇子"),
    ("licence", "none", r"\b(?:no|not have a|without a) (?:driver'?s?'?|driving) licen[cs]e|没(?:有)?(?:考)?驾照|不会开车|\bcan not drive\b"),
    ("licence", "some", r"\b(?:drive|drove|driving) (?:\w+ )?(?:to|from|a|my)\b|(?<!不会)(?<!没)(?<!能)开车(?:去|上|回|到|来)"),
    ("exercise", "none", r"\bnever (?:exercise|work out|do sports?)\b|从不运动|从来不(?:运动|锻炼)|不(?:爱|喜欢)运动"),
    ("exercise", "some", r"\b(?:exercise|work out|go to the gym|run|jog|train) (?:every|daily|\w+ times)|(?:每天|天天|每周.{0,3}|坚持)(?:都|去)?.{0,4}(?:跑步|健身|锻炼|运动|游泳)"),
    ("abroad", "never", r"\bnever (?:been|lived|travelled|traveled|gone|set foot) (?:abroad|outside)|没(?:有)?出过国"),
    ("abroad", "been", r"\b(?:lived|studied|worked|spent) (?:in (?:spain|france|germany|japan|italy|the us|canada|london|paris)|abroad|overseas)\b|留学|在(?:德国|美国|英国|日本|法国|国外|海外).{0,8}年|去过?(?:日本|泰国|韩国|美国|法国)"),
    ("reading", "paper", r"\bonly (?:read )?(?:paper|printed) books\b|只看纸质书"),
    ("reading", "screen", r"\bread (?:everything )?on (?:my|a) kindle\b|只看电子书"),
)  # fmt: skip
"""Set, member, and the words that tell it."""

_NOT_QUITE = re.compile(
    r"\b(?:not|no longer|used to|stopped|quit|want|learning|plan(?:ning)?)\b|不再|不是|不用|以前|想|打算|准备|戒|学"
)


@cache
def _compiled() -> list[tuple[str, str, re.Pattern[str]]]:
    return [(group, member, re.compile(pattern, re.IGNORECASE)) for group, member, pattern in _WAYS]


def ways_in(predicate: str) -> Iterator[Claim]:
    """The ways of living that a predicate affirms. What is denied or only wished for affirms none."""
    for group, member, pattern in _compiled():
        found = pattern.search(predicate)
        if found and not (_NOT_QUITE.search(predicate[: found.start()])):
            yield Claim(ME, f"one:way {group}", frozenset({f"<{found.expand(member)}>"}))
