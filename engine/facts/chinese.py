"""What a Chinese sentence states of its speaker."""
# ruff: noqa: RUF001, RUF002 - Chinese punctuation is meant

import re
from collections.abc import Iterator
from typing import Final

from engramlog.engine.facts.chinese_rules import RULES, Rule
from engramlog.engine.facts.fact import Found

MAX_CHARS: Final = 80
_LISTED: Final = 5

_CLAUSE: Final = re.compile(r"[^，,；;：:]+")
_TRAILING: Final = re.compile(r"(?:[^\w》」』”)）]|[的呀啊哦呢吧啦哈])+$")
_CORRECTION: Final = re.compile(
    r"^(?:不对|不是|更正一?下?|纠正一?下?|我?(?:说|记|打|写)错了)[，,：:\s]+(?P<what>(?:应该|其实|正确的?)?(?:应该)?是[^。！？!?]{1,60})"
)
_STOPS: Final = re.compile(r"[。！？!?…~～]+")
_ASKED: Final = re.compile(
    r"[吗呢么嘛][”」』）)]*$|什么|怎么|怎样|如何|哪[里儿些个种]|为何|为什么|多少|几[个种次]|有没有|是不是|能不能|会不会|可不可以|"
    r"要不要|该不该|是否|好不好|谁"
)
_UNREAL: Final = re.compile(
    r"[如假]果|要是|假如|假设|倘若|的话|或许|也许|可能|万一|幻想|梦见|梦到|差点|本来|本想|原本|考虑|犹豫|不确定|不知道|想过|应该|"
    r"可以|能够|希望|但愿|似乎|好像|试试|尝试一下|等我|当我"
)
_OTHERS_SAY: Final = re.compile(
    r"(?<![我])(?:说过?|告诉|认为|以为|觉得)我|听说|据说|歌词|台词|书里|小说里|电影里|写道|有人说|他说|她说|他们说|人家说|不是说|谁说|问我"
)
_YOU: Final = re.compile(r"[你您]")
_OTHERS: Final = re.compile(
    r"(?<!其)[他她它]|别人|大家|人们|(?<![和跟与同])(?<![和跟与同]我的)(?<![和跟与同]我)(?:朋友|同事|老板|妈妈|爸爸|老师|教练|妻子|丈夫|老公|老婆)(?!们?[一聚])"
)
_OTHER_SUBJECT: Final = re.compile(f"{_OTHERS.pattern}|{_YOU.pattern}")
_OPENING: Final = re.compile(
    r"^(?:嗯+|恩+|呃|哦|噢|啊|哈哈+|对[了啊]?|是[的啊]|好的?|没错|其实|不过|但是?|而且|所以|另外|还有|因为|然后|那么?|因此|于是|"
    r"确实|说起来|顺便(?:说|告诉你)?(?:一下)?|话说|总之|毕竟|虽然|除此之外|同时|后来|实际上|老实说|说实话)+"
)
_SELF: Final = re.compile(r"我们?(?!的?(?:妈|爸|哥|姐|弟|妹|朋友|同事|老板|家人|父|母))|咱们?|本人")


def chinese_facts(sentence: str, name: str, *, may_be_elided: bool = True) -> Iterator[Found]:
    """The statements of a sentence, in its order, at most one a clause.

    A clause without a subject belongs to the speaker when the last subject that was named is the speaker, or when none
    was named yet and ``may_be_elided``: users leave themselves out, assistants begin advice like that.
    """
    if _OTHERS_SAY.search(sentence):
        return
    if corrected := _CORRECTION.match(sentence):
        said = _TRAILING.sub("", corrected["what"])
        if not _ASKED.search(said):
            yield Found("fact", f"{name}更正：{said}。", 0.85, corrected.start(), corrected.end())
        return
    about_self = may_be_elided
    for clause in _CLAUSE.finditer(_STOPS.sub(lambda m: "，" * len(m[0]), sentence)):
        said = clause[0].rstrip()
        opening = _OPENING.match(said.lstrip())
        start = clause.start() + len(said) - len(said.lstrip()) + (opening.end() if opening else 0)
        bare = sentence[start : clause.start() + len(said)]
        found = _of_clause(sentence, bare, start=start, elided=about_self and not _named_other(bare), name=name)
        about_self = _goes_on(bare, about_self=about_self)
        if found:
            yield found


def _goes_on(clause: str, *, about_self: bool) -> bool:
    """Whether a clause without a subject would be about the speaker after this one."""
    last = max((found.start() for found in _SELF.finditer(clause)), default=-1)
    other = max((found.start() for found in _OTHER_SUBJECT.finditer(clause)), default=-1)
    return about_self if last == other == -1 else last > other


def _named_other(clause: str) -> bool:
    return _OTHER_SUBJECT.search(clause) is not None and _SELF.search(clause) is None


def _of_clause(sentence: str, bare: str, *, start: int, elided: bool, name: str) -> Found | None:
    end = _with_list(sentence, start + len(bare))
    if not bare or _ASKED.search(bare):
        return None
    unreal = _UNREAL.search(bare) is not None
    for rule in RULES:
        match = rule.pattern.search(bare)
        if not match or (unreal and rule.kind != "rule"):
            continue
        if not (match["self"] or (elided and match.start() == 0) or rule.kind == "rule"):
            continue
        said = sentence[start + match.start() : end][:MAX_CHARS].rstrip("，,；;。！!~ ")
        if rule.kind != "rule" and _YOU.search(said):
            continue
        if rule.refused and rule.refused.search(said):
            continue
        return Found(
            rule.kind,
            _told(rule, said, name),
            rule.confidence,
            start + match.start(),
            start + match.start() + len(said),
        )
    return None


def _with_list(sentence: str, end: int) -> int:
    """Where a statement ends that goes on in a list: "我喜欢唱歌，健身，摄影" or "…，比如《飘》"."""
    while more := re.match(r"，(?:比如|例如|尤其|特别是|包括|像是?|如《)?[^，。！？；,!?;]{1,24}", sentence[end:]):
        piece = more[0]
        short = len(piece) <= _LISTED and not re.search(r"[我你他她它这那是的了吧呢吗很]", piece)
        if (
            not (short or re.match(r"，(?:比如|例如|尤其|特别是|包括|像|如《)", piece))
            or _ASKED.search(piece)
            or _YOU.search(piece)
        ):
            break
        end += more.end()
    return end


def _told(rule: Rule, said: str, name: str) -> str:
    if rule.kind == "rule":
        return f"{name}要求{_TRAILING.sub('', re.sub('^(?:[你您请]|可以|就)+', '', said).replace('我', '自己'))}。"
    text = re.sub(r"我们|咱们?|我|本人", name, said, count=1) if _SELF.search(said) else f"{name}{said}"
    text = re.sub(r"我们|我|咱们?", "自己", text)
    text = re.sub(r"自己(?:自己)+", "自己", text)
    if text.startswith(f"{name}叫") or text == f"{name}是{name}":
        text = re.sub(r"^.*?(?:叫做?|是)", lambda _: f"{name}的名字是", text, count=1)
    return _TRAILING.sub("", re.sub(r"\s+", " ", text)) + "。"
