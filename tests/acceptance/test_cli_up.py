"""``engramlog up`` and the commands around it, as processes, on the Apache Kafka that it starts."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engramlog.consumers.app import CONSUMERS
from engramlog.deploy.local_kafka.readiness import free_port
from engramlog.schemas.topics import Topics

pytestmark = pytest.mark.kafka

COMMAND = [sys.executable, "-m", "engramlog.engine.cli.main"]
TALK = [
    {"record_id": f"r{i}", "session": f"s{i % 2}", "user": "ada", "role": "user", "content": f"turn {i} 你好"}
    for i in range(40)
]
SCOPE = ("--tenant", "acme", "--agent", "helper", "--all-users")


@dataclass
class Engine:
    """A data directory, and what is run on it."""

    home: Path
    port: int
    before: dict[str, Any] = field(default_factory=dict)
    published: dict[str, Any] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("ENGRAMLOG_")}
        return {**own, "XDG_DATA_HOME": str(self.home)}

    def __call__(self, *arguments: str, stdin: str | None = None, code: int = 0) -> list[Any]:
        """Run a command with --json: its lines."""
        kafka = ("--bootstrap-servers", f"127.0.0.1:{self.port}")
        done = self.run(*arguments, *(() if arguments[0] == "kafka" else kafka), "--json", stdin=stdin)
        assert done.returncode == code, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def run(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=self.environment,
        )

    @contextmanager
    def up(self, *, stop: signal.Signals = signal.SIGINT, code: int = 130) -> Iterator[dict[str, Any]]:
        """``up`` until it says that it is ready; then stop it as a user would."""
        log = self.home / "up.log"
        with (
            log.open("w") as stderr,
            subprocess.Popen(
                [*COMMAND, "up", "--json", "--port", str(self.port)],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=self.environment,
            ) as process,
        ):
            assert process.stdout is not None
            try:
                line = process.stdout.readline()
                assert line, log.read_text()
                yield {**json.loads(line), "up_pid": process.pid}
            except BaseException:
                process.kill()
                raise
            process.send_signal(stop)
            assert process.wait(timeout=60) == code, log.read_text()
            assert process.stdout.read() == ""
        assert "Traceback" not in log.read_text()

    def history(self) -> Any:
        (found,) = self("history", *SCOPE, "--timeout", "30")
        return found


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine that was filled, stopped with Ctrl-C, and is up again."""
    found = Engine(tmp_path_factory.mktemp("home"), free_port())
    with found.up() as ready:
        assert ready["consumers"] == list(CONSUMERS)
        assert ready["kafka"]["own"]
        talk = "\n".join(map(json.dumps, TALK))
        (found.published,) = found("publish", "-", "--tenant", "acme", "--agent", "helper", stdin=talk)
        found.before = found.history()
    with found.up(stop=signal.SIGTERM, code=0):
        yield found
    (status,) = found("kafka", "status", code=1)
    assert not status["running"]


def test_after_ctrl_c_and_up_the_history_is_the_same(engine: Engine) -> None:
    assert engine.published["published"] == len(TALK)
    after = engine.history()
    assert [r["stored"]["record"]["record_id"] for r in after["records"]] == [r["record_id"] for r in TALK]
    assert after["records"] == engine.before["records"]
    assert after["positions"] == engine.before["positions"]
    assert not after["stale"]


def test_window_scores_and_users(engine: Engine) -> None:
    (found,) = engine("history", *SCOPE, "--session", "s1", "--window", "3", "--keep-rate", "0.5")
    assert [(r["stored"]["record"]["record_id"], r["score"]) for r in found["records"]] == [
        ("r35", 0.25),
        ("r37", 0.5),
        ("r39", 1.0),
    ]
    assert found["truncated"]
    (shared,) = engine("history", "--tenant", "acme", "--agent", "helper")
    assert shared["records"] == []
    (as_of,) = engine("history", *SCOPE, "--as-of-offset", "0")
    assert [r["stored"]["offset"] for r in as_of["records"]] == [0]


def test_record_and_stats(engine: Engine) -> None:
    (record,) = engine("record", "r7", *SCOPE)
    assert record["record"]["content"] == "turn 7 你好"
    assert engine("record", "nobody", *SCOPE, code=1) == []
    (stats,) = engine("stats", *SCOPE)
    assert (stats["records"], stats["sessions"], stats["users"]) == (40, 2, 1)


def test_refusals_have_their_exit_code(engine: Engine) -> None:
    assert engine("history", *SCOPE, "--keep-rate", "1.5", code=2) == []
    assert engine("history", *SCOPE, "--window", "-1", code=2) == []


def test_topics(engine: Engine) -> None:
    table = {spec.name for spec in Topics("other").table()}
    assert {t["topic"] for t in engine("topics", "check")} == {spec.name for spec in Topics().table()}
    missing = engine("topics", "check", "--prefix", "other", code=1)
    assert all("topics create" in t["problems"][0] for t in missing)
    created = engine("topics", "create", "--prefix", "other", "--partitions", "3")
    assert {(t["topic"], t["created"], t["partitions"]) for t in created} == {(name, True, 3) for name in table}
    assert not any(t["created"] for t in engine("topics", "create", "--prefix", "other", "--partitions", "5"))
    described = engine("topics", "describe", "--prefix", "other")
    records = next(topic for topic in described if topic["topic"] == "other.records")
    assert records["config"]["cleanup.policy"] == "compact"
    assert records["consumers"] == ["store", "derive", "summarise"]


def test_a_topic_that_would_forget_is_found(engine: Engine) -> None:
    engine("topics", "create", "--prefix", "leaky", "--partitions", "1")
    _alter(engine, "leaky.records", "retention.ms", "1000")
    found = engine("topics", "check", "--prefix", "leaky", code=1)
    assert any("retention.ms=1000" in problem for topic in found for problem in topic["problems"])


def _alter(engine: Engine, topic: str, name: str, value: str) -> None:
    code = (
        "import asyncio\n"
        "from aiokafka.admin import AIOKafkaAdminClient\n"
        "from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType\n"
        "async def main():\n"
        f"    admin = AIOKafkaAdminClient(bootstrap_servers='127.0.0.1:{engine.port}')\n"
        "    await admin.start()\n"
        f"    config = {{'cleanup.policy': 'compact', {name!r}: {value!r}}}\n"
        f"    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, {topic!r}, configs=config)])\n"
        "    await admin.close()\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=30)


def test_tail_reads_what_lies_there_and_filters(engine: Engine) -> None:
    read = ("tail", "records", "--from", "beginning", "--no-follow", "--tenant", "acme", "--agent", "helper")
    whole = engine(*read)
    assert [line["event"]["data"]["record_id"] for line in whole] == [r["record_id"] for r in TALK]
    assert [line["offset"] for line in whole] == list(range(len(TALK)))
    assert len(engine(*read, "--session", "s0")) == 20
    assert len(engine(*read, "-n", "3")) == 3
    assert engine(*read, "--user", "bob") == []
    assert len(engine(*read[:3], "2020-01-01T00:00:00Z", *read[4:])) == 40


def test_tail_follows_until_it_has_enough_and_shows_what_is_bad(engine: Engine) -> None:
    engine("topics", "create", "--prefix", "tail", "--partitions", "2")
    kafka = ("--prefix", "tail", "--bootstrap-servers", f"127.0.0.1:{engine.port}")
    with subprocess.Popen(
        [*COMMAND, "tail", "records", "--from", "beginning", "-n", "3", "--json", *kafka],
        stdout=subprocess.PIPE,
        text=True,
        env=engine.environment,
    ) as process:
        assert process.stdout is not None
        engine("publish", "-", "--prefix", "tail", stdin='{"role":"user","content":"one"}')
        assert json.loads(process.stdout.readline())["event"]["data"]["content"] == "one"
        _send(engine, "tail.records", b"x", b"\xff{")
        assert json.loads(process.stdout.readline())["error"]["reason"] == "wrong_key"
        _send(engine, "tail.records", b"default/default/gone", None)
        assert json.loads(process.stdout.readline())["key"] == "default/default/gone"
        assert process.wait(timeout=30) == 0


def _send(engine: Engine, topic: str, key: bytes, value: bytes | None) -> None:
    code = (
        "import asyncio\n"
        "from aiokafka import AIOKafkaProducer\n"
        "async def main():\n"
        f"    producer = AIOKafkaProducer(bootstrap_servers='127.0.0.1:{engine.port}')\n"
        "    await producer.start()\n"
        f"    await producer.send_and_wait({topic!r}, {value!r}, key={key!r})\n"
        "    await producer.stop()\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=30)


def test_status(engine: Engine) -> None:
    deadline = time.monotonic() + 45
    while True:  # the consumers join their groups in their own time
        done = engine.run("status", "--json", "--bootstrap-servers", f"127.0.0.1:{engine.port}")
        found = json.loads(done.stdout)
        store = next(consumer for consumer in found["consumers"] if consumer["name"] == "store")
        if all(consumer["members"] for consumer in found["consumers"]) and store["lag"] == 0:
            break
        assert time.monotonic() < deadline, done.stdout
    assert done.returncode == 0
    assert [consumer["name"] for consumer in found["consumers"]] == list(CONSUMERS)
    assert len(store["partitions"]) == 3 * 12  # records, what is derived, summaries
    assert sum(p["end"] for p in store["partitions"]) >= len(TALK)
    assert {p["owner"] for p in store["partitions"]} == {f"engramlog.{'.'.join(CONSUMERS)}"}
    table = engine.run("status", "--partitions", "--bootstrap-servers", f"127.0.0.1:{engine.port}").stdout
    assert "memory.records/11" in table


def test_nobody_runs_on_another_prefix(engine: Engine) -> None:
    engine("topics", "create", "--prefix", "idle", "--partitions", "1")
    (found,) = engine("status", "--prefix", "idle", code=1)
    assert any("nobody runs 'store'" in problem for problem in found["problems"])
    assert engine("history", "--prefix", "idle", "--timeout", "1", code=3) == []


def test_a_second_up_is_told_who_owns_the_directory(engine: Engine) -> None:
    done = engine.run("up", "--json")
    assert (done.returncode, done.stdout) == (4, "")
    assert "is in use by the broker with pid" in done.stderr
    assert "Traceback" not in done.stderr
    (status,) = engine("kafka", "status")
    assert status["ready"]
    assert status["bootstrap_servers"] == f"127.0.0.1:{engine.port}"


def test_publish_says_where_a_bad_line_is_and_publishes_nothing_of_the_file(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text('{"role":"user"}\n{"role":"boss"}\n{"role":"user"}\n')
    kafka = ("--agent", "careful", "--bootstrap-servers", f"127.0.0.1:{engine.port}")
    done = engine.run("publish", str(file), *kafka)
    assert (done.returncode, done.stdout) == (1, "")
    assert "talk.jsonl:2: role" in done.stderr
    assert "nothing was published" in done.stderr
    (stats,) = engine("stats", "--agent", "careful")
    assert stats["records"] == 0
    for _ in range(2):  # twice: the ids are made of the content
        (rest,) = engine("publish", str(file), "--agent", "careful", "--skip-invalid", "--ids-from-content")
        assert (rest["published"], rest["invalid"]) == (2, 1)
    (stats,) = engine("stats", "--agent", "careful")
    assert stats["records"] == 2


def test_run_serves_and_stops_on_ctrl_c(engine: Engine) -> None:
    engine("topics", "create", "--prefix", "run", "--partitions", "1")
    with subprocess.Popen(
        [*COMMAND, "run", "store", "--json", "--prefix", "run", "--bootstrap-servers", f"127.0.0.1:{engine.port}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**engine.environment, "ENGRAMLOG_HISTORY_URL": f"sqlite:///{engine.home / 'run.db'}"},
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["consumers"] == ["store"]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert "settings: " in err
    assert "Traceback" not in err
