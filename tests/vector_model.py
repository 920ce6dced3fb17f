"""The vector store as a few lines of Python, computed from the events themselves; and what the tests write."""

import base64
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from engramlog.engine.ports import CollectionSpec, Matrix
from engramlog.engine.vectors.changes import Change, Dropped, Left, Unhinted, Written
from engramlog.engine.vectors.selecting import Cleared
from engramlog.schemas.derived import Derived, RecallChanged, RecallChangedEvent, RecordDerived
from engramlog.schemas.derived import Vectors as Embedding
from engramlog.schemas.recalls import RecallFilter
from engramlog.schemas.scope import Scope

DIMENSION = 8
MODEL = "model-a"
KEYS = ("project_id", "repo.branch", "pinned", "odd-key")
SPEC = CollectionSpec(
    name="memory-g1",
    model=MODEL,
    dimension=DIMENSION,
    keyword_keys=tuple(f"metadata.{key}" for key in KEYS),
    extra={"generation": "1"},
)
START = datetime(2026, 3, 1, tzinfo=UTC)


def embedded(rows: Any, *, model: str = MODEL) -> Embedding:
    """An embedding of these rows."""
    matrix = np.atleast_2d(np.asarray(rows, dtype="<f4"))
    return Embedding(
        model=model,
        dimension=matrix.shape[1],
        values=base64.b64encode(matrix.tobytes()).decode(),
        spans=tuple((i, i + 1) for i in range(len(matrix))),
    )


def direction(seed: int, rows: int = 1) -> Matrix:
    """Unit vectors, always the same for a seed."""
    matrix = np.random.default_rng(seed).standard_normal((rows, DIMENSION)).astype(np.float32)
    return np.asarray(matrix / np.linalg.norm(matrix, axis=1, keepdims=True), dtype=np.float32)


def derived(
    record_id: str = "r1",
    *,
    tenant: str = "acme",
    agent: str = "bot",
    session: str | None = "s1",
    user: str | None = None,
    offset: int = 0,
    **fields: Any,
) -> RecordDerived:
    """A derived record with little in it."""
    data: dict[str, Any] = {"turn": 0, "role": "user", "timestamp": START, "importance": 0.5, "deriver": "rules.v1"}
    return RecordDerived(
        source="test",
        tenantid=tenant,
        agentid=agent,
        sessionid=session,
        userid=user,
        data=Derived(record_id=record_id, offset=offset, **(data | fields)),
    )


def written(*events: RecordDerived, start: int = 0, partition: int = 0) -> list[Change]:
    """They come one after the other in the derived topic."""
    return [Written(event, sequence=start + i, partition=partition) for i, event in enumerate(events)]


def left(cause: str, *, before: int, partition: int = 0, **fields: Any) -> Left:
    """Records leave recall; what is not of the envelope goes into the data."""
    data = {key: fields.pop(key) for key in ("ids", "users", "scope") if key in fields}
    names = {"tenant": "tenantid", "agent": "agentid", "session": "sessionid", "user": "userid"}
    address = {names[key]: value for key, value in ({"tenant": "acme", "agent": "bot"} | fields).items()}
    event = RecallChangedEvent(source="test", data=RecallChanged(cause=cause, before=before, **data), **address)  # type: ignore[arg-type]
    return Left(event, partition=partition)


@dataclass(slots=True)
class Point:
    """What the model knows of a point."""

    event: RecordDerived
    sequence: int
    partition: int
    hints: set[str] = field(default_factory=set)


class Model:
    """The state after some changes."""

    def __init__(self) -> None:
        self.points: dict[tuple[str, str, str], Point] = {}

    def apply(self, changes: Sequence[Change]) -> None:
        """As the store should."""
        for change in changes:
            if isinstance(change, Written):
                e = change.event
                key = (e.tenantid, e.agentid, e.data.record_id)
                if key not in self.points or self.points[key].sequence < change.sequence:
                    self.points[key] = Point(e, change.sequence, change.partition)
            elif isinstance(change, Dropped):
                key = (change.tenant, change.agent, change.record_id)
                if key in self.points and self.points[key].sequence < change.sequence:
                    del self.points[key]
            elif isinstance(change, Unhinted):
                for (tenant, agent, _), point in self.points.items():
                    if (tenant, agent) == (change.tenant, change.agent):
                        point.hints.clear()
            else:
                self._leave(change)

    def _leave(self, change: Left) -> None:
        data = change.event.data
        for key in [key for key, point in self.points.items() if _concerns(change, point)]:
            if data.cause == "erased":
                del self.points[key]
            else:
                self.points[key].hints.add("invalid" if data.cause == "invalidated" else "left")

    def seen(
        self, scope: Scope, wanted: RecallFilter, *, now: datetime, cleared: Sequence[Cleared] = ()
    ) -> dict[str, RecordDerived]:
        """The records that a request sees, by id."""
        return {
            p.event.data.record_id: p.event
            for p in self.points.values()
            if (p.event.tenantid, p.event.agentid) == (scope.tenant, scope.agent)
            and (scope.users == "all" or p.event.userid in {None, scope.user})
            and "left" not in p.hints
            and (wanted.invalidated or "invalid" not in p.hints)
            and not any(_covers(epoch, p.event) for epoch in cleared)
            and _passes(p.event, wanted, now)
        }


def _concerns(change: Left, point: Point) -> bool:
    told, data, event = change.event, change.event.data, point.event
    if (told.tenantid, change.partition) != (event.tenantid, point.partition) or event.data.offset >= data.before:
        return False
    if told.agentid not in {None, event.agentid}:
        return False
    if data.cause in {"removed", "invalidated"} or data.scope == "record":
        return event.data.record_id in data.ids
    if data.cause == "cleared":
        return told.sessionid in {None, event.sessionid} and (data.users == "all" or event.userid == told.userid)
    if data.scope == "session":
        return event.sessionid == told.sessionid
    return data.scope != "user" or event.userid == told.userid


def _covers(epoch: Cleared, event: RecordDerived) -> bool:
    return (
        event.data.offset < epoch.before
        and (epoch.session is None or epoch.session == (event.sessionid or ""))
        and (epoch.user is None or epoch.user == (event.userid or ""))
    )


def _passes(event: RecordDerived, f: RecallFilter, now: datetime) -> bool:
    d = event.data
    return all(
        (
            not f.sessions or event.sessionid in f.sessions,
            not f.layers or d.layer in f.layers,
            not f.kinds or d.kind in f.kinds,
            not f.tags or bool({*f.tags} & {*d.tags}),
            {*f.all_tags} <= {*d.tags},
            not f.topics or d.topic in f.topics,
            d.role in f.roles if f.roles else d.role not in {"system", "developer"},
            not f.origins or d.origin in f.origins,
            f.happened_from is None or d.timestamp >= f.happened_from,
            f.happened_until is None or d.timestamp < f.happened_until,
            f.min_importance is None or d.importance >= f.min_importance,
            f.min_confidence is None or d.confidence is None or d.confidence >= f.min_confidence,
            all(_holds(d.metadata, key, value) for key, value in f.metadata.items()),
            f.expired or d.expires_at is None or now < d.expires_at,
            d.record_id not in f.leave_out,
        )
    )


def _holds(metadata: Mapping[str, Any], key: str, wanted: Any) -> bool:
    value: Any = metadata
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    there = value if isinstance(value, list) else [value]
    return any(_same(a, b) for a in there for b in (wanted if isinstance(wanted, tuple) else (wanted,)))


def _same(a: Any, b: Any) -> bool:
    """1 and 1.0 are the same; 1, "1" and true are not."""
    return a == b and isinstance(a, bool) == isinstance(b, bool) and isinstance(a, str) == isinstance(b, str)


def cosine(event: RecordDerived, question: Matrix) -> float | None:
    """Of the nearest chunk."""
    if event.data.embedding is None:
        return None
    rows = np.frombuffer(event.data.embedding.packed(), dtype="<f4").reshape(-1, DIMENSION).astype(np.float64)
    q = np.asarray(question, dtype=np.float64)
    return float(max(row @ q / (np.linalg.norm(row) * np.linalg.norm(q)) for row in rows))


def bm25(event: RecordDerived, weights: Mapping[str, float]) -> float:
    """With k1 0.9, b 0.4 and an average length of 20 terms."""
    d = event.data
    share = 0.9 * (1 - 0.4 + 0.4 * d.length / 20)
    return sum(w * d.terms[t] * 1.9 / (d.terms[t] + share) for t, w in weights.items() if t in d.terms)


def best(scores: Mapping[str, float], limit: int) -> set[str]:
    """The ids of the best scores; those that are nearly equal to the last one are left to the store."""
    return {key for key, _ in sorted(scores.items(), key=lambda pair: -pair[1])[:limit]}


def near(a: float | None, b: float | None) -> bool:
    """Equal up to the rounding of float32."""
    return a is b is None or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-5))


ODD_IDS = ("r/1", "r:1", 'r|"1"', "(r)-1", "记录一", "r%1~", "👋", "r 1")


def assorted(count: int, *, tenants: Collection[str] = ("acme", "acme-corp"), seed: int = 1) -> list[RecordDerived]:
    """Records of every kind, of tenants and agents interleaved."""
    rng = np.random.default_rng(seed)

    def one_of(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    def event(i: int) -> RecordDerived:
        words = {str(w): int(rng.integers(1, 4)) for w in rng.choice(_WORDS, size=int(rng.integers(0, 6)))}
        rows = int(rng.integers(0, 4))
        return derived(
            f"r{i}" if i % 4 < 2 else f"{ODD_IDS[i % len(ODD_IDS)]}{i}",
            tenant=[*tenants][i % len(tenants)],
            agent=one_of("bot", "bot", "bot/2"),
            session=one_of(None, "s1", "s2", '会话/:|"()-'),
            user=one_of(None, "u1", "u2", "用户|1"),
            offset=i,
            turn=int(rng.integers(0, 30)),
            role=one_of("user", "assistant", "tool", "system", "developer"),
            role_name=one_of(None, "Alice", "小明"),
            layer=one_of(None, "core", "working", "long_term"),
            kind=one_of("turn", "fact", "preference"),
            origin=one_of("dialogue", "import", "extracted"),
            tags=one_of((), ("a",), ("a", "b"), ("b", "标签")),
            topic=one_of(None, "weather", "天气"),
            importance=one_of(0.0, 0.3, 0.5, 1.0),
            confidence=one_of(None, 0.2, 0.9),
            timestamp=START + timedelta(hours=int(rng.integers(0, 5)), microseconds=int(rng.integers(0, 3))),
            expires_at=one_of(None, None, START, START + timedelta(microseconds=1), START + timedelta(days=1)),
            metadata=one_of(*_METADATA),
            embedding=None if not rows else embedded(direction(i, rows)),
            terms=words,
            length=sum(words.values()),
        )

    return [event(i) for i in range(count)]


_WORDS = ("cat", "dog", "天气", "dalian", "大连", "laptop", "dark", "👋")
_METADATA: tuple[dict[str, Any], ...] = (
    {},
    {"project_id": "p1", "pinned": True, "unindexed": "x"},
    {"project_id": 1, "repo": {"branch": ["main", "dev"]}},
    {"project_id": "1", "repo": {"branch": "main"}, "odd-key": 'a"b/:|()-'},
    {"project_id": ["p1", 2, None, {"deep": 1}], "repo": "none", "pinned": False},
    {"project_id": 1.0, "pinned": 1, "odd-key": "数据"},
)
