"""What ``engramlog verify`` prints."""

from collections.abc import Mapping
from typing import Any

from engramlog.engine.cli import output
from engramlog.engine.history.digest import Agent, Digest
from engramlog.engine.replay.differences import Comparison, Difference, Place

_SHOWN_AGENTS = 50


def show_comparison(found: Comparison, *, as_json: bool) -> None:
    """Print what a comparison found."""
    if as_json:
        output.print_json(_as_json(found))
        return
    if found.why_not:
        output.say(f"the {found.projection} could not be compared: {found.why_not}")
        return
    sides = [(name, found.side(name)) for name in ("live", "rebuilt")]
    rows = [(name, str(side), _counts(side.counts)) for name, side in sides]
    output.print_table(_verdict(found), (found.projection, "digest", "rows"), rows, last_wraps=True)
    unequal = [(tenant, agent) for (tenant, agent), pair in found.agents.items() if not pair.equal]
    if unequal:
        output.print_table("Agents that differ", ("tenant", "agent"), unequal[:_SHOWN_AGENTS])
    if found.differences:
        columns = ("tenant", "agent", "what", "id", "field", "live", "the log says")
        output.print_table("Differences", columns, _rows(found), last_wraps=True)
    if found.different > len(found.differences):
        output.say(f"{found.different - len(found.differences):,} more differences")
    if found.uncounted:
        output.say(f"{output.count(found.uncounted, 'more agent')} with differences")
    if found.moved_on:
        output.say(f"{output.count(found.moved_on, 'point')} not compared: written since")


def _verdict(found: Comparison) -> str:
    agents = output.count(len(found.agents), "agent")
    if found.equal:
        return f"The {found.projection} is what the log says ({agents})"
    return f"The {found.projection} is NOT what the log says: {output.count(found.different, 'difference')} ({agents})"


def _rows(found: Comparison) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for one in found.differences:
        place = (one.tenant, one.agent, one.kind, one.id)
        if one.live is None or one.rebuilt is None:
            missing, there = "is not there", "is there"
            rows.append((*place, "", missing if one.live is None else there, missing if one.rebuilt is None else there))
            continue
        rows += [(*place, name, one.live.get(name), one.rebuilt.get(name)) for name in one.fields or ("?",)]
    return rows


def show_digests(
    projection: str,
    by_agent: Mapping[Agent, Digest],
    checkpoints: Mapping[Place, int],
    *,
    positions: bool,
    as_json: bool,
) -> None:
    """Print digests of what is live.

    Args:
        projection: Of what.
        by_agent: By tenant and agent.
        checkpoints: Next offset of every partition.
        positions: Whether positions are in the digests.
        as_json: JSON instead of tables.
    """
    total = Digest(sum(digest.total for digest in by_agent.values()))
    if as_json:
        output.print_json(
            {
                "event": "digest",
                "projection": projection,
                "position_free": not positions,
                "positions": _positions(checkpoints),
                "digest": str(total),
                "agents": [
                    {"tenant": tenant, "agent": agent, "digest": str(digest), "counts": digest.counts}
                    for (tenant, agent), digest in by_agent.items()
                ],
            }
        )
        return
    rows = [(tenant, agent, str(one), _counts(one.counts)) for (tenant, agent), one in by_agent.items()]
    columns = ("tenant", "agent", "digest", "rows")
    output.print_table(f"{projection}: {total}", columns, rows, last_wraps=True)
    places = [
        (f"{topic}/{partition}", f"{following:,}") for (topic, partition), following in sorted(checkpoints.items())
    ]
    output.print_table("Positions", ("partition", "next offset"), places, right=("next offset",))


def _as_json(found: Comparison) -> dict[str, Any]:
    sides = {name: found.side(name) for name in ("live", "rebuilt")}
    return {
        "event": "done",
        "projection": found.projection,
        "equal": found.equal,
        "why_not": found.why_not or None,
        "positions": _positions(found.positions),
        **{name: {"digest": str(side), "counts": side.counts} for name, side in sides.items()},
        "agents": len(found.agents),
        "unequal_agents": [
            {"tenant": tenant, "agent": agent, "live": str(pair.live), "rebuilt": str(pair.rebuilt)}
            for (tenant, agent), pair in found.agents.items()
            if not pair.equal
        ],
        "different": found.different,
        "differences": [_difference(one) for one in found.differences],
        "agents_not_looked_at": found.uncounted,
        "moved_on": found.moved_on,
    }


def _difference(one: Difference) -> dict[str, Any]:
    return {
        "tenant": one.tenant,
        "agent": one.agent,
        "kind": one.kind,
        "id": one.id,
        "fields": list(one.fields),
        "live": one.live,
        "rebuilt": one.rebuilt,
    }


def _positions(checkpoints: Mapping[Place, int]) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partition": partition, "next": following}
        for (topic, partition), following in sorted(checkpoints.items())
    ]


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {n:,}" for kind, n in sorted(counts.items())) or "none"
