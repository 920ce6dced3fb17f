"""Sending dead letters anew: what a replay would do, told before it is done."""

import functools
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from engramlog.engine.cli import output

if TYPE_CHECKING:
    from engramlog.engine.client.dead_letters import Found, Letter, Plan, Wanted
    from engramlog.engine.client.publisher import Outgoing
    from engramlog.engine.client.reader import Message
    from engramlog.engine.settings import Settings


def safe(text: str | bytes) -> str:
    r"""Text or bytes as a terminal may show them: whatever is not printable is escaped (``\x1b``, ``\u202e``)."""
    shown = text.decode(errors="backslashreplace") if isinstance(text, bytes) else text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown)


async def partitions_of(settings: "Settings") -> dict[str, int]:
    """Number of partitions of each topic that exists; the dead-letter topic must."""
    from engramlog.engine.client.admin import inspect_topics
    from engramlog.schemas.errors import ConfigurationError

    cluster = await inspect_topics(settings.kafka(), topics=settings.topics())
    counts = {state.spec.name: state.partitions for state in cluster.states if state.partitions}
    if settings.topics().dead_letters not in counts:
        wrong = (p for s in cluster.states if s.spec.name == settings.topics().dead_letters for p in s.problems)
        raise ConfigurationError("; ".join(wrong))
    return counts


def tell_of_the_rest(found: "Found") -> None:
    """Say what lies in the topic besides whole letters."""
    if found.unreadable:
        output.say(f"{output.count(found.unreadable, 'message')} in the topic without the header of a dead letter")
    if found.incomplete:
        output.say(f"{output.count(found.incomplete, 'letter')} in pieces, some of which are missing")


@dataclass(slots=True)
class Replay:
    """What a replay would do, and what it did."""

    letters: "list[Letter]"
    partitions: dict[str, int]
    plan: "Plan"
    planned: int = 0
    moved: int = 0
    again: Counter[str] = field(default_factory=Counter)
    headers_lost: int = 0
    requests: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    published: int = 0
    vanished: int = 0

    def text(self) -> str:
        """For people, in one line."""
        said = [f"{output.count(len(self.letters), 'letter')}, {self.planned:,} to be published anew"]
        if self.moved:
            said.append(f"{self.moved:,} to another partition than they came from")
        if self.again:
            reasons = ", ".join(f"{safe(reason)} {n:,}" for reason, n in self.again.most_common())
            said.append(f"{self.again.total():,} will be dead letters again as they are ({reasons})")
        if self.headers_lost:
            said.append(f"{self.headers_lost:,} without all of their headers")
        said += [f"{safe(origin)} cannot be: {safe(why)}" for origin, why in self.refused]
        if self.vanished:
            said.append(f"{self.vanished:,} are gone meanwhile")
        if self.requests:
            said.append(f"{output.count(self.requests, 'request')} left out (name --topic queries)")
        return "; ".join(said) + "."

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "letters": len(self.letters),
            "planned": self.planned,
            "published": self.published,
            "moved": self.moved,
            "again": dict(self.again),
            "headers_lost": self.headers_lost,
            "requests_left_out": self.requests,
            "vanished": self.vanished,
            "refused": [{"origin": safe(origin), "why": safe(why)} for origin, why in self.refused],
        }


async def plan_replay(settings: "Settings", wanted: "Wanted", *, requests: bool) -> Replay:
    """Look at every letter that is meant, and at what it would be.

    Args:
        settings: The cluster.
        wanted: Which letters.
        requests: Whether requests are among them.
    """
    from engramlog.engine.client.dead_letters import Refusal, find, once_each, plan, raw_values

    topics, partitions = settings.topics(), await partitions_of(settings)
    found = await find(settings.kafka(), topics.dead_letters, partitions=partitions[topics.dead_letters], wanted=wanted)
    tell_of_the_rest(found)
    letters = once_each(found.letters)
    kept = letters if requests else [letter for letter in letters if letter.about.topic != topics.queries]
    agents = frozenset(spec.name for spec in topics.table() if spec.kind == "agent")
    planner = functools.partial(plan, partitions=partitions, agent_topics=agents)
    made = Replay(kept, partitions, planner, requests=len(letters) - len(kept))
    read = 0
    async for letter, value in raw_values(settings.kafka(), kept):
        read += 1
        planned = planner(letter, value)
        if isinstance(planned, Refusal):
            made.refused.append((letter.origin, planned.why))
            continue
        made.planned += 1
        made.moved += planned.partition != letter.about.partition
        made.headers_lost += letter.about.headers_left_out > 0
        if (reason := _forecast(settings, planned, partitions)) is not None:
            made.again[reason] += 1
    made.vanished = len(kept) - read
    return made


def _forecast(settings: "Settings", planned: "Outgoing", partitions: dict[str, int]) -> str | None:
    """Why a message will be a dead letter again, if that can be told by looking at it."""
    from engramlog.engine import admit
    from engramlog.engine.client.reader import decode
    from engramlog.schemas.codec import queries_codec, records_codec
    from engramlog.schemas.errors import InvalidEvent

    topics = settings.topics()
    message = _message(planned)
    if planned.topic == topics.inbox:
        position = message.position
        try:
            admit.admit(admit.Sent(position.topic, position.partition, position.offset, 0, planned.value or b""))
        except InvalidEvent as error:
            return error.reason
        return None
    codecs = {topics.records: records_codec(), topics.queries: queries_codec()}
    if planned.topic not in codecs:
        return None
    wrong = decode(message, codecs[planned.topic], partitions=partitions[planned.topic]).error
    return None if wrong is None else wrong.reason


def _message(planned: "Outgoing") -> "Message":
    from engramlog.engine.client.reader import Message
    from engramlog.schemas.scope import Position

    where = Position(planned.topic, planned.partition, 0)
    return Message(where, datetime.fromtimestamp(0, UTC), planned.key, planned.value)


async def carry_out(settings: "Settings", replaying: Replay) -> None:
    """Publish what was planned."""
    from engramlog.engine.client.dead_letters import send_anew

    def count(positions: list[Any]) -> None:
        replaying.published += len(positions)

    await send_anew(settings.kafka(), replaying.letters, replaying.plan, timeout_s=settings.timeout_s, on_sent=count)
