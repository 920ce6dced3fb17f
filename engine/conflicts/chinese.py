"""Claims of a Chinese clause."""
# ruff: noqa: RUF001 - Chinese

import re
from collections.abc import Callable, Iterator

from engramlog.engine.conflicts import chinese_patterns as say
from engramlog.engine.conflicts.claims import IMPLIED, ME, RULE, USER, Claim, Value
from engramlog.engine.conflicts.lexicon import CONSUMED, DIETS, EDIBLE, kinds_in, states_in
from engramlog.engine.conflicts.lives import ways_in
from engramlog.engine.conflicts.values import number, values_in
from engramlog.engine.gazetteer import is_place


def _clean(text: str) -> str:
    return say.HYPHEN.sub("", say.STRIP_HEAD.sub("", re.sub(r"[\s\"“”「」]", "", text)))


def _object(text: str) -> str:
    """The object at the beginning of a text, bare."""
    return _clean(re.split(r"[，。;；、]|因为|而且|但|和(?=我)|胜过|而不是", text, maxsplit=1)[0])[:24]


def denied(text: str) -> frozenset[str]:
    """What a denied object is: known things by their one name, else the bare text."""
    bare = _object(text)
    known = kinds_in(bare)
    return frozenset({name for name, _ in known}) if known else frozenset({bare.lower()} if bare else ())


def affirmed(text: str) -> frozenset[str]:
    """What an affirmed object is: the bare text, the known things in it and the kinds they belong to."""
    bare = _object(text)
    names = {name for name, _ in kinds_in(bare)}
    return frozenset({bare.lower()} - {""}).union(names, *(kinds for _, kinds in kinds_in(bare)))


def _kinds(text: str) -> frozenset[str]:
    return frozenset().union(*(kinds for _, kinds in kinds_in(text)))


def _pair(slot: str, what: str, *, positive: bool) -> Iterator[Claim]:
    words = affirmed(what) if positive else denied(what)
    if words:
        yield Claim(ME, slot, words, positive)


def _opinions(clause: str) -> Iterator[Claim]:
    found, positive = say.HATE.search(clause), False
    if found:
        positive = bool(found["no"])
    elif found := say.LIKE.search(clause):
        positive = not found["no"]
    elif found := say.DARLING.search(clause):
        positive = True
    elif found := say.FRONTED.search(clause):
        positive = bool(found["yes"])
    if not found:
        return
    what = found["what"]
    yield from _pair("opinion", what, positive=positive)
    if not positive and re.search(r"怕|讨厌", found[0]) and "pet" in _kinds(_object(what)):
        yield from _pair("have", what, positive=False)
    if _kinds(_object(what)) & EDIBLE:
        yield from _pair("eat", what, positive=positive)


def _food(clause: str) -> Iterator[Claim]:
    for word, kinds in DIETS.items():
        if not word.isascii() and word in clause:
            if re.search(rf"不(?:再|是)?{word}", clause):
                yield Claim(ME, "eat", frozenset(kinds))
            else:
                yield from (Claim(ME, "eat", frozenset({kind}), positive=False) for kind in kinds)
    if found := say.ALLERGY.search(clause):
        what = found["what"] or found["what2"] or found["what3"]
        no = bool(found["no"] or found["no2"] or found["no3"])
        yield from _pair("allergy", what, positive=not no)
        if not no:
            yield from _pair("eat", what, positive=False)
            yield from _pair("have", what, positive=False)
        return
    if (found := say.QUIT.search(clause)) and (what := found["what"] or found["what2"]) and _kinds(what) & CONSUMED:
        yield from _pair("eat", what, positive=False)
        return
    if found := say.DAILY.search(clause):
        yield from _pair("eat", found["what"], positive=True)
    found = say.EAT.search(clause)
    if found and _kinds(_object(found["verb"][0] + found["what"])) & CONSUMED:
        yield from _pair("eat", found["what"], positive=not found["no"])
    elif found and found["verb"] in {"抽", "吸"} and "烟" in found["what"]:
        yield Claim(ME, "eat", frozenset({"tobacco"}), not found["no"])


def _possession(clause: str) -> Iterator[Claim]:
    if re.search(r"独生子女|独生子|独生女|独子|独女", clause) and "不是" not in clause:
        yield Claim(ME, "have", frozenset({"sibling"}), positive=False)
    if re.search(r"(?<!不是)(?:单身|未婚)|没(?:有)?结婚", clause):
        yield Claim(ME, "have", frozenset({"spouse"}), positive=False)
    if re.search(r"一个人住|独居", clause):
        yield Claim(ME, "have", frozenset({"室友"}), positive=False)
    if re.search(r"丁克|不要孩子|没生孩子", clause):
        yield Claim(ME, "have", frozenset({"child"}), positive=False)
    if not (found := say.HAVE.search(clause)):
        return
    if found["verb"] in {"买", "生"} and not kinds_in(found["what"]):
        return
    yield from _pair("have", found["what"], positive=not found["no"])
    if not found["no"] and found["n"] and found["unit"] and found["n"] != "几" and (n := number(found["n"])) >= 0:
        known = kinds_in(found["what"])
        what = known[0][0] if known else _object(found["what"])
        yield Claim(ME, f"one:count {what}", values=frozenset({("num:", str(n))}))


def _single(clause: str) -> Iterator[Claim]:
    """What one has one of: home, work, age, profession, favourite, preference."""
    if found := say.HOME.search(clause):
        place = say.HYPHEN.sub("", found["to"] or found["to2"])
        yield Claim(ME, "one:home", frozenset({place}), not re.search(r"不(?:再)?住", clause))
    found = say.WORK.search(clause)
    firm = _clean(found["to"] or found["to2"] or found["to3"]) if found else ""
    if firm and not say.VAGUE.search(firm):
        yield Claim(ME, "one:work", frozenset({firm}), not re.search(r"不(?:再)?在", clause))
    if (found := say.AGE.search(clause)) and number(found["years"]) > 0 and not re.search(r"岁[那时的前以]", clause):
        yield Claim(ME, "one:age", values=frozenset({("num:", str(number(found["years"])))}))
    if found := say.JOB.search(clause):
        yield Claim(ME, "one:job", frozenset({found["job"]}), not found["no"])
    if found := say.FAVOURITE.search(clause):
        yield Claim(ME, f"one:favourite {found['what']}", frozenset({_object(found["which"])}))
        yield from _pair("opinion", found["which"], positive=True)
    yield from ways_in(clause)
    yield from _routine(clause)
    found = re.search(r"是.{0,3}?(?P<place>[一-鿿]{2,3})人$|^老家[在是](?P<from>[一-鿿]{2,3})", clause)
    if found and is_place(place := found["place"] or found["from"]):
        yield Claim(ME, "one:origin", frozenset({place}))
    if found := re.search(r"^支持(?P<team>[一-鿿]{2,4})$", clause):
        yield Claim(ME, "one:support", frozenset({found["team"]}))
    for group, member in states_in(clause):
        if group in {
            "state:married",
            "state:mind",
            "state:hand",
            "state:job",
            "state:hours",
            "state:place",
            "state:living",
        }:
            yield Claim(
                ME,
                f"one:{group}",
                frozenset({member}),
                not re.search(r"不(?:再)?是|没(?:有)?(?=结婚|离婚|退休)", clause),
            )


def _routine(clause: str) -> Iterator[Claim]:
    found = say.ROUTINE.search(clause)
    if found and not re.search(r"不|没", clause):
        times = frozenset(value for value in values_in(found["when"]) if value[0] == "clock")
        if times:
            yield Claim(ME, f"one:{found['verb']}", values=times)


def _preference(clause: str) -> Iterator[Claim]:
    found = say.PREFER.search(clause)
    if not found or re.search(r"不(?:太|怎么|再)?(?:喜欢|习惯)", clause):
        return
    what = found["what"]
    yield from (Claim(ME, f"one:{group}", frozenset({member})) for group, member in states_in(what.lower()))
    yield from _pair("prefer", what, positive=True)
    if found["less"]:
        yield from _pair("prefer", found["less"], positive=False)


def _habit(clause: str) -> Iterator[Claim]:
    """What one does not do; and the whole clause, as what one does."""
    found = say.HABIT.search(clause)
    if not found:
        yield Claim(ME, "do", frozenset({say.COUNT.sub("", re.sub(r"\s", "", clause))[:60].lower()}))
        return
    what = say.HYPHEN.sub("", re.sub(r"[\s]", "", found["what"])).lower()
    what = say.COUNT.sub("", what)
    what = re.sub(r"^(?:再|能|会|想|去|要)+", "", what)
    if len(what) >= 2 and "不" not in clause[: found.start()]:  # noqa: PLR2004 - one character is in everything
        yield Claim(ME, "do", frozenset({what}), positive=False)


_PERSONAL: tuple[Callable[[str], Iterator[Claim]], ...] = (
    _opinions, _food, _possession, _single, _preference, _habit,
)  # fmt: skip


def _swap(clause: str) -> Iterator[Claim]:
    for found in say.GONE.finditer(clause):
        old = found["old"] or found["old2"] or found["old3"] or found["old4"] or found["old5"]
        bare = say.HEAD.sub("", _clean(old)).lower() if old else ""
        if bare and not re.fullmatch(r".", bare):
            yield Claim(ME, "gone", frozenset({bare}), positive=False)
            yield from (Claim(ME, "have", frozenset({name}), positive=False) for name, _ in kinds_in(bare))
        if new := found["new"] or found["new2"] or found["new5"]:
            yield Claim(ME, "used", frozenset({_object(new).lower()}))


def _thing(clause: str, carried: str) -> Iterator[Claim]:
    """What a thing is, costs, runs on; when it takes place."""
    found = say.THING.match(clause)
    if (attribute := say.ATTRIBUTE.match(clause)) and (values := values_in(attribute["what"])):
        yield Claim(thing_name(attribute["thing"]), "is", values=values, owned=bool(say.MINE.match(clause)))
        return
    if not found:
        found = say.THING.match("它" + clause) if carried else None
    if not found:
        return
    holder = thing_name(found["thing"])
    holder = carried if holder in {"", "它"} else holder
    if say.NO_THING.search(holder):
        return
    owned = bool(say.MINE.match(found["thing"]))
    if not holder or len(holder) > 12 or (found["verb"] in {"有", "要", "在"} and not values_in(found["what"])):  # noqa: PLR2004 - no name is longer
        return
    what, no = found["what"], bool(found["no"])
    said: set[Value] = set(values_in(what))
    used = re.match(r"用|使用|采用|基于|改用|换用|部署|跑|托管|改写|重写|写|迁|切|换", found["verb"])
    named = re.match(r"\s*([A-Za-z][\w.+#-]*)", what)
    if named and not said - {("name", "")}:
        said.add(("name", named[1].lower()))
    elif (
        used
        or re.match(r"叫|为|改|换", found["verb"])
        or (found["verb"] == "是" and re.fullmatch(r"[^的很一不最]{1,4}", _object(what)))
    ) and not said:
        said.add(("name", _object(what).lower()))
    if say.TEXTUAL.search(holder) and (used or found["verb"][0] in "是为叫改换变"):
        said = {("text", _object(what).lower())}
    said.update(states_in(what.lower()))
    yield Claim(holder, "is", frozenset({_object(what).lower()}), not no, frozenset(said), owned)


def thing_name(text: str) -> str:
    """What a thing is called: without whose it is, and without the word "time" or "place" at the end."""
    bare = say.HEAD.sub("", re.sub(r"\s", "", text))
    bare = re.sub(r"(?:现在|目前|已经|又|也|都|还|全部|统一|昨天|今天)+$", "", bare)
    return say.THING_TAIL.sub("", bare).removesuffix("的").lower()


def _instruction(clause: str) -> Iterator[Claim]:
    found = say.RULE.match(clause)
    if not found:
        return
    if not found["no"]:
        yield from (Claim(RULE, f"one:{group}", frozenset({member})) for group, member in states_in(clause.lower()))
    what = _object(found["what"])
    if what:
        yield Claim(RULE, f"do:{found['verb'][0]}", frozenset({what.lower()}), not found["no"])


def _holder(clause: str, carried: str | None) -> tuple[str | None, str]:
    """Of whom a clause speaks, and what is left of it. None: of somebody we do not follow."""
    if found := say.MY.match(clause):
        return found["who"], clause[found.end() :]
    if found := say.ME.match(clause):
        return ME, clause[found.end() :]
    if found := say.USER.match(clause):
        return USER, clause[found.end() :]
    if found := say.NAMED.match(clause):
        return found["who"], clause[found.end() :]
    if say.OTHER.match(clause):
        return None, clause
    return carried, clause


def chinese_claims(clause: str, carried: str | None) -> tuple[list[Claim], str | None]:
    """All claims of a clause, and of whom the next one speaks if it does not say so.

    Args:
        clause: The clause.
        carried: Of whom the one before it spoke: a holder; None: somebody we do not follow.
    """
    plain = say.OPENING.sub("", clause).strip()
    holder, rest = _holder(plain, carried)
    implied = holder == IMPLIED
    holder = ME if implied else holder
    claims: list[Claim] = []
    for found in re.finditer(rf"我们?[的和跟与]?({say.KIN_WORDS})", plain):
        claims.extend(_pair("have", found[1], positive=True))
    if name := say.NAME.search(plain):
        claims.append(Claim(ME, "one:name", frozenset({name["which"]})))
    if holder is None:
        return claims, None
    thing_before = "" if holder in {ME, USER} or holder == plain else holder
    if holder in {ME, USER} or rest is not plain:
        rest = say.OPENING.sub("", rest)
        said = [] if say.TRANSIENT.search(rest) else [claim for find in _PERSONAL for claim in find(rest)]
        if implied:  # "不建议。" is nothing that the speaker does
            ordered = bool(re.search(r"不要|别|禁止|不许|请勿", plain))
            said = [c if c.slot != "do" else _of(c, RULE) for c in said if c.slot != "do" or c.positive or ordered]
        if say.REMOTE.search(plain):
            said = [claim for claim in said if not claim.positive]
        if say.PASSING.search(clause):
            said = [claim for claim in said if claim.positive]
        if say.INTENDED.search(plain):
            said = [claim for claim in said if claim.slot not in {"have", "eat"} or not claim.positive]
        claims.extend(claim if claim.holder != ME or holder == ME else _of(claim, holder) for claim in said)
    claims.extend(_swap(plain))
    things = list(
        _thing(say.HEAD.sub("", plain) if say.ME.match(plain) else plain, thing_before if rest is plain else "")
    )
    claims.extend(_instruction(plain))
    if rest is plain and things:
        return claims + things, things[0].holder
    return claims + things, IMPLIED if implied else holder


def _of(claim: Claim, holder: str) -> Claim:
    return Claim(holder, claim.slot, claim.words, claim.positive, claim.values, owned=holder not in {ME, USER})
