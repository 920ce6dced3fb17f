"""What drivers and SQLAlchemy raise, as our own errors.

Only what is surely the fault of the data is :class:`Unprocessable`, because that sends an event to the dead letters.
Everything else (locks, lost connections, a full disk, a missing table, a lost privilege, a server that became a
read-only standby) is :class:`StoreUnavailable`: the projection waits and nothing is lost.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy.exc as sa

from engramlog.schemas.errors import EngramlogError, StoreUnavailable, Unprocessable

_DATA_CLASSES = ("22", "23", "54")
"""SQLSTATE classes: data exception, integrity constraint violation, program limit exceeded (a key too long)."""
_LOCK_NOT_AVAILABLE = "55P03"


def translate(error: Exception) -> EngramlogError | None:
    """Our error for a foreign one; None when it is neither of a driver nor of SQLAlchemy (a fault of ours)."""
    if isinstance(error, sa.DBAPIError):
        return _of_driver(error)
    if isinstance(error, sa.StatementError) and isinstance(error.orig, (OverflowError, UnicodeError)):
        return translate(error.orig)
    if isinstance(error, (OverflowError, UnicodeError)):  # raised by the drivers for values that no column takes
        return Unprocessable(f"the database cannot hold a value: {error}")
    if isinstance(error, (sa.TimeoutError, TimeoutError, sa.ResourceClosedError, sa.PendingRollbackError, OSError)):
        return StoreUnavailable(f"the database does not answer: {_line(error)}")
    if isinstance(error, sa.SQLAlchemyError):
        return StoreUnavailable(f"the database cannot be used: {_line(error)}")
    return None


def is_busy(error: sa.DBAPIError) -> bool:
    """Whether another connection holds SQLite's lock."""
    return getattr(error.orig, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def waited_for_a_lock(error: StoreUnavailable) -> bool:
    """Whether PostgreSQL let us wait for a lock as long as we wanted, and no longer."""
    cause = error.__cause__
    return isinstance(cause, sa.DBAPIError) and getattr(cause.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE


def _of_driver(error: sa.DBAPIError) -> EngramlogError:
    state = str(getattr(error.orig, "sqlstate", None) or "")
    data = state.startswith(_DATA_CLASSES) or (not state and isinstance(error, (sa.DataError, sa.IntegrityError)))
    if data and not error.connection_invalidated:
        return Unprocessable(f"the database refuses a value: {_line(error.orig)}")
    return StoreUnavailable(f"the database does not answer: {_line(error.orig)}")


def _line(error: BaseException | None) -> str:
    """The first line of a message: SQLAlchemy's go on with the statement and its parameters, which may be content."""
    return (str(error) or type(error).__name__).splitlines()[0][:500]


@contextmanager
def mapped() -> Iterator[None]:
    """Let only our own errors out.

    Raises:
        StoreUnavailable: The database cannot be reached or used now.
        Unprocessable: It cannot hold a value.
    """
    try:
        yield
    except EngramlogError:
        raise
    except Exception as error:
        ours = translate(error)
        if ours is None:
            raise
        raise ours from error
