"""Claims of an English clause."""

import re
from collections.abc import Callable, Iterator

from engramlog.engine.conflicts import english_patterns as say
from engramlog.engine.conflicts.claims import ANY, ME, RULE, USER, Claim
from engramlog.engine.conflicts.lexicon import CONSUMED, DIETS, EDIBLE, JOBS_EN, states_in
from engramlog.engine.conflicts.lives import ways_in
from engramlog.engine.conflicts.values import number, values_in
from engramlog.engine.conflicts.words import affirmed, denied, kinds_of, stem, stems_of, words_of


def _object(text: str) -> str:
    """The object at the beginning of a text: up to where something else begins."""
    return say.CUT.split(text, maxsplit=1)[0].strip()


def _names(text: str) -> frozenset[str]:
    """What a place, firm or person is called: the capitalised words, else all that carry something."""
    words = words_of(_object(text))
    proper = [word.lower() for word in words if word[0].isupper() or not word.isascii()]
    return frozenset(proper) or stems_of(_object(text))


def _subject(clause: str) -> tuple[str, str, bool] | None:
    """Holder, predicate, and whether the holder is the speaker's; None: nobody that we follow."""
    found = say.SUBJECT.match(clause)
    if found and (found["me"] or found["user"]):
        return (ME if found["me"] else USER), clause[found.end() :].strip(), False
    if found and found["other"]:
        return None
    verb = say.FINITE.search(clause, found.end() if found else 0)
    start = clause[: verb.start()] if verb else ""
    words = start[found.end() :] if found else start
    words = re.sub(r"'s name\b", "", words)
    if verb and words.strip():
        named = bool(found) or (clause[0].isupper() and len(words.split()) <= 4)  # noqa: PLR2004 - "Anna Maria de Vries"
        if named:
            return (
                " ".join(sorted(stems_of(words))) or words.lower().strip(),
                clause[verb.start() :],
                bool(found and found["owner"]),
            )
        return None
    if verb and not found:  # "Moved to Bristol last month."
        return (
            (ME, clause, False)
            if re.match(
                r"(?:moved|switched|started|quit|joined|stopped|got|adopted|had|used to)\b", clause, re.IGNORECASE
            )
            else None
        )
    return None


def _is_denied(predicate: str) -> bool:
    return bool(say.NOT.search(predicate)) or bool(
        re.match(r"(?:have|has|own|owns|had) (?:no|zero) ", predicate, re.IGNORECASE)
    )


def _opinions(predicate: str, *, no: bool) -> Iterator[Claim]:
    found = say.OPINION.search(predicate)
    if not found or re.search(
        r"\b(?:looks?|feels?|sounds?|seems?|just|be) like\b|\bwould like\b", predicate, re.IGNORECASE
    ):
        return
    standing = found["no"] and found["no"].lower() in {"stand", "bear"}
    if standing and not no:
        return
    positive = bool(found["yes"]) != no if found["yes"] else not (standing or not no)
    what = _object(re.sub(r"^(?:to )?(?:eating|drinking|having|eat|drink) ", "", found["what"], flags=re.IGNORECASE))
    if not what or re.match(r"(?:it|that|this|him|her|them|you|to)\b$", what, re.IGNORECASE):
        return
    yield Claim(ME, "opinion", affirmed(what) if positive else denied(what), positive)
    if found["no"] and re.match(r"afraid|scared|terrified", found["no"], re.IGNORECASE) and "pet" in kinds_of(what):
        yield Claim(ME, "have", denied(what), positive)
    if kinds_of(what) & EDIBLE:
        yield Claim(ME, "eat", affirmed(what) if positive else denied(what), positive)


def _diets(predicate: str, *, no: bool) -> Iterator[Claim]:
    for word in words_of(predicate.lower()):
        left_out = DIETS.get(word, ()) or DIETS.get(word.removesuffix("s"), ())
        if no and left_out:
            yield Claim(ME, "eat", frozenset(left_out))
        else:
            yield from (Claim(ME, "eat", frozenset({kind}), positive=False) for kind in left_out)


def _food(predicate: str, *, no: bool) -> Iterator[Claim]:
    yield from _diets(predicate, no=no)
    if found := say.ALLERGY.search(predicate):
        what = _object(found["to"] or found["to2"])
        yield Claim(ME, "allergy", denied(what) if no else affirmed(what), not no)
        if not no:
            yield Claim(ME, "eat", denied(what), positive=False)
            yield Claim(ME, "have", denied(what), positive=False)
        return
    if (found := say.WITHOUT.search(predicate)) and kinds_of(_object(found["what"])) & CONSUMED:
        yield Claim(ME, "eat", denied(_object(found["what"])), positive=False)
        return
    found = say.EAT.search(predicate)
    if not found:
        return
    verb, what = found[0].split()[0].lower(), _object(found["what"]) or found["what"]
    kinds = kinds_of(what)
    if verb.startswith(("smok", "vap")):
        yield Claim(ME, "eat", frozenset({"tobacco"}), not no)
    elif kinds & CONSUMED:
        yield Claim(ME, "eat", denied(what) if no else affirmed(what), not no)
    elif stem(verb) == "drink" and not stems_of(what):
        yield Claim(ME, "eat", frozenset({"alcohol"}), not no)


def _possession(predicate: str, *, no: bool) -> Iterator[Claim]:
    found = say.HAVE.search(predicate)
    if not found or re.match(r"(?:to|been|not)\b", found["what"], re.IGNORECASE):
        return
    what = re.sub(r"^(?:no|any|zero) ", "", _object(found["what"]), flags=re.IGNORECASE)
    if not what:
        return
    first = re.split(r"\b(?:in|at|of|for|from|called|named|on|with)\b", what, maxsplit=1)[0] or what
    yield Claim(ME, "have", denied(first) if no else affirmed(first), not no)
    if (
        not no
        and (counted := re.match(r"(?P<n>\d+|\w+) (?P<what>\w+s|children)\b", first))
        and (n := number(counted["n"].lower())) >= 0
    ):
        yield Claim(ME, f"one:count {stem(counted['what'].lower())}", values=frozenset({("num:", str(n))}))


def _single(predicate: str, *, no: bool) -> Iterator[Claim]:
    """What one has one of: home, work, age, profession."""
    if found := say.HOME.search(predicate):
        yield Claim(ME, "one:home", _names(found["to"] or found["to2"]), not no)
    if (found := say.WORK.search(predicate)) and (found["to"] or found["to2"])[0].isupper():
        yield Claim(ME, "one:work", _names(found["to"] or found["to2"]), not no)
    if (found := say.AGE.search(predicate)) and (age := number(found["years"].lower())) > 0 and not no:
        yield Claim(ME, "one:age", values=frozenset({("num:", str(age))}))
    if (found := re.search(r"\bborn (?:in|on) (?P<when>.+)", predicate, re.IGNORECASE)) and (
        born := values_in(found["when"])
    ):
        yield Claim(ME, "one:birth", values=born)
    for slot, pattern in say.ONE_OF:
        if found := pattern.search(predicate):
            yield Claim(ME, slot or f"one:{stem(found['verb'].lower())}", _names(found["to"]), not no)
    if (found := say.ROUTINE.search(predicate)) and not no and (when := values_in(found["when"])):
        yield Claim(
            ME,
            f"one:{stem(words_of(found['verb'].lower())[0])} {'weekday' if 'weekday' in dict(when) else ''}",
            values=when,
        )
    jobs = JOBS_EN & set(words_of(predicate.lower()))
    if jobs and re.match(r"(?:am|is|work as|works as|became|am now|am working as)\b", predicate, re.IGNORECASE):
        yield Claim(ME, "one:job", frozenset(jobs), not no)


def _preference(predicate: str, *, no: bool) -> Iterator[Claim]:
    if not (found := say.PREFER.search(predicate)) or no:
        return
    what = _object(found["what"])
    head, *rest = re.split(r"\b(?:in|for|on|at)\b", what, maxsplit=1)
    about = " ".join(sorted(stems_of(rest[0]) - {"everywher"})) if rest else ""
    yield from (
        Claim(ME, f"one:{group} {about}".strip(), frozenset({member})) for group, member in states_in(head.lower())
    )
    yield Claim(ME, "prefer", affirmed(head), positive=True)
    if less := found["less"]:
        yield Claim(ME, "prefer", denied(_object(less)), positive=False)


def _habit(predicate: str, *, no: bool) -> Iterator[Claim]:
    """Anything else that one does or does not do."""
    rest = predicate
    if no:
        rest = re.sub(r"\b(?:anymore|any longer)\b", "", say.NOT.sub(" ", rest))
    rest = say.AUXILIARY.sub("", re.sub(r"\s+", " ", rest).strip()).strip()
    rest = re.sub(rf"^(?:to|been) {say.ADVERB}", "", rest)
    verb, _, what = rest.partition(" ")
    base = stem(verb.lower())
    if not verb.isalpha() or base in say.EMPTY_VERBS:
        return
    words = denied(_object(what)) if no else affirmed(what)
    if words or not no:
        yield Claim(ME, f"do:{base}", words, not no)
    elif base in say.ALONE:
        yield Claim(ME, f"do:{base}", frozenset({ANY}), positive=False)


def _swap(clause: str) -> Iterator[Claim]:
    """What was given up: nothing else that is said of it holds any more."""
    if found := say.SWITCH.search(clause):
        old = _object(found["old"] or found["old2"] or found["old3"] or found["old4"])
        words = frozenset(stems_of(old))
        if words and len(words) <= 3:  # noqa: PLR2004 - a longer one is a story
            yield Claim(ME, "gone", words, positive=False)
            yield Claim(ME, "have", denied(old), positive=False)
        if new := found["new"] or found["new2"] or found["new3"]:
            yield Claim(ME, "used", stems_of(_object(new)))


def _states(predicate: str, *, no: bool) -> Iterator[Claim]:
    if re.match(r"(?:am|is|are|was|be|live|lives|got|get|became|have been|an?|still|now)\b", predicate, re.IGNORECASE):
        for group, member in states_in(predicate.lower()):
            if group in {
                "state:married",
                "state:siblings",
                "state:hand",
                "state:mind",
                "state:job",
                "state:living",
                "state:place",
                "state:hours",
                "state:daytime",
            }:
                yield Claim(ME, f"one:{group}", frozenset({member}), not no)
    yield from (
        ()
        if no
        and "licen" not in predicate
        and "drive" not in predicate
        and "exercise" not in predicate
        and "never been" not in predicate
        else ways_in(predicate)
    )
    if re.search(r"\bonly child\b|\bno siblings\b", predicate, re.IGNORECASE) and not no:
        yield Claim(ME, "have", frozenset({"sibling"}), positive=False)
    if re.search(r"\b(?:single|unmarried)\b", predicate, re.IGNORECASE) and not no:
        yield Claim(ME, "have", frozenset({"spouse"}), positive=False)
    if re.search(r"\blives? alone\b", predicate, re.IGNORECASE) and not no:
        yield Claim(ME, "have", frozenset({"roommat"}), positive=False)


_PERSONAL: tuple[Callable[..., Iterator[Claim]], ...] = (
    _opinions, _food, _possession, _single, _preference, _habit, _states,
)  # fmt: skip


def _thing(holder: str, predicate: str, *, owned: bool) -> Iterator[Claim]:
    """What a thing is, costs, runs on; when it takes place."""
    if not re.match(say.FINITE, predicate) or re.match(r"(?:had|got)\b", predicate, re.IGNORECASE):
        return
    no = bool(re.search(r"\b(?:not|no longer|never)\b", predicate, re.IGNORECASE))
    rest = say.COPULA.sub(
        "", re.sub(r"\b(?:not|no longer|never) ?", "", predicate, count=1) if no else predicate
    ).strip()
    values = set(values_in(rest))
    target = say.TO.sub("", rest)
    first = words_of(target)[:1]
    if first and target and any(char.isupper() or char.isdigit() for char in first[0]) and not values:
        values.add(("name:in" if say.PLACE.match(rest) else "name", first[0].lower()))
    values.update(states_in(predicate.lower()))
    if first and (age := number(first[0].lower())) > 0 and not first[0].isdigit():
        values.add(("num:", str(age)))
    if set(holder.split()) & say.TEXTUAL and target:
        values = {("text", " ".join(sorted(stems_of(_object(target)))))}
    if values:
        yield Claim(holder, "is", positive=not no, values=frozenset(values), words=stems_of(target), owned=owned)
    elif target:
        yield Claim(holder, "is", affirmed(target) if not no else denied(target), not no, owned=owned)


def _instruction(clause: str) -> Iterator[Claim]:
    found = say.IMPERATIVE.match(clause)
    if not found:
        return
    what, no = found["what"], bool(found["no"])
    if not no:
        yield from (Claim(RULE, f"one:{group}", frozenset({member})) for group, member in states_in(what.lower()))
    verb = stem(found["verb"].lower())
    words = denied(what) if no else affirmed(what)
    yield Claim(RULE, f"do:{verb}", words or frozenset({ANY} if no else ()), not no)


def _anywhere(clause: str) -> Iterator[Claim]:
    """What can stand anywhere in a clause."""
    if found := say.FAVOURITE.search(clause):
        what, which = found["what"] or found["what2"], found["which"] or found["which2"]
        yield Claim(ME, f"one:favourite {' '.join(sorted(stems_of(what)))}", stems_of(_object(which)))
        yield Claim(ME, "opinion", affirmed(_object(which)))
    if found := say.NAME.search(clause):
        yield Claim(ME, "one:name", frozenset(words_of(found["which"].lower())[:2]))
    for found in say.PRESENT.finditer(clause):
        yield Claim(ME, "have", affirmed(found["what"]))
    if (found := say.BIRTHDAY.search(clause)) and (born := values_in(found["when"])):
        yield Claim(ME, "one:birth", values=born)
    if found := say.RESET.search(clause):
        holder = " ".join(sorted(stems_of(found["thing"])))
        yield from _thing(holder, f"is {found['what']}", owned=found["whose"].lower() != "the") if holder else ()
    if found := say.USE_FOR.search(clause):
        aim = " ".join(sorted(stems_of(_object(found["aim"]))))
        yield Claim(aim, "is", values=frozenset({("name", " ".join(sorted(stems_of(_object(found["what"])))))}))


def english_claims(clause: str) -> Iterator[Claim]:
    """All claims of a clause (short forms written out, see :mod:`engramlog.engine.conflicts.sentences`)."""
    plain = say.OPENING.sub("", clause).strip()
    if not plain:
        return
    subject = _subject(plain)
    yield from _anywhere(plain)
    if subject is None:
        if not say.SUBJECT.match(plain):
            yield from _instruction(plain)
            yield from _swap(plain)
        return
    holder, predicate, owned = subject
    yield from (_of(claim, holder) if holder == USER else claim for claim in _swap(plain))
    no = _is_denied(predicate)
    not_general = say.PASSING if no else say.LONG_AGO
    if say.HABIT_CHANGE.search(predicate) or not not_general.search(plain):
        for find in _PERSONAL:
            yield from (_of(claim, holder, owned=owned) for claim in find(predicate, no=no))
    if holder not in {ME, USER}:
        yield from _thing(holder, predicate, owned=owned)


def _of(claim: Claim, holder: str, *, owned: bool = False) -> Claim:
    return (
        claim
        if claim.holder != ME or holder == ME
        else Claim(holder, claim.slot, claim.words, claim.positive, claim.values, owned)
    )
