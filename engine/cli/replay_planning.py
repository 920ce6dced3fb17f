"""What a replay would read and build, and where one that goes back in time ends."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from engramlog.engine.cli import output
from engramlog.engine.cli.lag import missing_file
from engramlog.engine.client.admin import inspect_topics
from engramlog.engine.client.reader import places_at, spans
from engramlog.engine.history import History
from engramlog.engine.history.versions import BUILDING, HISTORY, PROJECTED, VECTORS, Projected, Version
from engramlog.engine.settings import Settings
from engramlog.schemas.asking import positions_of
from engramlog.schemas.errors import ConfigurationError
from engramlog.schemas.topics import Topics

EVENTS_PER_S: dict[Projected, int] = {HISTORY: 6_000, VECTORS: 4_000}
"""What a machine of two cores does, as a guess before anything was read."""
MAY_BE_MISSING = (
    "the log is compacted: a record that was sent again after that point lies there as its last copy only, and is "
    "missing here; what was erased since stays erased"
)

Until = datetime | str
"""An instant of the log's clock, or a token of positions."""
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Planned:
    """One projection of a plan.

    Attributes:
        active: The version that is read now.
        resumes: The version that was begun already and would be gone on with; None: a new one.
        events: By topic, how many offsets would be read; what compaction took is among them.
        disk_bytes: What the stores of this projection take now, all their versions; None: they are on a server.
    """

    active: Version
    resumes: Version | None
    events: dict[str, int]
    disk_bytes: int | None

    @property
    def seconds(self) -> float:
        """About how long it would take."""
        return sum(self.events.values()) / EVENTS_PER_S[self.active.projection]


def chosen(what: str) -> tuple[Projected, ...]:
    """The projections that a word names."""
    return PROJECTED if what == "all" else tuple(p for p in PROJECTED if p == what)


def require_history(settings: Settings) -> None:
    """Refuse to look at a database that does not exist: looking must not create it.

    Raises:
        ConfigurationError: There is none.
    """
    if (path := missing_file(settings.effective_history_url())) is not None:
        raise ConfigurationError(f"there is no history at {path} (ENGRAMLOG_HISTORY_URL, or ENGRAMLOG_DATA_DIR)")


def topics_of(topics: Topics, version: Version) -> tuple[str, ...]:
    """The topics that a version is built from."""
    derived = topics.derived_of(version.generation)
    return (topics.records, derived, topics.summaries) if version.projection == HISTORY else (derived,)


async def plan(settings: Settings, what: str, *, until: Until | None = None) -> list[Planned]:
    """Look at what a replay would do; builds nothing.

    Raises:
        ConfigurationError: A topic is missing, or there is no database.
        BrokerUnavailable: Kafka does not answer.
        StoreUnavailable: The database does not answer.
    """
    require_history(settings)
    cluster = (await inspect_topics(settings.kafka(), topics=settings.topics())).require()
    topics = Topics(settings.prefix, cluster.partitions)
    history = History(settings.effective_history_url(), topics=topics, timeout_s=settings.timeout_s)
    await history.start()
    try:
        every = await history.versions.all()
    finally:
        await history.stop()
    active = {v.projection: v for v in every if v.active}
    found = []
    for projection in chosen(what):
        names = topics_of(topics, active[projection])
        held = await spans(settings.kafka(), dict.fromkeys(names, cluster.partitions))
        ends = await offsets_until(settings, names, cluster.partitions, until) if until is not None else {}
        counts = dict.fromkeys(names, 0)
        for place, span in held.items():
            counts[place[0]] += max(
                0, min(span.end, ends.get(place, 0) if until is not None else span.end) - span.begin
            )
        begun = (v for v in every if v.projection == projection and v.state == BUILDING and not v.name)
        same = (v for v in begun if v.generation == active[projection].generation)
        resumes = next(same, None) if until is None else None
        found.append(Planned(active[projection], resumes, counts, _disk_bytes(settings, projection)))
    return found


async def offsets_until(settings: Settings, topics: tuple[str, ...], partitions: int, until: Until) -> dict[Place, int]:
    """Where a point in the past lies: by topic and partition, the offset of the first event after it.

    Raises:
        RequestRefused: It is no token.
        ConfigurationError: The token is of other topics.
    """
    if isinstance(until, datetime):
        found: dict[Place, int] = {}
        for topic in topics:
            at = await places_at(settings.kafka(), topic, partitions=range(partitions), time=until)
            found |= {(topic, partition): offset for partition, offset in at.items()}
        return found
    positions = positions_of(until)
    if positions and not any(p.topic in topics for p in positions):
        named = ", ".join(sorted({p.topic for p in positions}))
        raise ConfigurationError(f"the token is of other topics ({named}): another engine, or another --prefix")
    lasts = {(p.topic, p.partition): p.offset for p in positions}
    return {(topic, n): lasts.get((topic, n), -1) + 1 for topic in topics for n in range(partitions)}


def show_plan(planned: list[Planned], *, as_json: bool) -> None:
    """Print a plan."""
    if as_json:
        output.print_json({"event": "plan", "projections": [_as_json(one) for one in planned]})
        return
    rows: list[tuple[Any, ...]] = []
    for one in planned:
        becomes = f"goes on with v{one.resumes.number}" if one.resumes else "a new version"
        for index, (topic, events) in enumerate(one.events.items()):
            first = index == 0
            rows.append(
                (
                    one.active.projection if first else None,
                    f"v{one.active.number}" if first else None,
                    becomes if first else None,
                    topic,
                    f"{events:,}",
                    f"{one.seconds:,.0f}" if first else None,
                    _mb(one.disk_bytes) if first else None,
                )
            )
    columns = ("projection", "active", "would be", "read from", "events", "seconds, about", "on disk now, MB")
    output.print_table("Replay: nothing was done", columns, rows, right=columns[4:])
    output.say("a new version takes about as much disk as the active one")


def _as_json(one: Planned) -> dict[str, Any]:
    return {
        "projection": one.active.projection,
        "active": one.active.number,
        "generation": one.active.generation,
        "resumes": one.resumes.number if one.resumes else None,
        "events": one.events,
        "estimated_seconds": round(one.seconds, 1),
        "disk_bytes_now": one.disk_bytes,
    }


def _mb(size: int | None) -> str:
    return "on a server" if size is None else f"{size / 1e6:,.1f}"


def _disk_bytes(settings: Settings, projection: Projected) -> int | None:
    if projection == HISTORY:
        url = settings.effective_history_url()
        return Path(url.partition(":///")[2]).stat().st_size if url.startswith("sqlite") else None
    url = settings.vectors_url or f"edge:{settings.data_dir / 'vectors'}"
    if not url.startswith("edge:"):
        return None
    under = Path(url.removeprefix("edge:")).expanduser().glob(f"{settings.prefix}-v*/**/*")
    return sum(file.stat().st_size for file in under if file.is_file())
