"""What the integration tests share."""

from collections.abc import Iterator

import pytest

from tests.postgres import Server, started


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL."""
    with started() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: Server) -> str:
    """A new, empty database: a digest is one of all that is in it."""
    return postgres.fresh()
