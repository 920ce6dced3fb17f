"""Places, people and things that a text names, in the order of the text. By rules; English and Chinese."""
# ruff: noqa: E501, RUF001, SIM905 - Chinese; word lists and patterns are read better unbroken

import re
from functools import cache

from engramlog.engine.gazetteer import PLACES

MAX_CHARS = 1_000
"""So much of a turn is looked at, from its end: what was said last is what a pronoun means."""

MAX_REFERENT_CHARS = 48

Found = list[tuple[int, str]]

_NOT_NAMES = frozenset(
    "i i'm i've i'll i'd ok okay yes no hi hello hey thanks thank please monday tuesday wednesday thursday friday saturday "
    "sunday january february march april may june july august september october november december english chinese french "
    "german spanish japanese christmas easter the a an my our your his her their this that these those it he she they we "
    "you what when where who why how which do does did is are was were can could will would should and but so or if in on "
    "at to for from with not then there here oh wow great sure maybe well also just let let's tell show give have has had "
    "yesterday today tomorrow last next some any every all after before because while since look god sounds sorry good "
    "nice glad really absolutely definitely congrats congratulations that's it's what's how's mr mrs ms dr".split()
)
_CAPITALISED = re.compile(r"\b[A-Z][\w'-]*(?: (?:de |van |von )?[A-Z][\w'-]*){0,2}")
_TOWARDS = re.compile(
    r"\b(?:in|to|at|from|near|around|visit(?:ed|ing)?|leave|left|leaving|reach(?:ed)?) (?:the )?$", re.IGNORECASE
)
_FEMALE = "mother|mom|mum|sister|wife|girlfriend|daughter|aunt|grandmother|grandma|niece|fiancée"
_MALE = "father|dad|brother|husband|boyfriend|son|uncle|grandfather|grandpa|nephew|fiancé"
_ANY_KIN = (
    "boss|manager|friend|colleague|neighbour|neighbor|teacher|doctor|roommate|landlord|partner|cousin|client|dentist"
)
_KIN = re.compile(
    rf"\b(?:my|our|the|her|his) (?P<who>(?:\w+ )?(?:{_FEMALE}|{_MALE}|{_ANY_KIN}|parents|kids|children|friends))\b",
    re.IGNORECASE,
)
_PERSON_CUE = re.compile(
    r"^(?:'s)? (?:said|says|told|is|was|has|had|wants|wanted|asked|likes|loves|lives|works|called|will|came|went|thinks|just|and i|recommended|sent|gave|moved|and)\b",
    re.IGNORECASE,
)
_BEFORE_PERSON = re.compile(
    r"\b(?:with|told|met|meet|meeting|saw|see|called|call|asked|ask|by|named|and|friend|sister|brother|boss|colleague|manager|wife|husband|teacher|neighbour|son|daughter|visiting|about|from|for|miss|helped|know|is) $",
    re.IGNORECASE,
)
_THING = re.compile(
    r"\b(?:an?|the|my|our|your|some|new|called|bought) "
    r"(?P<what>(?!(?:an?|the|my|our|your|some|this|that|it|me|us) )(?:[a-z][\w-]* ){0,3}?[a-z][\w-]*)(?= (?:is|was|are|were|has|had|will|can|for|in|on|at|to|from|with|of|and|"
    r"but|that|which|who|last|yesterday|today|by|when|because|so|it|this|next|about|again|as|i|we|into|after|before|now|too)\b|[.,!?;:)\n]|$)",
    re.IGNORECASE,
)
_NO_THINGS = frozenset(
    "time day days week month year lot bit moment way thing things one ones weekend morning evening night afternoon world "
    "same most best first last end rest other others idea good great nice it that this them people someone something anything everything everyone everywhere impact difference name life chance "
    "experience memory memories journey support feeling feelings emotions look heart part step break lots few couple while point "
    "weather? plan? i we you they he she me him her us".replace("weather? plan? ", "").split()
)  # fmt: skip
_CAPITAL_THING = re.compile(r"\b(?:[A-Z]+[a-z]*[A-Z]\w*|i[A-Z]\w+|[A-Z][\w]*\d\w*)\b")

_HAN_PLACE = re.compile(
    r"(?:[在去到从回往住玩离]|来自|前往|抵达|参观|搬到)了?(?P<where>[一-鿿]{1,5}?(?:市|省|县|区|岛|镇|村|路|街|山|湖|古城|机场|公园|大学|餐厅|医院|车站|广场|商场))"
)
_HAN_FEMALE = "妈妈|母亲|妈|姐姐|妹妹|姐|妹|老婆|妻子|太太|媳妇|女朋友|女友|女儿|闺女|奶奶|外婆|姥姥|阿姨|姑姑|闺蜜"
_HAN_MALE = "爸爸|父亲|爸|哥哥|弟弟|哥|弟|老公|丈夫|男朋友|男友|儿子|爷爷|外公|姥爷|叔叔|舅舅|哥们"
_HAN_KIN = re.compile(
    rf"我们?(?:家|的)?(?P<who>{_HAN_FEMALE}|{_HAN_MALE}|同事|朋友|同学|室友|邻居|老板|领导|老师|导师|客户|经理|父母|爸妈)"
)
_SURNAMES = "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗梁宋郑谢韩唐冯于董萧程曹袁邓许傅沈曾彭吕苏卢蒋蔡贾丁魏薛叶阎余潘杜戴夏钟汪田任姜范方石姚谭廖邹熊金陆郝孔白崔康毛邱秦江史顾侯邵孟龙万段雷钱汤尹黎易常武乔贺赖龚文"
_HAN_NAME = re.compile(
    rf"(?P<a>(?:小|老|阿)[一-鿿](?=[说在是有也的和跟把最去来想要喜不给昨今明前刚从住，。！？、]|$))"
    rf"|(?<![一-鿿])(?P<b>[{_SURNAMES}][一-鿿]{{1,2}}?)(?=[说在是有也和跟把最去来想要喜给昨今明刚从住对告推送])"
    rf"|(?<=[和跟叫见给是找问约])(?P<c>[{_SURNAMES}][一-鿿]{{1,2}}?)(?=[说在是有也和跟去来想要吃聊见一的，。！？、]|$)"
    rf"|(?P<d>[{_SURNAMES}][一-鿿]?(?:先生|女士|老师|医生|经理|总|教授|师傅|阿姨|叔叔|姐|哥|主任|工))"
)
_HAN_TITLE = re.compile(r"[《「『“]([^》」』”]{1,24})[》」』”]")
_HAN_THING = re.compile(
    r"(?:买了?|用了?|看了?|在看|读了?|在读|做了?|写了?|学了?|在学|吃了?|喝了?|玩了?|养了?|有了?|换了?|换成了?|聊聊?|讨论|关于|推荐|装了?|"
    r"订了?|丢了?|修了?|弹|练|种了?|收到了?|参加了?|报名了?|想要|搞定了?|安装了?|喜欢)(?:一?[个台本部只条件张把辆套份款双场次门杯盒棵]|[一两三几][个台本部只条件张把辆套份款双场次门杯盒棵])?"
    r"(?P<what>(?!我|你|他|她|它|这|那|了|过|的|得|着|什么|不|很|一下|起来|出来|到)[一-鿿A-Za-z0-9]{2,10}?)(?=[，。！？、,.!?\s]|了|的|吧|呢|吗|很|真|特别|挺|怎么|是|还|给|来|去|在|$)"
)


def tail(text: str) -> str:
    """The part of a turn that is looked at."""
    return text[-MAX_CHARS:]


@cache
def _han_places() -> re.Pattern[str]:
    names = sorted((name for name in PLACES if not name.isascii()), key=len, reverse=True)
    return re.compile("|".join(names))


def _spans(text: str) -> list[tuple[int, str, bool, bool]]:
    """Capitalised names: where, the name, whether it is a known place, whether a preposition of place precedes."""
    spans = []
    for found in _CAPITALISED.finditer(text):
        words = found[0].split()
        start = found.start()
        while words and words[0].lower() in _NOT_NAMES:
            start += len(words[0]) + 1
            words = words[1:]
        name = " ".join(words).removesuffix("'s")
        if not name or name.lower() in _NOT_NAMES:
            continue
        known = name.lower() in PLACES or (" " not in name and name.lower() in PLACES)
        spans.append((start, name, known, bool(_TOWARDS.search(text[max(0, start - 20) : start]))))
    return spans


def places_in(text: str) -> Found:
    """Where, and which place: known ones, Chinese ones by their suffix, English ones after a preposition of place."""
    text = tail(text)
    found: Found = [(start, name) for start, name, known, towards in _spans(text) if known or towards]
    found += [(m.start(), m[0]) for m in _han_places().finditer(text)]
    found += [(m.start("where"), m["where"]) for m in _HAN_PLACE.finditer(text)]
    return sorted(set(found))


def names_in(text: str) -> Found:
    """Where, and which capitalised name that is no known place: in a question, whoever it is."""
    return [(start, name) for start, name, known, _ in _spans(tail(text)) if not known]


def people_in(text: str, *, female: bool | None = None) -> Found:
    """Where, and who: relatives ("my sister", 我姐) and names.

    Args:
        text: The text.
        female: Leave out those known to be of the other sex; None: none.
    """
    text = tail(text)
    found: Found = []
    for start, name, known, towards in _spans(text):
        before = text[max(0, start - 16) : start]
        after = text[start + len(name) : start + len(name) + 16]
        if known or (towards and not _PERSON_CUE.search(after)) or _CAPITAL_THING.fullmatch(name):
            continue
        if _PERSON_CUE.search(after) or _BEFORE_PERSON.search(before):
            found.append((start, name))
    found += [(m.start("who"), m["who"]) for m in _KIN.finditer(text)]
    found += [(m.start("who"), m["who"]) for m in _HAN_KIN.finditer(text)]
    found += [(m.start(), m[0]) for m in _HAN_NAME.finditer(text) if m[0] not in PLACES]
    if female is not None:
        other = re.compile(
            rf"\b(?:{_MALE})$|{_HAN_MALE}|先生" if female else rf"\b(?:{_FEMALE})$|{_HAN_FEMALE}|女士", re.IGNORECASE
        )
        found = [(at, who) for at, who in found if not other.search(who)]
    return sorted(set(found))


def things_in(text: str) -> Found:
    """Where, and what: English noun phrases after an article, product names, Chinese titles and objects."""
    text = tail(text)
    people = {name for _, name in people_in(text)}
    places = {name for _, name in places_in(text)}
    found: Found = []
    for match in _THING.finditer(text):
        words = match["what"].split()
        if words[-1].lower() not in _NO_THINGS and match["what"] not in people and match["what"].lower() not in PLACES:
            found.append((match.start("what"), match["what"]))
    found += [(m.start(), m[0]) for m in _CAPITAL_THING.finditer(text)]
    found += [(m.start(1), m[1]) for m in _HAN_TITLE.finditer(text)]
    found += [(m.start("what"), m["what"]) for m in _HAN_THING.finditer(text) if m["what"] not in places]
    return sorted((at, what) for at, what in set(found) if what not in people and len(what) <= MAX_REFERENT_CHARS)
