"""Statements that are built and compiled once for each of their shapes: building one costs more than running it."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Select
from sqlalchemy.sql.compiler import SQLCompiler

from engramlog.engine.history.tables import AnyRow, Tables

NOBODY = "\x01"
"""An id that nothing has (no id holds control characters): fills up a list to one of few lengths."""


@dataclass(slots=True)
class Prepared:
    """The compiled statements of a database, by shape. Threads may share it."""

    _compiled: dict[Hashable, SQLCompiler] = field(default_factory=dict)

    def get(self, connection: Connection, shape: Hashable, build: Callable[[], Select[Any]]) -> SQLCompiler:
        """The compiled statement of a shape."""
        found = self._compiled.get(shape)
        if found is None:
            found = build().compile(dialect=connection.dialect)
            assert isinstance(found, SQLCompiler)
            self._compiled[shape] = found
        return found


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a read reads from.

    Attributes:
        connection: The transaction.
        tables: The tables of the version.
        prepared: Their compiled statements.
    """

    connection: Connection
    tables: Tables
    prepared: Prepared

    def rows(self, shape: Hashable, build: Callable[[], Select[Any]], values: Mapping[str, Any]) -> list[AnyRow]:
        """Run a statement.

        Args:
            shape: What the statement is a function of.
            build: Makes it, with named parameters in the place of values.
            values: The parameters' values; may hold more than the statement has.
        """
        compiled = self.prepared.get(self.connection, shape, build)
        names = compiled.positiontup
        bound = compiled.params | values if compiled.params else dict(values)
        arguments: Any = (
            tuple(bound[name] for name in names)
            if names is not None
            else {name: bound[name] for name in compiled.bind_names.values()}
        )
        return list(self.connection.exec_driver_sql(compiled.string, arguments))


def padded(values: list[str], *, prefix: str) -> dict[str, str]:
    """Named parameters for a list, filled up to a power of two."""
    length = 1 << max(0, len(values) - 1).bit_length()
    values = values + [NOBODY] * (length - len(values))
    return {f"{prefix}{i}": value for i, value in enumerate(values)}
