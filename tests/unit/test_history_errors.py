"""Every error that a driver or SQLAlchemy can raise becomes one of ours."""

import importlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy.exc as sa

from engramlog.engine.history import History
from engramlog.engine.history.database import full_url
from engramlog.engine.history.errors import mapped, translate
from engramlog.schemas.errors import ConfigurationError, Fenced, StoreUnavailable, Unprocessable

psycopg = pytest.importorskip("psycopg")
importlib.import_module("psycopg.errors")


def family(root: type[Exception]) -> Iterator[type[Exception]]:
    yield root
    for child in root.__subclasses__():
        yield from family(child)


def wrapped(error: Exception, module: Any) -> sa.DBAPIError:
    """As SQLAlchemy would raise it."""
    found = sa.DBAPIError.instance("SELECT 1", (), error, module.Error)
    assert isinstance(found, sa.DBAPIError)
    return found


DATA = ("22", "23", "54")
DRIVERS = sorted({*family(sqlite3.Error), *family(psycopg.Error)}, key=str)


@pytest.mark.parametrize("cls", DRIVERS, ids=str)
def test_each_driver_error_is_mapped(cls: type[Exception]) -> None:
    module: Any = sqlite3 if issubclass(cls, sqlite3.Error) else psycopg
    state = str(getattr(cls, "sqlstate", None) or "")
    of_data = issubclass(cls, (module.DataError, module.IntegrityError))
    expected = Unprocessable if (state.startswith(DATA) if state else of_data) else StoreUnavailable
    assert type(translate(wrapped(cls("no\nSELECT secret"), module))) is expected


@pytest.mark.parametrize("cls", sorted(family(sa.SQLAlchemyError), key=str))
def test_no_error_of_sqlalchemy_is_left(cls: type[Exception]) -> None:
    error = cls.__new__(cls)
    Exception.__init__(error, "x")
    given = {"orig": sqlite3.OperationalError("x"), "connection_invalidated": False, "detail": [], "statement": None}
    for name, value in given.items():
        setattr(error, name, value)
    assert isinstance(translate(error), (StoreUnavailable, Unprocessable))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OverflowError("int too large"), Unprocessable),
        (sa.StatementError("x", "SELECT", (), OverflowError("int too large")), Unprocessable),
        ("\ud800", Unprocessable),
        (TimeoutError(), StoreUnavailable),
        (ConnectionResetError(), StoreUnavailable),
        (KeyError("a fault of ours"), None),
    ],
)
def test_what_drivers_let_through(error: Exception | str, expected: type[Exception] | None) -> None:
    if isinstance(error, str):
        try:
            error.encode()
        except UnicodeEncodeError as raised:
            error = raised
    assert isinstance(error, Exception)
    found = translate(error)
    assert (found and type(found)) is expected


def test_a_lost_connection_is_never_the_datas_fault() -> None:
    error = wrapped(sqlite3.IntegrityError("x"), sqlite3)
    error.connection_invalidated = True
    assert isinstance(translate(error), StoreUnavailable)


def test_the_statement_and_its_content_are_not_in_the_message() -> None:
    error = wrapped(sqlite3.OperationalError("database is locked\n[SQL: INSERT 'secret']"), sqlite3)
    assert "secret" not in str(translate(error))


def test_our_own_errors_and_our_own_faults_pass() -> None:
    with pytest.raises(Fenced), mapped():
        raise Fenced("x")
    with pytest.raises(KeyError), mapped():
        raise KeyError("x")
    with pytest.raises(StoreUnavailable), mapped():
        raise sa.TimeoutError("pool")


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("sqlite:///x.db", "sqlite+pysqlite"),
        ("sqlite+aiosqlite:///x.db", "sqlite+pysqlite"),
        ("postgres://h/d", "postgresql+psycopg"),
        ("postgresql://h/d", "postgresql+psycopg"),
        ("postgresql+psycopg://h/d", "postgresql+psycopg"),
    ],
)
def test_urls_get_our_driver(url: str, driver: str) -> None:
    assert full_url(url).drivername == driver


@pytest.mark.parametrize("url", ["nonsense", "mysql://h/d", "sqlite://", "sqlite:///:memory:"])
def test_other_urls_are_refused_with_what_to_write(url: str) -> None:
    with pytest.raises(ConfigurationError, match="sqlite:///file"):
        History(url)


def test_the_password_is_not_shown() -> None:
    assert "secret" not in str(History("postgresql://me:secret@h/d")._database)
