"""Dates, times, numbers and versions in a text, each in one spelling. English and Chinese."""
# ruff: noqa: SIM905 - a word list is read better unbroken

import re

from engramlog.engine.conflicts.claims import Value

_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DIGITS = {"零": 0, "一": 1, "二": 2, "两": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8, "九": 9}
_TENS = {"十": 10, "百": 100, "千": 1_000}
_WORDS = {w: n for n, w in enumerate("zero one two three four five six seven eight nine ten eleven twelve".split())}
_COLOURS = (
    "red|blue|green|black|white|yellow|grey|gray|silver|purple|pink|红色|蓝色|绿色|黑色|白色|黄色|灰色|银色|紫色|粉色"
)
_N = r"(?:\d{1,9}|[零一二两三四五六七八九十百千]{1,7})"

_WEEKDAY = re.compile(
    r"\b(mon|tues|wednes|thurs|fri|satur|sun)days?\b|(?:周|星期|礼拜)([一二三四五六日天])", re.IGNORECASE
)
_DAY = re.compile(
    r"\b(jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]{0,6}\.? (\d{1,2})(?:st|nd|rd|th)?\b"
    r"|\b(\d{1,2})(?:st|nd|rd|th)? (?:of )?(jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]{0,6}\b"
    rf"|({_N})月({_N})[日号]?|\d{{4}}-(\d\d)-(\d\d)",
    re.IGNORECASE,
)
_DAY_OF_MONTH = re.compile(rf"(?<!月)({_N})号(?!楼|线|店)|\bthe (\d{{1,2}})(?:st|nd|rd|th)\b")
_MONTH = re.compile(
    r"\b(january|february|march|april|june|july|august|september|october|november|december)\b(?! \d)"
    rf"|({_N})月(?!\d|[零一二两三四五六七八九十])|({_N})月[份底初]",
    re.IGNORECASE,
)
_CLOCK = re.compile(
    r"\b(\d{1,2})(?::(\d\d))? ?([ap])\.?m\b|\b(\d{1,2}):(\d\d)\b"
    rf"|(早上|上午|中午|下午|晚上|凌晨)?({_N})点(半|{_N}分)?",
    re.IGNORECASE,
)
_VERSION = re.compile(r"\bv?(\d+\.\d+(?:\.\d+)*)\b(?! ?(?:%|万|元|k?m\b|kg))", re.IGNORECASE)
_PHONE = re.compile(r"(?<!\d)\+?\d[\d -]{5,15}\d(?!\d)")
_NUMBER = re.compile(
    r"(?<![\w.:/-])[$€£¥]?(\d[\d,]{0,14}(?:\.\d+)?) ?(k\b|万|千|亿)? ?([%a-z一-鿿]{0,12})", re.IGNORECASE
)
_UNITS = {
    "块": "元",
    **dict.fromkeys(
        "thousand now and per for in on at or the to each but total 了 吧 的 左 以 呢 多 不 啊".split(), ""
    ),
}
_SPOKEN = re.compile(
    rf"\b({'|'.join(_WORDS)}) (hour|minute|time|day|people|employee|member|week|year|month)s?\b", re.IGNORECASE
)
_HOUR = re.compile(rf"\bat ({'|'.join(_WORDS)}|\d{{1,2}})\b(?! ?(?:[ap]\.?m|:|%|euro|dollar))", re.IGNORECASE)
_METRES = re.compile(rf"({_N})米({_N})?")
_COUNTED = re.compile(r"([零一二两三四五六七八九十百千]{1,7})(万)?(元|块|岁|个|名|人|台|次|天|周|公里|斤|分钟|小时)")
_COLOUR = re.compile(rf"\b(?:{_COLOURS})\b|{_COLOURS[_COLOURS.index('红') :]}", re.IGNORECASE)


def number(text: str) -> int:
    """The value of digits, of an English number word, or of a Chinese numeral below ten thousand; else -1."""
    if text.isdigit() and text.isascii():
        return int(text)
    if text in _WORDS:
        return _WORDS[text]
    total, digit = 0, 0
    for char in text:
        if char in _DIGITS:
            digit = _DIGITS[char]
        elif char in _TENS:
            total, digit = total + (digit or 1) * _TENS[char], 0
        else:
            return -1
    return total + digit if text else -1


def _month(name: str) -> str:
    return str(_MONTHS.index(name[:3].lower()) + 1)


def _dates(text: str) -> set[Value]:
    found: set[Value] = set()
    for english, chinese in _WEEKDAY.findall(text):
        day = _WEEKDAYS.index(english[:3].lower()) if english else "一二三四五六日".find(chinese.replace("天", "日"))
        found.add(("weekday", str(day)))
    for m1, d1, d2, m2, m3, d3, m4, d4 in _DAY.findall(text):
        month = _month(m1 or m2) if m1 or m2 else str(number(m3 or m4))
        found.update({("month", month), ("day", str(number(d1 or d2 or d3 or d4)))})
    found.update(("day", str(number(a or b))) for a, b in _DAY_OF_MONTH.findall(text))
    for english, chinese, other in _MONTH.findall(text):
        found.add(("month", _month(english) if english else str(number(chinese or other))))
    return found


def _clocks(text: str) -> set[Value]:
    found: set[Value] = set()
    for h1, min1, half, h2, min2, part, h3, rest in _CLOCK.findall(text):
        if h3:
            hour, minute = number(h3), 30 if rest == "半" else number(rest[:-1]) if rest else 0
            late = part in {"下午", "晚上"}
        else:
            hour, minute, late = int(h1 or h2), int(min1 or min2 or 0), half.lower() == "p"
        found.add(("clock", str((hour % 12 + 12 * late if late or half else hour) * 60 + minute)))
    found.update(("clock", str(number(hour.lower()) * 60)) for hour in _HOUR.findall(text))
    return found


def _numbers(text: str) -> set[Value]:
    found: set[Value] = set()
    for digits, scale, unit in _NUMBER.findall(text):
        plain = digits.replace(",", "").rstrip(".")
        factor = {"k": 1_000, "千": 1_000, "万": 10_000, "亿": 100_000_000}.get(scale.lower(), 1)
        first = re.match(r"%|[a-z]+|[一-鿿]", unit.lower())
        name = _UNITS.get(first[0], first[0].rstrip("s")) if first else ""
        found.add((f"num:{name}", f"{float(plain) * factor:g}" if plain else "0"))
    found.update((f"num:{unit.lower()}", str(number(word.lower()))) for word, unit in _SPOKEN.findall(text))
    for metres, rest in _METRES.findall(text):
        centimetres = number(rest) if rest else 0
        found.add(("num:cm", str(number(metres) * 100 + centimetres * (10 if centimetres < 10 else 1))))  # noqa: PLR2004 - 一米七
    for digits, scale, unit in _COUNTED.findall(text):
        value = number(digits) * (10_000 if scale else 1)
        found.add((f"num:{'元' if unit == '块' else unit}", f"{value:g}"))
    return found


def values_in(text: str) -> frozenset[Value]:
    """All typed values of a text: weekdays, days and months, clock times, versions, phone numbers, numbers, colours."""
    found: set[Value] = set()
    if _COLOUR.search(text):
        found.update(("colour", colour.lower()) for colour in _COLOUR.findall(text))
    found |= _dates(text) | _clocks(text)
    phones = [re.sub(r"\D", "", phone) for phone in _PHONE.findall(text)]
    if any(len(phone) >= 7 for phone in phones) and not found:  # noqa: PLR2004 - shorter ones are numbers
        return frozenset(("phone", phone) for phone in phones)
    if any(version := _VERSION.findall(text)):
        found.update(("version", v) for v in version)
    elif not any(kind in {"day", "clock"} for kind, _ in found):
        found |= _numbers(text)
    return frozenset(found)
