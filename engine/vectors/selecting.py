"""Filters: which points a request may see, and which ones an event touches. Every filter names the tenant."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from qdrant_client import models

from engramlog.engine.vectors.points import HINTS, in_utc, metadata_text
from engramlog.schemas.derived import RecallChangedEvent
from engramlog.schemas.errors import RequestRefused
from engramlog.schemas.recalls import RecallFilter
from engramlog.schemas.scope import Scope

UNASKED_ROLES = ("system", "developer")
"""Roles that are recalled only when they are asked for."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """An epoch: records at lower positions are not recalled.

    Attributes:
        session: Of this session; None: of all.
        user: Of this user, ``""``: the shared ones; None: of everybody.
        before: Position that the epoch begins at.
    """

    session: str | None
    user: str | None
    before: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What of the past is seen.

    Attributes:
        until: Records at higher positions are not; None: no limit.
        happened_until: What happened later is not; None: no limit.
        marked_since: Records may have left recall, or become untrue, since then: the hints of that decide nothing.
    """

    until: int | None = None
    happened_until: datetime | None = None
    marked_since: bool = False


ALL: Final = Seen()
"""Memory as it is."""


class Epoch(Protocol):
    """Anything shaped like :class:`Cleared`."""

    @property
    def session(self) -> str | None:
        """See :class:`Cleared`."""

    @property
    def user(self) -> str | None:
        """See :class:`Cleared`."""

    @property
    def before(self) -> int:
        """See :class:`Cleared`."""


def selection(
    scope: Scope,
    wanted: RecallFilter,
    *,
    now: datetime,
    cleared: Sequence[Epoch] = (),
    seen: Seen = ALL,
    metadata_keys: Collection[str] = (),
) -> models.Filter:
    """The points that a request sees. ``scope.session`` restricts nothing, ``wanted.sessions`` does.

    Args:
        scope: Whose memory, as whom.
        wanted: The request's filter.
        now: What has expired by then is left out.
        cleared: Epochs that the points must not lie before.
        seen: What of the past is seen.
        metadata_keys: Dotted keys that can be filtered by.

    Raises:
        RequestRefused: A key of metadata is not among those that can be filtered by.
    """
    must: list[models.Condition] = [equals("tenant", scope.tenant), equals("agent", scope.agent), *_in_sight(seen)]
    if not seen.marked_since:
        must.append(empty("left"))
    if scope.users == "own":
        must.append(equals("user", "") if scope.user is None else among("user", ["", scope.user]))
    if not wanted.invalidated and not seen.marked_since:
        must.append(empty("invalid"))
    must += _fields(wanted)
    must += _metadata(wanted, metadata_keys)
    must_not: list[models.Condition] = [_before(epoch) for epoch in cleared]
    if not wanted.roles:
        must_not.append(among("role", UNASKED_ROLES))
    if wanted.min_confidence is not None:
        must_not.append(between("confidence", lt=wanted.min_confidence))
    if not wanted.expired:
        must_not.append(during("expires", lte=now))
    if wanted.leave_out:
        must_not.append(among("record_id", wanted.leave_out))
    return models.Filter(must=must, must_not=must_not or None)


def _in_sight(seen: Seen) -> list[models.Condition]:
    found: list[models.Condition] = []
    if seen.until is not None:
        found.append(between("position", lt=seen.until + 1))
    if seen.happened_until is not None:
        found.append(during("happened", lte=seen.happened_until))
    return found


def _fields(wanted: RecallFilter) -> list[models.Condition]:
    lists: dict[str, Sequence[str]] = {
        "session": wanted.sessions,
        "layer": wanted.layers,
        "kind": wanted.kinds,
        "tags": wanted.tags,
        "topic": wanted.topics,
        "role": wanted.roles,
        "origin": wanted.origins,
    }
    found: list[models.Condition] = [among(key, values) for key, values in lists.items() if values]
    found += [equals("tags", tag) for tag in wanted.all_tags]
    if wanted.happened_from is not None or wanted.happened_until is not None:
        found.append(during("happened", gte=wanted.happened_from, lt=wanted.happened_until))
    if wanted.min_importance is not None:
        found.append(between("importance", gte=wanted.min_importance))
    return found


def _metadata(wanted: RecallFilter, known: Collection[str]) -> list[models.Condition]:
    found: list[models.Condition] = []
    for key, values in wanted.metadata.items():
        if key not in known:
            there = ", ".join(sorted(known)) or "none"
            raise RequestRefused(
                "bad_request",
                f"metadata key {key!r} cannot be filtered by; these can: {there} (setting ENGRAMLOG_METADATA_KEYS)",
            )
        texts = [metadata_text(value) for value in (values if isinstance(values, tuple) else (values,))]
        found.append(among(f"metadata.{key}", texts))
    return found


def _before(epoch: Epoch) -> models.Filter:
    must: list[models.Condition] = [between("position", lt=epoch.before)]
    if epoch.session is not None:
        must.append(equals("session", epoch.session))
    if epoch.user is not None:
        must.append(equals("user", epoch.user))
    return models.Filter(must=must)


def leaving(event: RecallChangedEvent, *, partition: int) -> models.Filter:
    """The points that an event takes out of recall: copies before it, in its partition.

    What is cleared are the event's user's records (or the shared ones, without a user), or everybody's.
    """
    data = event.data
    must = [equals("tenant", event.tenantid), equals("partition", partition), between("position", lt=data.before)]
    if event.agentid is not None:
        must.append(equals("agent", event.agentid))
    if data.cause in {"removed", "invalidated"} or data.scope == "record":
        must.append(among("record_id", data.ids))
    elif data.cause == "cleared":
        must += [] if event.sessionid is None else [equals("session", event.sessionid)]
        must += [equals("user", event.userid or "")] if data.users == "own" else []
    elif data.scope == "session":
        must.append(equals("session", event.sessionid or ""))
    elif data.scope == "user":
        must.append(equals("user", event.userid or ""))
    return models.Filter(must=must)


def with_ids(where: models.Filter, ids: Iterable[str]) -> models.Filter:
    """Of what a filter finds the points with these ids."""
    return models.Filter(must=[*conditions(where), models.HasIdCondition(has_id=list(ids))], must_not=where.must_not)


def conditions(where: models.Filter) -> list[models.Condition]:
    """What a filter of ours demands."""
    must = where.must
    return list(must) if isinstance(must, list) else []


def hinted(tenant: str, agent: str) -> models.Filter:
    """An agent's points that bear a hint."""
    bare: list[models.Condition] = [models.Filter(must=[empty(hint) for hint in HINTS])]
    return models.Filter(must=[equals("tenant", tenant), equals("agent", agent)], must_not=bare)


def of_tenant(tenant: str) -> models.Filter:
    """A tenant's points."""
    return models.Filter(must=[equals("tenant", tenant)])


def with_term(tenant: str, index: int) -> models.Filter:
    """A tenant's points that hold a term, in the form that the embedded engine counts from memory."""
    return models.Filter(must=[equals("tenant", tenant), equals("terms", index)])


def equals(key: str, value: str | int) -> models.FieldCondition:
    """The field is this value, or a list with it."""
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


def among(key: str, values: Sequence[str] | Sequence[int]) -> models.FieldCondition:
    """The field is one of these values, or a list with one of them."""
    return models.FieldCondition(key=key, match=models.MatchAny(any=list(values)))


def between(key: str, *, gte: float | None = None, lt: float | None = None) -> models.FieldCondition:
    """The field is a number in this range; a point without it is outside."""
    return models.FieldCondition(key=key, range=models.Range(gte=gte, lt=lt))


def during(
    key: str, *, gte: datetime | None = None, lt: datetime | None = None, lte: datetime | None = None
) -> models.FieldCondition:
    """The field is a time in this range; a point without it is outside."""
    bounds = {name: in_utc(time) for name, time in (("gte", gte), ("lt", lt), ("lte", lte)) if time is not None}
    return models.FieldCondition(key=key, range=models.DatetimeRange(**bounds))


def empty(key: str) -> models.IsEmptyCondition:
    """The field is not set. Much faster on the embedded engine than excluding a value that hardly a point has."""
    return models.IsEmptyCondition(is_empty=models.PayloadField(key=key))
