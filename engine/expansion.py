"""What a question means that leans on the turns before it: "it", "there", 那里, "and in winter?"; by rules."""
# ruff: noqa: E501, RUF001, SIM905 - Chinese; word lists and patterns are read better unbroken

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engramlog.engine.referents import MAX_REFERENT_CHARS, Found, names_in, people_in, places_in, tail, things_in
from engramlog.schemas.stored import StoredRecord

MAX_TURNS = 6
MAX_REFERENTS = 3
MAX_QUESTION_CHARS = 300
"""A longer text says itself what it is about."""

MAX_ADDED_CHARS = 200
_SHORT_WORDS = 3
_SHORT_HAN = 5
_LONGEST_HAN = 8

_SPEAKING = frozenset({"user", "assistant"})
_THERE = re.compile(
    r"(?<!is )(?<!are )(?<!was )(?<!were )(?<!will )\bthere\b(?! (?:is|are|was|were|will|be|any|has|have|a|an|some|no)\b)|那[里儿边]|当地|那个?地方",
    re.IGNORECASE,
)
_SHE = re.compile(r"\b(?:she|her|hers|herself)\b|她(?!们)", re.IGNORECASE)
_HE = re.compile(r"\b(?:he|him|his|himself)\b|(?<![其吉])他(?![们人乡国])", re.IGNORECASE)
_THEY = re.compile(r"\b(?:they|them|their|theirs)\b|[他她]们|那个人|那些人", re.IGNORECASE)
_IT = re.compile(
    r"\b(?-i:[Ii]ts?)\b|\b(?:this|that)(?= (?:is|was|one|thing|cost|costs|work|works|mean|means|look|looks|again|happen|go|for)\b|\s*[?!.,]|$)"
    r"|(?<=about )(?:this|that)\b|\b(?:is|was|does) (?:this|that)\b|\b(?:do|did) (?:this|that)(?=\s*[?!.,]|$)|它(?!们)|(?<!的)(?:[那这]个(?=[是怎多在呢吗有好贵能还要什叫？?，,]|$)|[那这]件(?:事|衣服|东西)|那[家本部款台次])",
    re.IGNORECASE,
)
_IDLE_IT = re.compile(
    r"\b(?:is|was|will|does|did) it (?:be )?(?:rain|snow|raining|snowing|cold|hot|warm|late|early|possible|true|ok|okay|time|better|worth|safe|legal)\b"
    r"|\b(?:does|did|will|would) it take\b|\bit (?:is|was|be|'s) (?:\w+ )?(?:like|important|being|for|easy|hard|difficult|good|bad|nice|fun)\b|\bit's (?:\w+ )?(?:to|that|for|like)\b"
    r"|\bwhat (?:time|day|date|year) is it\b|\bit (?:is|was|will|seems|takes)(?: \w+){0,2} (?:to|that|rain\w*|snow\w*)\b",
    re.IGNORECASE,
)
_THOSE = re.compile(
    r"\b(?:those|these)(?= (?:are|were|ones|two|three|cost|work|look)\b|\s*[?!.,]|$)|它们|那些(?!人)|这些(?!人|年|天)|\bthe (?:former|latter)\b|前者|后者",
    re.IGNORECASE,
)
_ELLIPSIS = re.compile(
    r"^\s*(?:and|but|or|so|then)\b(?! what'?s your).{0,40}\?\s*$|^\s*(?:(?:and|so|but) )?(?:what|how) about\b|^\s*(?:what|how) (?:else|so|come)\b"
    r"|^\s*(?:why|when|where|who|how|which one|how (?:much|many|long|come)|why not|since when|really)\s*\?\s*$"
    r"|^(?:那|那么|还有).{0,12}(?:呢|怎么样|如何)\s*[？?]?\s*$|^.{0,10}呢\s*[？?]?\s*$|^(?:为什么|什么时候|在哪[里儿]?|多少钱?|多久|谁|怎么办|然后|哪个|几点|真的)(?:呢|吗|了)?\s*[？?]?\s*$",
    re.IGNORECASE,
)
_HAN = re.compile(r"[㐀-鿿]")
_SUBORDINATE = re.compile(
    r"\b(?!what |when |where |which |this |that |does |have |will )[a-z]{4,} "
    r"(?:when|if|that|because|after|before|while|once|since|until|where|whether) (?:\w+ ){0,2}$",
    re.IGNORECASE,
)
"""Before a pronoun in a clause of its own, whose main clause most likely says what it means."""
_CLAUSE_CHARS = 60

_STOP = frozenset(
    "what when where who why how which is are was were do does did can could will would should the a an my our your his "
    "her their this that these those it its he she they we you i me us them him and but or so in on at to for from with of "
    "about like there here any some not no yes have has had be been am please tell know think much many what's how's it's "
    "i'm don't really very just also then than too go going get got let want need would if as by up out again today now".split()
)
_HAN_STOP = re.compile(
    r"怎么样|怎么办|怎么|什么时候|什么|如何|多少|哪里|哪儿|哪个|哪些|为什么|是不是|有没有|可以|可不可以|能不能|请问|告诉我|知道|觉得|应该|"
    r"我们|你们|他们|我|你|您|他|她|它|的|了|吗|呢|吧|啊|呀|是|在|有|和|跟|与|也|都|就|还|要|(?<![聚开晚宴年机社])会|能|很|最|这|那|今天|明天|昨天|现在|最近|"
    r"一下|一个|推荐|想|去|到|来|说|给|把|被|对|从|个|不|没|好|多|请|帮|吃过|过|[，。！？、；：\s,.!?~…]"
)


@dataclass(frozen=True, slots=True)
class _Need:
    """What a question leaves open.

    Attributes:
        find: What would fill it, in a turn.
        most: How many at most.
    """

    find: Callable[[str], Found]
    most: int


def _open(text: str, pattern: re.Pattern[str], inside: Callable[[str], Found]) -> bool:
    """Whether a word of a pattern stands in a text without anything before it in that text which it could mean."""
    found = pattern.search(text)
    if found is None:
        return False
    before = text[max(0, found.start() - _CLAUSE_CHARS) : found.start()]
    if found[0].lower() != "there" and _SUBORDINATE.search(before):
        return False
    return not any(at < found.start() for at, _ in inside(text))


def _anybody_in(text: str) -> Found:
    return people_in(text) + names_in(text)


def _needs(text: str) -> list[_Need]:
    needs: list[_Need] = []
    if _open(text, _THERE, places_in):
        needs.append(_Need(places_in, 1))
    for pattern, female in ((_SHE, True), (_HE, False)):
        if _open(text, pattern, _anybody_in):
            needs.append(_Need(lambda turn, sex=female: people_in(turn, female=sex), 1))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    if _open(text, _THEY, lambda turn: _anybody_in(turn) + things_in(turn)):
        needs.append(_Need(lambda turn: people_in(turn) or things_in(turn), 2))
    if _open(text, _THOSE, things_in):
        needs.append(_Need(things_in, 2))
    elif _open(text, _IT, things_in) and not _IDLE_IT.search(text):
        needs.append(_Need(things_in, 1))
    return needs


def _is_elliptic(text: str) -> bool:
    """Whether a question leaves out what it asks about."""
    if _ELLIPSIS.search(text):
        return True
    if _HAN.search(text):
        return text.rstrip().endswith(("？", "?")) and 0 < len(_HAN_STOP.sub("", text)) <= 1 and len(text) <= _SHORT_HAN
    words = re.findall(r"[\w']+", text.lower())
    return text.rstrip().endswith("?") and 0 < len(words) <= _SHORT_WORDS and all(word in _STOP for word in words)


def _subjects(turn: str) -> Found:
    """What a turn is about: its places and the words that carry something."""
    turn = tail(turn)
    found = places_in(turn)
    taken = {name.lower() for _, name in found}
    for match in re.finditer(r"[A-Za-z][\w'-]{2,}", turn):
        word = match[0].lower()
        if word not in _STOP and not any(word in name for name in taken):
            found.append((match.start(), match[0]))
    rest = turn
    for _, name in found:
        if _HAN.search(name):
            rest = rest.replace(name, "，")
    found += [
        (turn.find(part), part)
        for part in _HAN_STOP.sub(" ", rest).split()
        if 1 < len(part) <= _LONGEST_HAN and _HAN.search(part)
    ]
    return sorted(set(found))


def turns_of(text: str, recent: Sequence[StoredRecord]) -> list[str]:
    """What was said last, newest first: turns of people and of the assistant; not the question itself."""
    ordered = sorted(recent, key=lambda stored: (stored.record.timestamp, stored.offset), reverse=True)
    said = [r.record.content for r in ordered if r.record.role in _SPEAKING and r.record.origin != "recall"]
    return [content for content in said if content.strip() and content != text][:MAX_TURNS]


def _latest(need: _Need, turns: Sequence[str], text: str) -> list[str]:
    """The last ones of the newest turn that has any."""
    for turn in turns:
        names: list[str] = []
        for _, name in reversed(need.find(turn)):
            if name.lower() not in text.lower() and name not in names:
                names.append(name)
        if names:
            return names[: need.most]
    return []


def _left_out(text: str, turns: Sequence[str], users: Sequence[str]) -> list[str]:
    """What an elliptic question is about: the subjects of the newest question or statement of the user."""
    named = bool(places_in(text))
    for turn in [*users, *turns]:
        places = {name for _, name in places_in(turn)}
        subjects = [
            name for _, name in _subjects(turn) if name.lower() not in text.lower() and not (named and name in places)
        ]
        if subjects:
            first = [name for name in subjects if name in places] + [name for name in subjects if name not in places]
            return list(dict.fromkeys(first))[:MAX_REFERENTS]
    return []


def with_referents(text: str, referents: Sequence[str]) -> str:
    """The question, then what it means: at most three referents, together at most 200 characters more."""
    added, seen = text, text.lower()
    for name in [name[:MAX_REFERENT_CHARS].strip() for name in referents][:MAX_REFERENTS]:
        if name and name.lower() not in seen and len(added) + 1 + len(name) <= len(text) + MAX_ADDED_CHARS:
            added, seen = f"{added} {name}", f"{seen} {name.lower()}"
    return added


def expanded(text: str, recent: Sequence[StoredRecord]) -> str:
    """The text to search with: the question, and what its pronouns and gaps mean.

    Pure. Places for "there", people for "he" and "she", things for "it", the subject of the last question for "and in
    winter?". Referents come from the last six turns of people and the assistant, newest first.

    Args:
        text: The question.
        recent: Turns of the session that asks, in any order; the question itself may be among them.

    Returns:
        The text, followed by up to three referents, at most 200 characters longer. A question that stands alone comes
        back unchanged.
    """
    if not text.strip() or len(text) > MAX_QUESTION_CHARS or not recent:
        return text
    needs, elliptic = _needs(text), _is_elliptic(text)
    if not needs and not elliptic:
        return text
    turns = turns_of(text, recent)
    referents = [name for need in needs for name in _latest(need, turns, text)]
    if elliptic and not referents:
        users = {stored.record.content for stored in recent if stored.record.role == "user"}
        referents = _left_out(text, turns, [turn for turn in turns if turn in users])
    return with_referents(text, referents)
