"""The command line as processes, on an Apache Kafka with TLS, SCRAM-SHA-512 and ACLs."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engramlog.consumers.app import CONSUMERS
from engramlog.engine.client.rights import Right
from tests.brokers import eventually
from tests.processes import Command
from tests.secure import CLIENT_SECRET, KEY_PASSWORD, PASSWORDS, PLAIN_PASSWORD, SecureKafka

pytestmark = pytest.mark.kafka
COMMAND = [sys.executable, "-m", "engramlog.engine.cli.main"]
SECRETS = [*PASSWORDS.values(), PLAIN_PASSWORD, KEY_PASSWORD, CLIENT_SECRET, "wr0ng-5ecret"]
LINES = [{"role": "user", "content": "My name is Ada."}, {"role": "assistant", "content": "Hello, Ada."}]


@dataclass
class Shell:
    """Runs commands as users of the secure broker, and keeps what they said."""

    kafka: SecureKafka
    folder: Path
    prefix: str
    said: list[str] = field(default_factory=list)

    def environment(self, user: str, **more: Any) -> dict[str, str]:
        given = self.kafka.settings(user, prefix=self.prefix, partitions=3, data_dir=self.folder, **more)
        chosen = {f"ENGRAMLOG_{name.upper()}": str(value) for name, value in given.items() if value is not None}
        outer = {name: value for name, value in os.environ.items() if not name.startswith("ENGRAMLOG_")}
        return {**outer, **chosen, "PYTHONWARNINGS": "error::ResourceWarning"}

    async def __call__(self, user: str, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        done = await asyncio.to_thread(
            subprocess.run,
            [*COMMAND, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
            env=self.environment(user, **more),
        )
        self.said += [done.stdout, done.stderr]
        return done

    async def json(self, user: str, *arguments: str, exits: int = 0) -> list[Any]:
        done = await self(user, *arguments, "--json")
        assert done.returncode == exits, f"{done.stdout}\n{done.stderr}"
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def shell(secure_kafka: SecureKafka, tmp_path: Path) -> Iterator[Shell]:
    made = Shell(secure_kafka, tmp_path, f"t{uuid.uuid4().hex[:10]}")
    yield made
    made.said += [log.read_text(errors="replace") for log in tmp_path.glob("*.log")]
    assert not [secret for secret in SECRETS for text in made.said if secret in text]


@pytest_asyncio.fixture
async def running(shell: Shell) -> AsyncIterator[Command]:
    """``engramlog run`` as the user engine, its password in a file, at the most talkative log level."""
    await shell.json("root", "topics", "create")
    await shell.kafka.grant_roles(shell.prefix)
    # Who looks at it at the command line: reads everything and may see groups.
    await shell.kafka.grant("agent", "topic", f"{shell.prefix}.", Right.READ, Right.DESCRIBE_CONFIGS, prefixed=True)
    await shell.kafka.grant("agent", "group", f"{shell.prefix}.", Right.DESCRIBE, prefixed=True)
    password = shell.folder / "password"
    password.write_text(PASSWORDS["engine"] + "\n")
    environment = shell.environment("engine", sasl_password=None)
    environment["ENGRAMLOG_SASL_PASSWORD_FILE"] = str(password)
    engine = Command("--log-level", "DEBUG", "run", "--json", env=environment, log=shell.folder / "run.log")
    try:

        async def ready() -> bool:
            assert engine.process.poll() is None, engine.said()
            return '"ready":true' in engine.said()

        await eventually(ready)
        yield engine
    finally:
        engine.stop()


async def test_every_command_with_tls_and_scram(shell: Shell, running: Command) -> None:
    file = shell.folder / "talk.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    await shell.json("agent", "publish", str(file), "--session", "s1")
    (history,) = await shell.json("agent", "history", "--session", "s1")
    assert [r["stored"]["record"]["content"] for r in history["records"]] == [line["content"] for line in LINES]
    assert not history["stale"]
    tailed = await shell.json("agent", "tail", "records", "--from", "beginning", "--no-follow")
    assert [m["event"]["data"]["content"] for m in tailed] == [line["content"] for line in LINES]
    (status,) = await shell.json("agent", "status")
    assert {c["name"]: c["lag"] for c in status["consumers"]}["store"] == 0
    assert status["problems"] == []
    states = await shell.json("agent", "topics", "check")
    assert [state["problems"] for state in states] == [[]] * len(states)
    assert running.process.poll() is None


async def test_the_doctor_finds_nothing_wrong(shell: Shell, running: Command) -> None:
    findings = await shell.json("engine", "doctor")
    assert {f["check"] for f in findings} >= {
        "versions", "disk", "store", "broker", "security", "clock", "topics", "rights", "consumers", "dead letters",
    }  # fmt: skip
    assert [f for f in findings if f["verdict"] != "ok" and f["check"] != "disk"] == []
    by_check = {f["check"]: f["found"] for f in findings}
    assert "SASL_SSL, SCRAM-SHA-512 as engine; the broker's certificate is valid for" in by_check["security"]
    assert "Apache Kafka 4" in by_check["broker"]
    assert "SQLite" in by_check["store"]
    assert "history version 1" in by_check["store"]
    assert running.process.poll() is None


async def test_the_doctor_names_a_fix_for_each_finding(shell: Shell) -> None:
    findings = await shell.json("root", "doctor", exits=1)
    topics = [f for f in findings if f["check"] == "topics"]
    assert {f["verdict"] for f in topics} == {"problem"}
    assert all("engramlog topics create" in f["fix"] for f in topics)
    await shell.json("root", "topics", "create")
    findings = await shell.json("root", "doctor", exits=1)
    assert [f["fix"] for f in findings if f["check"] == "consumers"] == [
        f"start it: engramlog run {name}" for name in CONSUMERS
    ]
    findings = await shell.json("stranger", "doctor", exits=1)
    assert any("must not see the topic" in f["fix"] for f in findings)
    assert any(f["check"] == "rights" and f["verdict"] == "warning" for f in findings)
    assert all(f["fix"] for f in findings if f["verdict"] != "ok")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "wrong password": ({"sasl_password": "wr0ng-5ecret"}, "check ENGRAMLOG_SASL_USERNAME, ENGRAMLOG_SASL_PASSWORD"),
    "no authority": ({"ssl_cafile": None}, "set ENGRAMLOG_SSL_CAFILE"),
    "contradiction": ({"security_protocol": "SSL"}, "ENGRAMLOG_SASL_PASSWORD would not be used"),
    "file": ({"ssl_cafile": "/no/such.pem"}, "ENGRAMLOG_SSL_CAFILE=/no/such.pem cannot be read"),
}
COMMANDS = (
    ("run",),
    ("up",),
    ("topics", "check"),
    ("topics", "create"),
    ("history",),
    ("status",),
    ("tail", "records"),
    ("doctor",),
)


@pytest.mark.parametrize("case", REFUSED)
async def test_a_refusal_is_one_line_in_every_command(shell: Shell, case: str) -> None:
    change, says = REFUSED[case]
    for arguments in COMMANDS:
        done = await shell("engine", *arguments, **change)
        assert done.returncode == (1 if arguments == ("doctor",) and case != "contradiction" else 4), done.stderr
        told = done.stdout if arguments == ("doctor",) and case != "contradiction" else done.stderr
        errors = [line for line in told.splitlines() if not line[:4].isdigit() and says in line]
        assert len(errors) == 1, f"{arguments}: {told}"
        assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(("listener", "says"), [("EXPIRED", "has expired"), ("MISNAMED", "for another host")])
async def test_a_bad_certificate_is_one_line(shell: Shell, listener: str, says: str) -> None:
    done = await shell("engine", "status", bootstrap_servers=shell.kafka.at(listener))
    assert done.returncode == 4
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert says in line


async def test_a_missing_right_is_one_line(shell: Shell) -> None:
    await shell.json("root", "topics", "create")
    done = await shell("stranger", "run")
    assert done.returncode == 4
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("engramlog: ")]
    assert "User:stranger must not see the topic" in line
    assert "Traceback" not in done.stderr


async def test_the_engine_stops_when_told(shell: Shell, running: Command) -> None:
    running.signal(signal.SIGTERM)
    assert await asyncio.to_thread(running.process.wait, 30) == 0
