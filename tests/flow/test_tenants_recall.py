"""Two tenants interleaved a thousand times, with equal ids, texts, agents, sessions and users: nothing crosses over."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from engramlog.engine.client import MemoryClient, MemoryRecord, Recall, Scope
from engramlog.schemas.envelope import AgentEvent, RecordWritten
from engramlog.schemas.recalls import RecallFilter
from engramlog.schemas.records import Embedding
from tests.brokers import Rig, rig_on
from tests.model_server import model_server

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio(loop_scope="module")]

ODD = 'a/b:|"()-'
TENANTS = ("acme", "acme-corp")
AGENTS = ("helper", ODD, "客服")
SESSIONS = ("s1", ODD, "客服")
USERS = (None, "ada", '用户/:|"()-')
TOPICS = ("weather", "天气", ODD)
TIMES = 1_000
STRANGERS = ("acm", "acme-", "acme-corp/helper", "ACME", "acme/", "acme*", 'acme" OR "1', "客服")
DIMENSION = 64
THEN = datetime(2026, 3, 1, tzinfo=UTC)
Place = tuple[str, str, str, str | None]
"""Tenant, agent, session, user."""


@dataclass(frozen=True)
class Told:
    """What one tenant was told: a record's place, id and topic. ``origin`` stands in its metadata."""

    place: Place
    record_id: str
    topic: str

    @property
    def origin(self) -> str:
        return "\n".join(part or "" for part in self.place)

    def event(self, number: int) -> AgentEvent:
        tenant, agent, session, user = self.place
        vector = np.random.default_rng(number % 50).standard_normal(DIMENSION)
        record = MemoryRecord(
            record_id=self.record_id,
            role="user",
            content=f"it rains, 天气不好 👋 {number % 50}",
            timestamp=THEN,
            topic=self.topic,
            embedding=Embedding.of("pseudo", list(map(float, vector))),
            metadata={"project_id": self.origin},
        )
        return RecordWritten.of(record, source="test", tenant=tenant, agent=agent, sessionid=session, userid=user)


def interleaved() -> Iterator[tuple[int, Told]]:
    """The same told to both, one after the other."""
    for number in range(TIMES):
        rest = number
        chosen: list[Any] = []
        for things in (AGENTS, SESSIONS, USERS, TOPICS):
            rest, which = divmod(rest, len(things))
            chosen.append(things[which])
        agent, session, user, topic = chosen
        for tenant in TENANTS:
            yield number, Told((tenant, agent, session, user), f"{number // 27}:记录/{ODD}{number}", topic)


TOLD = tuple(told for _, told in interleaved())


def visible(scope: Scope) -> list[Told]:
    """What a scope may see."""
    return [
        told
        for told in TOLD
        if told.place[:2] == (scope.tenant, scope.agent)
        and scope.session in {None, told.place[2]}
        and (scope.users == "all" or told.place[3] in {None, scope.user})
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Rig, MemoryClient]]:
    """An engine that was told everything."""
    with model_server() as server:
        server.dimension = DIMENSION
        model = {"embedder": "openai", "embedding_urls": server.url, "embedding_model": "pseudo"}
        async with (
            rig_on(kafka, tmp_path_factory.mktemp("tenants"), **model) as rig,
            rig.consumers("store", "derive", "index", "answer"),
            rig.client(timeout_s=120) as client,
        ):
            events = [told.event(number) for number, told in interleaved()]
            for begin in range(0, len(events), 100):
                await client.publish_events(events[begin : begin + 100])
            yield rig, client


def check(found: Recall, expected: Sequence[Told]) -> None:
    """It has exactly these, each from its own place."""
    assert (found.seen.stale, found.degraded, found.unread) == (False, (), 0)
    shown = [(hit.stored.record.record_id, hit.stored.record.metadata["project_id"]) for hit in found.hits]
    assert sorted(shown) == sorted((told.record_id, told.origin) for told in expected)


SCOPES = [
    Scope(tenant, agent, user=user, users=users)
    for tenant, agent, (user, users) in product(
        TENANTS, AGENTS, [(None, "own"), ("ada", "own"), (USERS[2], "own"), (None, "all"), ("ada", "all")]
    )
]


@pytest.mark.parametrize("text", ["天气", "it rains", ODD])
async def test_recall_and_similar_show_a_scope_its_own_and_nothing_else(
    running: tuple[Rig, MemoryClient], text: str
) -> None:
    _, client = running
    for number, scope in enumerate(SCOPES):
        session = SESSIONS[number % len(SESSIONS)]
        here = RecallFilter(sessions=(session,))
        expected = visible(Scope(scope.tenant, scope.agent, session, scope.user, scope.users))
        assert len(expected) > 30
        check(await client.recall(scope, text, limit=200, candidates=500, filter=here), expected)
        check(await client.similar(scope, text, limit=200, filter=here), expected)


async def test_topics_are_counted_for_a_scope_alone(running: tuple[Rig, MemoryClient]) -> None:
    _, client = running
    for scope in (*SCOPES, *(Scope(s.tenant, s.agent, ODD, s.user, s.users) for s in SCOPES)):
        expected = Counter(told.topic for told in visible(scope))
        listed = await client.topics(scope)
        assert {topic.topic: topic.records for topic in listed.topics} == expected
        assert not listed.seen.stale


async def test_a_place_that_belongs_to_another_tenant_can_be_named_and_shows_nothing(
    running: tuple[Rig, MemoryClient],
) -> None:
    _, client = running
    for told in TOLD[::97]:
        tenant, agent, _, user = told.place
        scope = Scope(tenant, agent, user=user)
        theirs = told.origin.replace(tenant, "acme" if "corp" in tenant else "acme-corp")
        other = RecallFilter(metadata={"project_id": theirs})
        assert (await client.recall(scope, "天气", limit=200, filter=other)).hits == ()
        mine = await client.recall(scope, "天气", limit=200, filter=RecallFilter(metadata={"project_id": told.origin}))
        assert told.record_id in {hit.stored.record.record_id for hit in mine.hits}
        assert {hit.stored.record.metadata["project_id"] for hit in mine.hits} == {told.origin}


@pytest.mark.parametrize("tenant", STRANGERS)
@pytest.mark.parametrize("agent", [*AGENTS, "a", "a/b", "helper/"])
async def test_names_that_are_nearly_a_tenants_are_strangers(
    running: tuple[Rig, MemoryClient], tenant: str, agent: str
) -> None:
    _, client = running
    stranger = Scope(tenant, agent, users="all")
    assert (await client.recall(stranger, "天气", limit=200)).hits == ()
    assert (await client.similar(stranger, "天气")).hits == ()
    assert (await client.topics(stranger)).topics == ()


async def test_what_one_tenant_removes_and_erases_stays_with_the_other(
    kafka: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with model_server() as server:
        server.dimension = DIMENSION
        model = {"embedder": "openai", "embedding_urls": server.url, "embedding_model": "pseudo"}
        async with (
            rig_on(kafka, tmp_path_factory.mktemp("apart"), **model) as rig,
            rig.consumers("store", "derive", "index", "answer"),
            rig.client(timeout_s=120) as client,
        ):
            some = [(n, told) for n, told in interleaved() if told.place[1] == ODD][:120]
            await client.publish_events([told.event(n) for n, told in some])
            mine, other = Scope("acme", ODD, users="all"), Scope("acme-corp", ODD, users="all")
            rest = [told for _, told in some if told.place[0] == "acme-corp"]
            ids = [told.record_id for _, told in some if told.place[0] == "acme"]
            await client.invalidate(mine, ids[0], reason="moved")
            await client.clear(Scope("acme", ODD, SESSIONS[1], users="all"), leave="both")
            check(await client.recall(other, "天气", limit=200, candidates=500), rest)
            await client.erase(mine, "agent")
            assert (await client.recall(mine, "天气", limit=200)).hits == ()
            assert (await client.topics(mine)).topics == ()
            check(await client.recall(other, "天气", limit=200, candidates=500), rest)
            assert sum(topic.records for topic in (await client.topics(other)).topics) == len(rest)
            assert await rig.dead_letters() == []
