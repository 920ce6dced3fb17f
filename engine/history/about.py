"""Looking at a history store without changing it: which database it is, and which projections live in it."""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, inspect, text

from engramlog.engine.history.database import Database


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """A database of projections.

    Attributes:
        server: The database and its version, such as ``SQLite 3.46.1``.
        projections: Active version by projection; empty: nothing has run on it yet.
    """

    server: str
    projections: Mapping[str, int]


async def about(url: str, *, timeout_s: float) -> StoreInfo:
    """Ask a database what it is.

    Args:
        url: Its URL; of SQLite the file must exist.
        timeout_s: How long to wait for it.

    Raises:
        ConfigurationError: The URL names no database that we support.
        StoreUnavailable: It does not answer.
    """
    database = Database(url, timeout_s=timeout_s, readers=1)

    def ask(connection: Connection) -> StoreInfo:
        dialect = connection.dialect
        version = ".".join(map(str, dialect.server_version_info or ()))
        known: dict[str, int] = {}
        if inspect(connection).has_table("projections"):
            known = {row.name: row.active_version for row in connection.execute(text(_PROJECTIONS))}
        return StoreInfo(f"{'SQLite' if dialect.name == 'sqlite' else 'PostgreSQL'} {version}", known)

    database.open()
    try:
        return await database.read(ask)
    finally:
        await database.close()


_PROJECTIONS = "SELECT name, active_version FROM projections ORDER BY name"
