# ruff: noqa: RUF001 - Chinese punctuation is meant
"""What speakers state plainly of themselves: their name, where they live and work, what they like, have, hate."""

import re
from collections.abc import Iterator
from typing import Final

from engramlog.engine.derivers.texts import Reading
from engramlog.schemas.derived import Relation
from engramlog.schemas.records import MemoryRecord

MAX_RELATIONS: Final = 16
SPEAKER: Final = "user"

_END: Final = (
    r"(?=\s*(?:[,.;:!?()\n]|\b(?:and|but|because|since|so|when|where|while|with|which|who|that|though|now|too|these|right"
    r"|as well|a lot|very much|anymore)\b|$))"
)
_OBJECT: Final = r"(?P<object>[^\s,.;:!?()][^,.;:!?()\n]{0,60}?)" + _END
_I: Final = (
    r"(?<![\w'])I(?:\s(?:really|also|still|just|absolutely|totally|always|now|currently|actually|do|truly|simply|mostly))"
    r"{0,2}\s"
)
_AM: Final = r"(?<![\w'])I(?:\sam|'m)\s(?:also\s|still\s|currently\s|really\s|now\s)?"
_NOT_THAT: Final = r"(?!(?:that|your?|it|this|them|how|to\ssee|the\sway|when|what)\b)"
_A: Final = r"(?=(?:an?|two|three|four|five|\d{1,3})\s)"
_NOTHING_OWNED: Final = (
    r"(?!a\s(?:question|problem|lot|feeling|good|great|look|idea|plan|chance|blast|nice|hard|bit|few)\b)"
)
_ENGLISH: Final = tuple(
    (predicate, re.compile(pattern + _OBJECT, re.IGNORECASE))
    for predicate, pattern in (
        ("name_is", r"\bmy\s(?:full\s|first\s)?name(?:\sis|'s)\s"),
        ("is_called", r"\b(?:please\s)?call\sme\s(?!(?:back|when|if|later|at|on|tomorrow|today)\b)"),
        ("lives_in", _I + r"live\s(?:in|near|at)\s"),
        ("lives_in", _AM + r"(?:living|based)\sin\s"),
        ("moved_to", _I + r"(?:just\s|recently\s)?moved\sto\s"),
        ("comes_from", _AM + r"(?:originally\s)?from\s"),
        ("works_at", _I + r"work\s(?:at|for)\s"),
        ("works_at", _AM + r"working\s(?:at|for)\s(?!(?:an?\s|the\slast|\d))"),
        ("works_as", _I + r"work\sas\s(?:an?\s)?"),
        ("works_as", _AM + r"working\sas\s(?:an?\s)?"),
        ("works_as", r"\bmy\sjob\sis\s(?:an?\s)?"),
        ("allergic_to", _AM + r"(?:very\s|severely\s)?allergic\sto\s"),
        ("likes", _I + r"(?:like|enjoy)\s" + _NOT_THAT),
        ("loves", _I + r"(?:love|adore)\s" + _NOT_THAT),
        ("hates", _I + r"(?:hate|can'?t\sstand)\s" + _NOT_THAT),
        ("dislikes", _I + r"(?:dislike|don'?t\slike|do\snot\slike|don'?t\senjoy|do\snot\senjoy)\s" + _NOT_THAT),
        ("prefers", _I + r"prefer\s" + _NOT_THAT),
        ("has", _I + r"(?:have|own|keep)\s" + _A + _NOTHING_OWNED),
        ("has", r"(?<![\w'])I've\sgot\s" + _A + _NOTHING_OWNED),
    )
)

_STOP_ZH: Final = r"[^\s，。！？、；：,.!?;:（）()“”\"]"
_OBJECT_ZH: Final = (
    rf"(?!的)(?P<object>{_STOP_ZH}{{1,24}}?)(?=[，。！？、；：,.!?;:（）()“”\"\s]|但|因为|所以|的时候|，|工作|上班|$)"
)
_MOD: Final = r"(?:自己|一直|最|也|还|真的|非常|很|特别|比较|平时|现在|目前|就)?"
_ME: Final = rf"(?:我|(?<=[，,；;]){{elided}}){_MOD}"
_WE: Final = r"我(?:们)?(?:家)?(?:里)?"
_OTHERS: Final = r"(?!你|您|他|她|它|这|那)"
_CHINESE: Final = (
    (
        "name_is",
        r"(?:我叫|我的名字(?:是|叫))(?P<object>[\u4e00-\u9fffA-Za-z·]{2,12}?)(?=[，。！？、,.!?\s]|今年|是|住|来自|在|$)",
    ),
    ("lives_in", _ME + r"(?:住在|家住|定居在)(?!这里|那里|一起)" + _OBJECT_ZH),
    ("moved_to", _ME + r"(?:刚|最近|已经)?(?:搬到|搬去)了?" + _OBJECT_ZH),
    ("comes_from", _ME + r"(?:是从|来自)" + _OBJECT_ZH),
    ("works_at", _ME + rf"在(?P<object>{_STOP_ZH}{{2,16}}?)(?:工作|上班|任职|实习)"),
    ("works_as", _ME + r"(?:是|当|做)(?:一名|一个|一位)(?P<object>[^\s，。！？、；：,.!?的]{2,12})"),
    ("allergic_to", _ME + rf"对(?P<object>{_STOP_ZH}{{1,16}}?)(?:严重)?过敏"),
    ("dislikes", _ME + r"不(?:太|大|怎么)?喜欢" + _OTHERS + _OBJECT_ZH),
    ("hates", _ME + r"(?:讨厌|厌恶|受不了)" + _OTHERS + _OBJECT_ZH),
    ("likes", _ME + r"(?:喜欢|喜爱|爱好是|热爱)" + _OTHERS + _OBJECT_ZH),
    ("likes", _ME + r"爱(?=[看吃听玩喝读])" + _OBJECT_ZH),
    ("prefers", _ME + r"更(?:喜欢|倾向于|偏好)" + _OTHERS + _OBJECT_ZH),
    (
        "has",
        _WE
        + r"(?:养了?|有|还有|还养了?)(?P<object>[一二两三四五六\d]{1,2}"
        + r"(?:只|条|位|匹|辆|台|套|个(?=女儿|儿子|孩子|哥|姐|弟|妹))"
        + r"[^\s，。！？、；：,.!?的]{1,12})",
    ),
)
_FULL, _ELIDED = (
    tuple((predicate, re.compile(pattern.replace("{elided}", elided))) for predicate, pattern in _CHINESE)
    for elided in (r"(?!)", "")
)
_SPEAKS_OF_SELF: Final = re.compile(
    r"^\W*(?:(?:你好|您好|大家好|嗨)\W*)?我(?!的|妈|爸|哥|姐|弟|妹|朋友|同事|老板|家|女|儿|老)"
)
_OF_OTHERS: Final = re.compile(r"[他她它]|我的|我(?:妈|爸|哥|姐|弟|妹|朋友|同事|老板|女|儿|老)|你|您")


def relations_of(record: MemoryRecord, reading: Reading) -> tuple[Relation, ...]:
    """The plain statements of a text about its speaker, in the order of the text, at most 16.

    The subject is the record's ``role_name``, else ``user``. What assistants and tools say of themselves states
    nothing, nor does a question.
    """
    if record.role != "user":
        return ()
    found: dict[tuple[str, str], None] = {}
    for sentence in reading.sentences:
        if not sentence.endswith(("?", "？", "吗")):
            found.update(dict.fromkeys(_statements(sentence[:1_000].replace("\u2019", "'"))))
        if len(found) >= MAX_RELATIONS:
            break
    subject = record.role_name or SPEAKER
    stated = list(found)[:MAX_RELATIONS]
    return tuple(Relation(subject=subject, predicate=predicate, object=thing) for predicate, thing in stated)


def _statements(sentence: str) -> Iterator[tuple[str, str]]:
    patterns: tuple[tuple[str, re.Pattern[str]], ...] = _ENGLISH
    if "我" in sentence:
        alone = _SPEAKS_OF_SELF.match(sentence) and not _OF_OTHERS.search(sentence)
        patterns = _ELIDED if alone else _FULL
    matches = [
        (match.start("object"), predicate, match.group("object").strip(" '\""))
        for predicate, pattern in patterns
        for match in pattern.finditer(sentence)
    ]
    for _, predicate, thing in sorted(matches):
        if thing:
            yield predicate, thing
