"""``answer``: answers the requests of ``memory.queries`` from the history and the vectors."""

import asyncio
import time
from contextlib import AsyncExitStack
from functools import partial

from engramlog.consumers.agent_log import KafkaAgentLog
from engramlog.consumers.requests import Requests
from engramlog.consumers.wire import Wiring, subscribe
from engramlog.engine.answer import Answers, Searching
from engramlog.engine.commands import Commands
from engramlog.engine.contexts import Contexts
from engramlog.engine.examining import Examination
from engramlog.engine.expansion import expanded
from engramlog.engine.history import History
from engramlog.engine.history.versions import Version
from engramlog.engine.named import Named
from engramlog.engine.positions import POLL_S, PositionWatch
from engramlog.engine.retrieve import Retrieval
from engramlog.engine.wiring import Backends, opened_version
from engramlog.schemas.codec import queries_codec

NAME = "answer"
GO_OVER_S = 10.0
"""How long new vectors may need to come to where those before are."""


def register(wiring: Wiring) -> Requests:
    """Subscribe the history and the vectors to the queries."""
    watch = PositionWatch(wiring.history.next_offsets)
    log = KafkaAgentLog(wiring.settings.kafka(), wiring.broker, wiring.topics.records, wiring.cluster.partitions)
    reads = asyncio.Semaphore(wiring.settings.answer_concurrency)
    derived = PositionWatch(wiring.history.derived_offsets)
    found = _Found(wiring.history, wiring.backends.version)
    searching = _searching(wiring, wiring.backends, found)
    contexts = Contexts(wiring.history, None if searching is None else searching.retrieval)
    named = Named(wiring.history, None if searching is None else partial(_open_retrieval, wiring))
    commands = Commands(wiring.history, watch, log)
    examination = _examination(wiring.backends)
    answers = Answers(wiring.history, watch, reads, commands, derived, contexts, searching, named, examination)

    async def follow(backends: Backends) -> None:
        """Search the vectors that are active now; whoever waits for positions goes on to wait for those."""
        await found.go_over(backends.version)
        answers.searching = _searching(wiring, backends, found)
        answers.examination = _examination(backends)
        answers.contexts = Contexts(wiring.history, None if answers.searching is None else answers.searching.retrieval)

    async def stop() -> None:
        await named.stop()
        await watch.stop()
        await derived.stop()
        await found.watch.stop()
        await log.stop()

    wiring.on_switch(follow)
    requests = Requests(
        broker=wiring.broker,
        reply_topic=wiring.topics.replies,
        reply_partitions=wiring.cluster.partitions_of(wiring.topics.replies),
        codec=queries_codec(),
        handler=answers,
        dead_letters=wiring.dead_letters(NAME),
        observer=wiring.observer(NAME),
        on_stop=stop,
    )
    subscribe(wiring, NAME, [wiring.topics.queries], requests, max_records=wiring.settings.max_poll_records)
    return requests


async def _open_retrieval(wiring: Wiring, stack: AsyncExitStack, history: History, version: Version) -> Retrieval:
    """What searches a named version of the vectors."""
    vectors, embedder = await opened_version(wiring.settings, history, version, stack)
    keys = wiring.settings.filter_keys()
    return Retrieval(vectors, embedder, history, rules=expanded, metadata_keys=keys)


class _Found:
    """Up to where records are in the history and in the vectors that are in use.

    Attributes:
        version: The version of the vectors.
        watch: What waits for it.
    """

    def __init__(self, history: History, version: Version) -> None:
        self._history = history
        self.version = version
        self.watch = PositionWatch(self._look)

    async def go_over(self, version: Version) -> None:
        """From now on it is about another version: as soon as that is where the one before is, if it comes so far.

        Until the switch was noticed here, the version before was filled on, and readers have seen its positions.
        """
        before, after = (self._history.vectors(v.checkpoints) for v in (self.version, version))
        until = time.monotonic() + GO_OVER_S
        while time.monotonic() < until:
            shown, there = await asyncio.gather(before.covered(), after.covered())
            if all(there.get(place, 0) >= following for place, following in shown.items()):
                break
            await asyncio.sleep(POLL_S)
        self.version = version
        self.watch.forget()

    async def _look(self) -> dict[tuple[str, int], int]:
        checkpoints = self._history.vectors(self.version.checkpoints)
        stored, covered = await asyncio.gather(self._history.next_offsets(), checkpoints.covered())
        return {place: min(following, stored.get(place, 0)) for place, following in covered.items()}


def _searching(wiring: Wiring, backends: Backends, found: _Found) -> Searching | None:
    """What answers by meaning, if this process has vectors."""
    if backends.vectors is None or backends.embedder is None:
        return None
    retrieval = Retrieval(
        backends.vectors,
        backends.embedder,
        wiring.history,
        expand=backends.expansion,
        rules=expanded,
        metadata_keys=wiring.settings.filter_keys(),
    )
    return Searching(retrieval, found.watch, wiring.history.place)


def _examination(backends: Backends) -> Examination | None:
    """What looks at the vectors as a whole, if this process has some."""
    return None if backends.vectors is None else Examination(backends.vectors, backends.version)
