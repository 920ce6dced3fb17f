"""What differs between a live projection and what the log says, and how that is told."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from engramlog.engine.history.digest import Agent, Digest, RowKey
from engramlog.schemas.errors import ConfigurationError

Place = tuple[str, int]
"""Topic and partition."""
Only = Callable[[Agent], bool]
"""Whether an agent is to be compared."""

LISTED: Final = 100
"""So many differences are told one by one."""
LOOKS: Final = 3
"""How often it is looked again whether something really differs, or has only just changed."""
WAIT_S: Final = 60.0
"""How long the live version may need to pass a build that is ahead of it, in seconds."""
_SHORT: Final = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that the log says otherwise.

    Attributes:
        tenant: Whose.
        agent: Whose; empty: of all the tenant's agents.
        kind: What it is: ``record``, ``mark``, ``derived``, ``summary``, ..., ``point``.
        id: Which one.
        fields: What differs, as dotted paths; empty: one side does not have it, or had too much to be kept.
        live: The live values of these fields, or all of it if the log does not know it; None: it is not there.
        rebuilt: Likewise what the log says.
    """

    tenant: str
    agent: str
    kind: str
    id: str
    fields: tuple[str, ...] = ()
    live: Mapping[str, Any] | None = None
    rebuilt: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """One agent, live and as the log says.

    Attributes:
        live: The digest of what is live.
        rebuilt: The digest of what was built.
    """

    live: Digest
    rebuilt: Digest

    @property
    def equal(self) -> bool:
        """Whether they are the same."""
        return str(self.live) == str(self.rebuilt)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison found.

    Attributes:
        projection: ``history`` or ``vectors``.
        positions: Next offset of every partition that both were compared at.
        agents: What was compared, by tenant and agent.
        differences: What differs, at most :data:`LISTED`.
        different: How many differences there are. More than are listed; at least so many if ``uncounted``.
        uncounted: How many agents differ whose differences were not looked for, because enough were found.
        moved_on: How much was not compared, because it has changed since the positions.
        why_not: Why nothing could be compared; empty: it was.
    """

    projection: str
    positions: Mapping[Place, int] = field(default_factory=dict)
    agents: Mapping[Agent, Pair] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    different: int = 0
    uncounted: int = 0
    moved_on: int = 0
    why_not: str = ""

    @property
    def equal(self) -> bool:
        """Whether it was compared, and is the same."""
        return not self.why_not and not self.different and not self.uncounted

    def side(self, name: str) -> Digest:
        """The sum of the agents' digests, of ``live`` or of ``rebuilt``."""
        whole = Digest()
        for pair in self.agents.values():
            one: Digest = getattr(pair, name)
            whole.total += one.total
            for kind, count in one.counts.items():
                whole.counts[kind] = whole.counts.get(kind, 0) + count
        return whole


def require_equal(comparison: Comparison) -> None:
    """Refuse to go on with what differs.

    Raises:
        ConfigurationError: It differs, or could not be compared; the message names the first differences.
    """
    if comparison.why_not:
        raise ConfigurationError(f"the {comparison.projection} could not be compared: {comparison.why_not}")
    if not comparison.equal:
        first = "; ".join(f"{d.kind} {d.id!r} of {d.tenant}/{d.agent}" for d in comparison.differences[:5])
        raise ConfigurationError(
            f"the live {comparison.projection} is not what the log says, in {comparison.different:,} places: {first} … "
            "('engramlog verify' tells them all)"
        )


def difference(
    agent: Agent, key: RowKey, live: Mapping[str, Any] | None, rebuilt: Mapping[str, Any] | None
) -> Difference:
    """Say what differs between two values; None: it is not there."""
    fields: tuple[str, ...] = ()
    if live is not None and rebuilt is not None:
        fields = tuple(unlike(live, rebuilt))
    return Difference(*agent, *key, fields, _of(live, fields), _of(rebuilt, fields))


def unlike(one: Mapping[str, Any], other: Mapping[str, Any], *, prefix: str = "") -> Iterator[str]:
    """The dotted paths at which two objects differ."""
    for name in sorted({*one, *other}):
        a, b = one.get(name), other.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from unlike(a, b, prefix=f"{prefix}{name}.")
        elif a != b or (name in one) != (name in other):
            yield f"{prefix}{name}"


def _of(values: Mapping[str, Any] | None, fields: Sequence[str]) -> Mapping[str, Any] | None:
    """Of values those at paths, or all; shortened."""
    if values is None:
        return None
    wanted = fields or [name for name in values if name not in {"tenant", "agent"}]
    return {path: shortened(_at(values, path)) for path in wanted}


def _at(values: Mapping[str, Any], path: str) -> Any:
    found: Any = values
    for name in path.split(".") if path not in values else [path]:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def shortened(value: Any) -> Any:
    """A value as it is shown: long ones are cut."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}… ({len(text):,} characters)"
