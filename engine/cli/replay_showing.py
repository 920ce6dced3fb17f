"""What a replay shows: a bar and a table for people, JSON lines for programs."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from engramlog.engine.cli import output
from engramlog.engine.cli.replaying import safe
from engramlog.engine.cli.verify_showing import show_comparison

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from engramlog.engine.history.versions import Version
    from engramlog.engine.replay.building import Progress, ReplayStopped
    from engramlog.engine.replay.probing import Counted, Probing
    from engramlog.engine.replay.replay import Outcome, Phase, VersionsDiffer

SHOWN_BYTES = 2_000
"""So much of an event that stops a replay is shown."""
_DOING: "Mapping[Phase, str]" = {
    "building": "building",
    "comparing": "comparing with the live version:",
    "catching_up": "catching up with the log",
    "switching": "switching",
    "switched": "switched",
    "dropping": "dropping older versions",
}


class Showing:
    """Shows how a replay goes, and what it did. A context manager: inside, the bar is there."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._stack = ExitStack()
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        if not self._as_json:
            self._bars = self._stack.enter_context(_bars())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def phase(self, phase: "Phase", version: "Version | None") -> None:
        """Say what begins."""
        if self._as_json:
            named = {"projection": version.projection, "version": version.number} if version else {}
            output.print_json({"event": "phase", "phase": phase, **named})
        else:
            output.say(f"{_DOING[phase]} {version}" if version else _DOING[phase])

    def progress(self, progress: "Progress") -> None:
        """Show how far one has come."""
        if self._as_json:
            output.print_json({"event": "progress", **_told(progress)})
        elif self._bars is not None:
            name = f"{progress.projection} v{progress.version}"
            if name not in self._tasks:
                self._tasks[name] = self._bars.add_task(name, total=None, speed="", lag="", eta="")
            eta = progress.eta_s
            self._bars.update(
                self._tasks[name],
                total=progress.total,
                completed=progress.total - progress.lag,
                speed=f"{progress.events_per_s:,.0f} events/s",
                lag=f"lag {progress.lag:,}",
                eta="" if eta is None else f"{eta:,.0f} s left",
            )

    def stopped(self, stopped: "ReplayStopped") -> None:
        """Say which event stopped it, and what can be done."""
        value = stopped.value
        reason = getattr(stopped.error, "reason", type(stopped.error).__name__)
        shown = None if value is None else safe(value[:SHOWN_BYTES])
        if self._as_json:
            output.print_json(
                {
                    "event": "stopped",
                    "projection": stopped.projection,
                    "position": stopped.position,
                    "reason": reason,
                    "error": safe(str(stopped.error)),
                    "bytes": None if value is None else len(value),
                    "value": shown,
                }
            )
            return
        self._stack.close()
        output.say(safe(f"stopped at {stopped.position} ({reason}): {stopped.error}"))
        if value is None:
            output.say("the event: a tombstone")
        else:
            output.say(f"the event ({len(value):,} bytes): {shown}{'…' if len(value) > SHOWN_BYTES else ''}")
        output.say(
            f"Nothing was switched, and what was built of {stopped.projection} is kept. Mend it and run the "
            "same command again: it goes on there. Or add --dead-letter-new: such events become dead letters."
        )

    def differ(self, differ: "VersionsDiffer") -> None:
        """Say where a new version differs from the live one."""
        found = differ.found
        if self._as_json:
            output.print_json(
                {
                    "event": "differ",
                    "projection": differ.version.projection,
                    "version": differ.version.number,
                    "why_not_compared": found.why_not or None,
                    "live": {"digest": str(found.side("live")), "counts": found.side("live").counts},
                    "new": {"digest": str(found.side("rebuilt")), "counts": found.side("rebuilt").counts},
                    "different": found.different,
                    "differences": [asdict(one) for one in found.differences],
                }
            )
            return
        self._stack.close()
        if not found.why_not:
            show_comparison(found, as_json=False)
        output.say(output.one_line(str(differ)))

    def named(self, outcome: "Outcome", name: str, caveat: str) -> None:
        """Say what a read-only projection holds."""
        if self._as_json:
            built = [_told(progress) | {"new": version.number} for version, progress in outcome.built]
            output.print_json({"event": "done", "name": name, "projections": built, "note": caveat})
            return
        self._stack.close()
        rows = [
            (
                v.projection,
                f"v{v.number}",
                f"{p.applied:,}",
                f"{p.passed:,}",
                f"{p.dead_lettered:,}",
                f"{p.seconds:.1f}",
            )
            for v, p in outcome.built
        ]
        columns = ("projection", "version", "events", "passed over", "dead-lettered", "seconds")
        output.print_table(f"Built {name}", columns, rows, right=columns[2:])
        output.say(f"{caveat}. Queries that name it ('projection': {name!r}) are answered from it.")

    def done(self, outcome: "Outcome", probing: "Probing") -> None:
        """Say what was done, and what readers noticed."""
        if self._as_json:
            output.print_json(_done(outcome, probing))
            return
        self._stack.close()
        _tables(outcome, probing)


def _bars() -> "Bars":
    """Bars on standard error, where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    console = Console(stderr=True)
    fields = (TextColumn("{task.fields[speed]}"), TextColumn("{task.fields[eta]}"), TextColumn("{task.fields[lag]}"))
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), *fields)
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)


def _told(progress: "Progress") -> dict[str, Any]:
    eta = progress.eta_s
    return {
        "projection": progress.projection,
        "version": progress.version,
        "events": progress.applied,
        "passed_over": progress.passed,
        "dead_lettered": progress.dead_lettered,
        "lag": progress.lag,
        "total": progress.total,
        "events_per_s": round(progress.events_per_s, 1),
        "eta_s": None if eta is None else round(eta, 1),
        "seconds": round(progress.seconds, 3),
    }


def _done(outcome: "Outcome", probing: "Probing") -> dict[str, Any]:
    built = []
    for version, progress in outcome.built:
        found = outcome.compared.get(version.projection)
        sides = {"digest": str(found.side("rebuilt")), "counts": found.side("rebuilt").counts} if found else {}
        digests = {"digest_equal": None if found is None or found.why_not else found.equal, **sides}
        old = outcome.before[version.projection].number
        built.append(_told(progress) | {"old": old, "new": version.number, **digests})
    return {
        "event": "done",
        "projections": built,
        "switch_seconds": outcome.switched_s,
        "reads": None if probing.why_not else {moment: _reads(counted) for moment, counted in probing.found.items()},
        "reads_skipped": probing.why_not,
        "dropped": [str(version) for version in outcome.dropped],
        "not_dropped": [{"version": str(version), "why": why} for version, why in outcome.undropped],
    }


def _reads(counted: "Counted") -> dict[str, Any]:
    return {
        "count": counted.reads,
        "errors": counted.errors,
        "stale": counted.stale,
        "backwards": counted.backwards,
        "p50_ms": _rounded(counted.percentile(0.5)),
        "p99_ms": _rounded(counted.percentile(0.99)),
        "max_ms": _rounded(counted.percentile(1.0)),
        "said": [safe(one) for one in counted.said],
    }


def _tables(outcome: "Outcome", probing: "Probing") -> None:
    rows = []
    for version, p in outcome.built:
        found = outcome.compared.get(version.projection)
        digest = "not compared" if found is None or found.why_not else "equal" if found.equal else "differs"
        versions = f"v{outcome.before[version.projection].number} → v{version.number}"
        counts = (
            f"{p.applied:,}",
            f"{p.passed:,}",
            f"{p.dead_lettered:,}",
            f"{p.events_per_s:,.0f}",
            f"{p.seconds:.1f}",
        )
        rows.append((version.projection, versions, *counts, digest))
    columns = ("projection", "version", "events", "passed over", "dead-lettered", "events/s", "seconds", "digest")
    output.print_table(f"Switched in {outcome.switched_s or 0.0:.3f} s", columns, rows, right=columns[2:7])
    if probing.why_not:
        output.say(f"reads were not measured: {probing.why_not}")
    else:
        names = ("reads", "count", "errors", "stale", "p50 ms", "p99 ms", "max ms")
        keys = ("count", "errors", "stale", "p50_ms", "p99_ms", "max_ms")
        told = {moment: _reads(counted) for moment, counted in probing.found.items()}
        cells = [(f"{moment} the switch", *(reads[key] for key in keys)) for moment, reads in told.items()]
        output.print_table("Reads meanwhile", names, cells, right=names[1:])
        for reads in told.values():
            for one in reads["said"]:
                output.say(f"a read failed: {output.one_line(one, SHOWN_BYTES)}")
    for version in outcome.dropped:
        output.say(f"{version} is dropped")
    for version, why in outcome.undropped:
        output.say(f"{version} is still there ({why}): engramlog drop {version.projection}:{version.number}")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
