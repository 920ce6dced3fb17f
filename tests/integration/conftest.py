"""What the integration tests share."""

from collections.abc import Iterator

import pytest

from tests.postgres import started


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A new, empty PostgreSQL database."""
    with started() as server:
        yield server.fresh()
