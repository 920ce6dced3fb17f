"""What a Qdrant server may answer, as our own errors."""

from dataclasses import replace
from typing import Any

import httpx
import pytest
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from engramlog.engine.ports import Upsert
from engramlog.engine.vectors import server
from engramlog.engine.vectors.points import upsert_of
from engramlog.engine.vectors.selecting import of_tenant
from engramlog.engine.vectors.server import ServerEngine
from engramlog.schemas.errors import ConfigurationError, EngramlogError, StoreUnavailable, Unprocessable
from tests.vector_model import SPEC, derived, direction, embedded


def response(status: int, said: bytes = b"reason") -> UnexpectedResponse:
    return UnexpectedResponse(status, "", said, httpx.Headers())


ANSWERS: tuple[tuple[Exception, type[EngramlogError], str], ...] = (
    (response(400), Unprocessable, "reason"),
    (response(413), Unprocessable, "reason"),
    (response(422), Unprocessable, "reason"),
    (response(401), ConfigurationError, "ENGRAMLOG_VECTORS_API_KEY"),
    (response(403), ConfigurationError, "ENGRAMLOG_VECTORS_API_KEY"),
    (response(404), StoreUnavailable, "404"),
    (response(500), StoreUnavailable, "500"),
    (response(503), StoreUnavailable, "503"),
    (ResourceExhaustedResponse("slow down", 1), StoreUnavailable, "slow down"),
    (ResponseHandlingException(httpx.ConnectTimeout("late")), StoreUnavailable, "late"),
    (ResponseHandlingException(httpx.ConnectError("")), StoreUnavailable, "ConnectError"),
    (ApiException("what"), StoreUnavailable, "what"),
    (OSError("no route"), StoreUnavailable, "no route"),
    (ValueError("Unsupported\nvalue"), Unprocessable, "Unsupported"),
)


@pytest.mark.parametrize(("error", "ours", "told"), ANSWERS, ids=lambda value: repr(value)[:40])
async def test_every_failure_of_the_server_is_one_of_our_errors(
    error: Exception, ours: type[EngramlogError], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ServerEngine(":memory:")
    await engine.start(SPEC)
    for name in ("batch_update_points", "set_payload", "delete", "query_batch_points", "count", "scroll"):
        monkeypatch.setattr(AsyncQdrantClient, name, _raising(error))
    where = of_tenant("acme")
    calls = (
        lambda: engine.upsert([_upsert()]),
        lambda: engine.set_payload({"left": "1"}, where),
        lambda: engine.delete(where),
        lambda: engine.query([models.QueryRequest(filter=where, limit=1)]),
        lambda: engine.count([where]),
        lambda: engine.scroll(where, limit=1),
    )
    for call in calls:
        with pytest.raises(ours, match=told) as caught:
            await call()
        assert "\n" not in str(caught.value)
    await engine.stop()


def _raising(error: Exception) -> Any:
    async def raising(*_: Any, **__: Any) -> Any:
        raise error

    return raising


def _upsert() -> Upsert:
    return upsert_of(derived(embedding=embedded(direction(1))), sequence=1, partition=0)


async def test_a_server_that_is_too_old_is_refused_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    async def info(_: AsyncQdrantClient) -> models.VersionInfo:
        return models.VersionInfo(title="qdrant", version="1.15.3")

    monkeypatch.setattr(AsyncQdrantClient, "info", info)
    with pytest.raises(ConfigurationError, match=r"1\.15\.3; 1\.16 or later"):
        await ServerEngine("http://127.0.0.1:1").start(SPEC)


async def test_a_collection_that_is_not_ours_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    client = AsyncQdrantClient(":memory:")
    await client.create_collection(SPEC.name, vectors_config={})
    monkeypatch.setattr(server, "AsyncQdrantClient", lambda *_: client)
    with pytest.raises(ConfigurationError, match="not made by engramlog"):
        await ServerEngine(":memory:").start(SPEC)


async def test_a_collection_of_another_dimension_is_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    client = AsyncQdrantClient(":memory:")
    monkeypatch.setattr(client, "close", _raising_nothing)
    monkeypatch.setattr(server, "AsyncQdrantClient", lambda *_: client)
    assert await ServerEngine(":memory:").start(SPEC)
    with pytest.raises(ConfigurationError, match=r"8 dimensions.*16 dimensions"):
        await ServerEngine(":memory:").start(replace(SPEC, dimension=16))


async def _raising_nothing() -> None:
    """The client goes on."""


async def test_large_batches_go_in_several_requests_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[list[str]] = []

    async def sending(_: AsyncQdrantClient, __: str, operations: list[Any], **___: Any) -> None:
        sent.append([operation.upsert.points[0].payload["record_id"] for operation in operations])

    monkeypatch.setattr(server, "_NUMBERS_A_REQUEST", 30)
    engine = ServerEngine(":memory:")
    await engine.start(SPEC)
    monkeypatch.setattr(AsyncQdrantClient, "batch_update_points", sending)
    rows = (1, 2, 1, 9, 0, 1)
    events = [derived(f"r{i}", embedding=embedded(direction(i, n)) if n else None) for i, n in enumerate(rows)]
    await engine.upsert([upsert_of(event, sequence=1, partition=0) for event in events])
    assert sent == [["r0", "r1"], ["r2"], ["r3"], ["r4", "r5"]]
    await engine.stop()
