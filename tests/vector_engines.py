"""The vector engines that the contract holds for."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest
from qdrant_client import AsyncQdrantClient

from engramlog.engine.ports import CollectionSpec, VectorEngine
from engramlog.engine.vectors.edge import EdgeEngine
from engramlog.engine.vectors.server import ServerEngine
from engramlog.engine.vectors.vectors import Vectors
from tests.vector_model import KEYS, SPEC

ENGINES = ("edge", "memory", "server")
URL = "ENGRAMLOG_TEST_QDRANT_URL"
"""Names a Qdrant server for the tests, or ``testcontainers``; they make their own collections and drop them again."""


def server_url() -> str:
    """The server of the tests; skips where there is none."""
    url = os.environ.get(URL)
    if url is None:
        pytest.skip(f"no Qdrant server: {URL} is not set (a URL, or testcontainers where Docker is at hand)")
    return _container_url() if url == "testcontainers" else url


@cache
def _container_url() -> str:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import HttpWaitStrategy

    container = DockerContainer("qdrant/qdrant:v1.16.3").with_exposed_ports(6333)
    container.waiting_for(HttpWaitStrategy(6333, "/readyz")).start()  # removed by testcontainers at the tests' end
    return f"http://{container.get_container_host_ip()}:{container.get_exposed_port(6333)}"


@asynccontextmanager
async def opened(kind: str, directory: Path, *, spec: CollectionSpec = SPEC) -> AsyncIterator[VectorEngine]:
    """An engine with an empty collection."""
    engine: VectorEngine
    if kind == "edge":
        engine = EdgeEngine(directory)
    elif kind == "memory":
        engine = ServerEngine(":memory:")
    else:
        engine = ServerEngine(server_url())
        spec = replace(spec, name=f"{spec.name}-{uuid4()}")
    await engine.start(spec)
    try:
        yield engine
    finally:
        await engine.stop()
        if kind == "server":
            client = AsyncQdrantClient(url=server_url())
            await client.delete_collection(spec.name)
            await client.close()


@asynccontextmanager
async def opened_vectors(kind: str, directory: Path) -> AsyncIterator[Vectors]:
    """The vectors of an empty collection."""
    async with opened(kind, directory) as engine:
        yield Vectors(engine, metadata_keys=KEYS)
