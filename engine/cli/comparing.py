"""What was published against what was read back: counted, never assumed."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engramlog.engine.cli.turns import Turn

Agent = tuple[str, str]
Session = tuple[str, str, str]
RecordKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The comparison.

    Attributes:
        published: Distinct records that were published.
        projected: How many of them were read back.
        lost: Those that were not, from their agent or from their session.
        duplicated: Those that were read back more than once.
        unexpected: What was read back and never published there.
        out_of_order: Agents and sessions whose records came back in another order.
    """

    published: int
    projected: int
    lost: tuple[RecordKey, ...]
    duplicated: tuple[RecordKey, ...]
    unexpected: tuple[RecordKey, ...]
    out_of_order: tuple[tuple[str, ...], ...]

    @property
    def good(self) -> bool:
        """Whether memory is what was told."""
        return not (self.lost or self.duplicated or self.unexpected or self.out_of_order)


def scopes_of(turns: Iterable[Turn]) -> tuple[list[Agent], list[Session]]:
    """The agents, and the sessions, of turns; in the order in which they first appear."""
    agents: dict[Agent, None] = {}
    sessions: dict[Session, None] = {}
    for turn in turns:
        event = turn.event
        agents[event.tenantid, event.agentid] = None
        if event.sessionid is not None:
            sessions[event.tenantid, event.agentid, event.sessionid] = None
    return list(agents), list(sessions)


def compare(
    turns: Sequence[Turn], agents: Mapping[Agent, Sequence[str]], sessions: Mapping[Session, Sequence[str]]
) -> Outcome:
    """Compare.

    Args:
        turns: What was published, in order. Of a record that was published again the last copy counts.
        agents: The record ids that were read back from each agent's whole history, in order.
        sessions: Likewise from each session.
    """
    last = {turn.key: turn.event.sessionid for turn in turns}
    expected: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for tenant, agent, record_id in reversed(list(dict.fromkeys(turn.key for turn in reversed(turns)))):
        expected[tenant, agent].append(record_id)
        if (session := last[tenant, agent, record_id]) is not None:
            expected[tenant, agent, session].append(record_id)
    reads: dict[tuple[str, ...], Sequence[str]] = dict(agents.items())
    reads |= dict(sessions.items())
    lost, duplicated, unexpected, disordered = set(), set(), set(), []
    for scope in expected.keys() | reads.keys():
        wanted, found = expected.get(scope, []), reads.get(scope, ())
        counts = Counter(found)
        key = scope[:2]
        lost |= {(*key, record_id) for record_id in wanted if record_id not in counts}
        duplicated |= {(*key, record_id) for record_id, n in counts.items() if n > 1}
        known = set(wanted)
        unexpected |= {(*key, record_id) for record_id in counts if record_id not in known}
        if [i for i in dict.fromkeys(found) if i in known] != [i for i in wanted if i in counts]:
            disordered.append(scope)
    return Outcome(
        published=len(last),
        projected=len(last) - len(lost),
        lost=_sorted(lost),
        duplicated=_sorted(duplicated),
        unexpected=_sorted(unexpected),
        out_of_order=tuple(sorted(disordered)),
    )


def _sorted(keys: set[tuple[str, ...]]) -> tuple[RecordKey, ...]:
    return tuple(sorted((tenant, agent, record_id) for tenant, agent, record_id in keys))
