"""The running topic of a session: a fold over its records, in order.

A label is chosen when a subject begins, and stays while the talk stays on it. Each record is weighed for and against a
change of subject: how the speaker introduces it, what is new in it, what it shares with the subject so far, how far its
vector lies from the subject's, and how young the subject is. On a change the label is the phrase of that record that
names the new subject best. What names nothing (greetings, thanks, agreement) never changes it.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from engramlog.engine.derivers import centroids
from engramlog.engine.derivers.cues import Cues
from engramlog.engine.derivers.phrases import Phrase
from engramlog.engine.ports import Matrix

WEIGHTS: Final = {
    "known": -0.3,
    "novelty": 0.6,
    "named": 1.4,
    "opens": 1.8,
    "away": 1.7,
    "news": 1.6,
    "news_first": 0.7,
    "more": 1.3,
    "speaks": 0.8,
    "answers": -1.2,
    "follows": -1.4,
    "distance": 0.6,
    "early": -1.8,
    "gap": 1.5,
}
"""Fitted by logistic regression on turns of the ``dev`` half of ``bench/samples`` and others labelled like it."""
BIAS: Final = -2.0
"""The fitted one was -3.3: a change that is missed costs more than a label that changes once too often."""
FIRM: Final = 0.6
"""From this weight on a phrase is a label that stays; a weaker one is replaced by the first firm one."""

_PROFILE_SIZE: Final = 28
_STEM_LENGTH: Final = 20
_FADING: Final = 0.85
_HEAVIEST: Final = 3.0
_LABEL_BYTES: Final = 256
_GAP_S: Final = 4 * 3600.0
_SURE: Final = 8
_SLACK: Final = 0.008
_FAR: Final = 0.03
"""Cosines."""

Stem = Annotated[str, StringConstraints(max_length=_STEM_LENGTH)]


class SessionState(BaseModel):
    """What the next record of a session is compared with; at most 4 KB as JSON, whatever was said.

    Attributes:
        topic: The running label; None: nothing was named yet.
        firm: Whether it was chosen on good evidence, or given by the publisher.
        turns: How many records spoke of it so far, up to 99.
        language: The language of the talk.
        leaning: How clearly it is that language, 0 to 8.
        profile: The words of the running subject with their weights, heaviest first.
        asked: Whether the last record ended with a question.
        centroid: Where the subject's vectors point, ``int8`` as base64; empty: no vector was seen.
        nearness: The mean cosine of vectors with the centroid of their subject.
        vectors: How many vectors that is the mean of, up to 16.
        last_s: When the last record happened, in seconds since 1970.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    topic: Annotated[str, StringConstraints(max_length=_LABEL_BYTES)] | None = None
    firm: bool = False
    turns: Annotated[int, Field(ge=0, le=99)] = 0
    language: Annotated[str, StringConstraints(max_length=3)] | None = None
    leaning: Annotated[int, Field(ge=0, le=_SURE)] = 0
    profile: Annotated[tuple[tuple[Stem, float], ...], Field(max_length=_PROFILE_SIZE)] = ()
    asked: bool = False
    centroid: Annotated[str, StringConstraints(max_length=centroids.PACKED_LENGTH)] = ""
    nearness: float = 0.0
    vectors: Annotated[int, Field(ge=0, le=16)] = 0
    last_s: float | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What the topic is told of one record.

    Attributes:
        language: Of its text.
        stems: Its content words, folded.
        phrases: What may name its subject.
        cues: What its words do to the subject.
        leads: Whether the speaker may open a subject: people do, answers of assistants and tools follow.
        happened_s: When it happened, in seconds since 1970.
    """

    language: str | None
    stems: tuple[str, ...]
    phrases: tuple[Phrase, ...]
    cues: Cues
    leads: bool
    happened_s: float


def follow(state: SessionState | None, turn: Turn, vector: Matrix | None) -> SessionState:
    """The state after one more record, whose topic is then ``topic``."""
    before = state or SessionState()
    heard = _heard(before, turn)
    if not turn.phrases:
        return heard
    named = _named(heard, turn)
    if named is None:
        return _remember(heard, turn, vector)
    if heard.topic is None or _evidence(before, turn, named, vector) > 0.0:
        return _begin(heard, turn, named, vector)
    if not heard.firm and turn.leads and named.weight >= FIRM:
        named_at_last = heard.model_copy(update={"topic": named.text, "firm": True})
        return _remember(named_at_last, turn, vector)
    return _remember(heard, turn, vector)


def steer(state: SessionState | None, turn: Turn, vector: Matrix | None, topic: str) -> SessionState:
    """The state once the publisher said what the subject is; a label over 256 bytes is carried on shortened."""
    heard = _heard(state or SessionState(), turn)
    printable = "".join(filter(str.isprintable, topic))
    label = printable.encode("utf-8", "ignore")[:_LABEL_BYTES].decode("utf-8", "ignore") or None
    if label == heard.topic:
        return _remember(heard, turn, vector)
    return _remember(_new(heard, label, firm=True), turn, vector)


def features_of(state: SessionState, turn: Turn, named: Phrase, vector: Matrix | None) -> dict[str, float]:
    """What speaks for and against a change of subject, each within -1 to 1."""
    profile = dict(state.profile)
    stems = {stem[:_STEM_LENGTH] for stem in turn.stems}
    known = sum(min(1.0, profile[stem]) for stem in stems if stem in profile)
    fresh = sum(stem not in profile for stem in stems)
    cues = turn.cues
    return {
        "known": min(1.0, known / 3.0),
        "novelty": fresh / (fresh + 2.0 * known + 1.0),
        "named": min(1.0, named.weight / 1.8),
        "opens": cues.opens,
        "away": cues.away,
        "news": cues.news,
        "news_first": cues.news_first,
        "more": cues.more,
        "speaks": cues.speaks,
        "answers": float(state.asked),
        "follows": float(not turn.leads),
        "distance": _distance(state, vector),
        "early": 1.0 / (1.0 + state.turns),
        "gap": float(state.last_s is not None and turn.happened_s - state.last_s > _GAP_S),
    }


def _evidence(state: SessionState, turn: Turn, named: Phrase, vector: Matrix | None) -> float:
    found = features_of(state, turn, named, vector)
    return BIAS + sum(WEIGHTS[name] * value for name, value in found.items())


def _named(state: SessionState, turn: Turn) -> Phrase | None:
    """The phrase that names the subject best if it is a new one: what was said before counts less."""
    known = {stem for stem, _ in state.profile}
    best: Phrase | None = None
    best_weight = 0.0
    for phrase in turn.phrases:
        if phrase.place < turn.cues.away_at or phrase.text == state.topic or not _fits(state, turn):
            continue
        old = sum(stem[:_STEM_LENGTH] in known for stem in phrase.stems) / len(phrase.stems)
        weight = phrase.weight * (1.0 - 0.5 * old)
        if weight > best_weight:
            best, best_weight = phrase, weight
    return best


def _fits(state: SessionState, turn: Turn) -> bool:
    """Whether a text is in the language of the talk; labels are taken from no other."""
    return turn.language in (None, state.language)


def _heard(state: SessionState, turn: Turn) -> SessionState:
    language, leaning = state.language, state.leaning
    if turn.language is not None:
        if turn.language == language or leaning == 0:
            language, leaning = turn.language, min(_SURE, leaning + 1)
        else:
            leaning -= 1
    told = {"language": language, "leaning": leaning, "asked": turn.cues.asks > 0.0, "last_s": turn.happened_s}
    return state.model_copy(update=told)


def _begin(state: SessionState, turn: Turn, named: Phrase, vector: Matrix | None) -> SessionState:
    return _remember(_new(state, named.text, firm=named.weight >= FIRM), turn, vector)


def _new(state: SessionState, label: str | None, *, firm: bool) -> SessionState:
    return state.model_copy(update={"topic": label, "firm": firm, "turns": 0, "profile": (), "centroid": ""})


def _remember(state: SessionState, turn: Turn, vector: Matrix | None) -> SessionState:
    weights = {stem: weight * _FADING for stem, weight in state.profile}
    for stem in turn.stems:
        weights[stem[:_STEM_LENGTH]] = min(_HEAVIEST, weights.get(stem[:_STEM_LENGTH], 0.0) + 0.7)
    heaviest = sorted(weights.items(), key=lambda item: (-item[1], item[0]))[:_PROFILE_SIZE]
    told: dict[str, object] = {
        "profile": tuple((stem, round(weight, 3)) for stem, weight in heaviest),
        "turns": min(99, state.turns + 1),
    }
    seen = centroids.seen(state.centroid, state.nearness, state.vectors, vector)
    if seen is not None:
        told |= {"centroid": seen.centroid, "nearness": seen.nearness, "vectors": seen.vectors}
    return state.model_copy(update=told)


def _distance(state: SessionState, vector: Matrix | None) -> float:
    """How much farther a vector lies from the subject than vectors usually do, within -1 to 1.

    Vectors of neighbouring turns share text (``derive`` embeds a turn with the one before it), so the usual nearness is
    a little too high: hence the slack.
    """
    if state.vectors < 2:  # noqa: PLR2004 - the first one is its own centroid, and says nothing of the others
        return 0.0
    near = centroids.nearness(state.centroid, vector)
    if near is None or not math.isfinite(near):
        return 0.0
    return max(-1.0, min(1.0, (state.nearness - near - _SLACK) / _FAR))
