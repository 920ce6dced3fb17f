"""The generations of derivations: what each is made with."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from engramlog.engine.history.database import Database
from engramlog.engine.history.tables import AnyRow, tables_of


@dataclass(frozen=True, slots=True)
class Generation:
    """What one generation of derivations is made with.

    Attributes:
        number: Its number, from 1.
        model: The embedding model.
        dimension: Components of its vectors.
        settings: The settings that choose its models, by name; no secrets. Processes whose settings differ go by these.
    """

    number: int
    model: str
    dimension: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    def holds(self, model: str, dimension: int) -> bool:
        """Whether its vectors are of a model."""
        return (self.model, self.dimension) == (model, dimension)


class Generations:
    """The generations of one log, in one database.

    Args:
        database: The database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._table = tables_of(1).generations

    async def all(self) -> dict[int, Generation]:
        """Every generation, by number."""
        query = select(self._table).order_by(self._table.c.number)
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return {row.number: _generation(row) for row in rows}

    async def enter(self, wanted: Generation) -> Generation:
        """Enter a generation, unless there is one of that number.

        Returns:
            What counts: the one that was there, else this one.
        """
        row = {
            "number": wanted.number,
            "model": wanted.model,
            "dimension": wanted.dimension,
            "settings": json.dumps(dict(wanted.settings), sort_keys=True),
        }
        new = self._database.insert(self._table).values(row).on_conflict_do_nothing()
        query = select(self._table).where(self._table.c.number == wanted.number)

        def write(connection: Any) -> Generation:
            connection.execute(new)
            return _generation(connection.execute(query).one())

        return await self._database.write(write)


def _generation(row: AnyRow) -> Generation:
    return Generation(row.number, row.model, row.dimension, json.loads(row.settings or "{}"))
