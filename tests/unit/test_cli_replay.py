"""The command line of replay without a broker: what is refused, and what is shown of a build, a stop and the reads."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from engramlog.engine.cli.replay import carried_out
from engramlog.engine.cli.replay_planning import MAY_BE_MISSING, chosen
from engramlog.engine.cli.replay_showing import SHOWN_BYTES, Showing
from engramlog.engine.cli.root import cli
from engramlog.engine.client import KafkaConfig
from engramlog.engine.history.digest import Digest
from engramlog.engine.history.versions import HISTORY, VECTORS, Version
from engramlog.engine.replay.building import Progress, ReplayStopped
from engramlog.engine.replay.differences import Comparison, Difference, Pair
from engramlog.engine.replay.opening import BATCH, SQLITE_BATCH, Building
from engramlog.engine.replay.probing import Counted, Probing
from engramlog.engine.replay.replay import Outcome, VersionsDiffer
from engramlog.engine.settings import Settings
from engramlog.schemas.errors import NotUtf8, Unprocessable

OLD, NEW = Version(HISTORY, 1, 1, "ready", active=True), Version(HISTORY, 2, 1, "building")
PLACE = ("memory.records", 0)


def progress(**more: Any) -> Progress:
    made = Progress("history", 2, {PLACE: 0}, {PLACE: 100}, {PLACE: 40}, applied=38, seconds=2.0)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def shown(capsys: pytest.CaptureFixture[str]) -> list[Any]:
    captured = capsys.readouterr()
    assert captured.err == ""
    return [json.loads(line) for line in captured.out.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["replay", "--until", "2026-03-01T00:00:00Z"], "belong together"),
        (["replay", "--name", "then"], "belong together"),
        (["replay", "--until", "2026-03-01T00:00:00", "--name", "then"], "names no instant"),
        (["replay", "--until", "yesterday", "--name", "then"], "is no time"),
        (["replay", "--until", "2026-03-01T00:00:00Z", "--name", "客服 1"], "letters, digits"),
        (["replay", "--until", "2026-03-01T00:00:00Z", "--name", "../x"], "letters, digits"),
        (["replay", "summaries"], "is not one of"),
        (["replay", "--batch", "0"], "not in the range"),
        (["rollback", "summaries"], "is not one of"),
    ],
)
def test_wrong_use_is_told_before_anything_is_opened(arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 2
    assert says in done.stderr


@pytest.mark.parametrize(
    "arguments", [["replay"], ["replay", "--dry-run"], ["rollback"], ["versions"], ["drop", "history:1", "--yes"]]
)
def test_looking_creates_no_database(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAMLOG_DATA_DIR", str(tmp_path / "none"))
    done = CliRunner().invoke(cli, [*arguments, "--bootstrap-servers", "127.0.0.1:1"])
    assert done.exit_code == 4
    assert "there is no history at" in done.stderr
    assert not (tmp_path / "none").exists()


def test_words_name_projections() -> None:
    assert (chosen("all"), chosen("history"), chosen("vectors")) == ((HISTORY, VECTORS), (HISTORY,), (VECTORS,))


def test_beside_an_engine_on_sqlite_it_takes_turns() -> None:
    sqlite = Building.beside(Settings())
    assert (sqlite.batch, sqlite.pause_s > 0) == (SQLITE_BATCH, True)
    postgres = Building.beside(Settings(history_url="postgresql://u@nowhere/db"))
    assert (postgres.batch, postgres.pause_s) == (BATCH, 0.0)
    assert Building.beside(Settings(), batch=7).batch == 7


def test_progress_is_lines_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with Showing(as_json=True) as showing:
        showing.phase("building", NEW)
        showing.progress(progress(passed=2))
        showing.phase("switching", None)
    phase, line, switching = shown(capsys)
    assert phase == {"event": "phase", "phase": "building", "projection": "history", "version": 2}
    assert switching == {"event": "phase", "phase": "switching"}
    assert (line["event"], line["lag"], line["total"], line["eta_s"]) == ("progress", 60, 100, 3.0)
    assert (line["events"], line["passed_over"], line["events_per_s"]) == (38, 2, 19.0)


def test_a_stop_shows_position_reason_and_a_bounded_escaped_event(capsys: pytest.CaptureFixture[str]) -> None:
    value = b"\xff\x1b[31m" + "客".encode() + b"x" * 5_000
    stopped = ReplayStopped("history v2", ("memory.records", 3), 17, NotUtf8("byte 0 \x1b[0m"), value)
    with Showing(as_json=True) as showing:
        showing.stopped(stopped)
    (told,) = shown(capsys)
    assert (told["position"], told["reason"], told["bytes"]) == ("memory.records/3@17", "not_utf8", len(value))
    assert told["value"].startswith("\\xff\\x1b[31m客xx")
    assert len(told["value"]) < SHOWN_BYTES + 20
    with Showing(as_json=False) as showing:
        showing.stopped(stopped)
    said = capsys.readouterr().err
    assert "memory.records/3@17" in said
    assert "--dead-letter-new" in said
    assert "\x1b" not in said


def test_a_tombstone_can_stop_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    stopped = ReplayStopped("history v2", ("memory.records", 0), 1, Unprocessable("no"), None)
    with Showing(as_json=False) as showing:
        showing.stopped(stopped)
    assert "a tombstone" in capsys.readouterr().err


def comparison(**more: Any) -> Comparison:
    live, rebuilt = Digest(), Digest()
    live.add("record", 5)
    differs = Difference("acme", "客服\x1b", "record", "r1", (), {"content": "hi"}, None)
    return Comparison(
        "history", agents={("acme", "a"): Pair(live, rebuilt)}, differences=(differs,), different=1, **more
    )


def test_a_difference_says_where_and_what_can_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    with Showing(as_json=False) as showing:
        showing.differ(VersionsDiffer(NEW, comparison()))
    said = capsys.readouterr()
    assert "engramlog verify history" in said.err
    assert "--accept-differences" in said.err
    assert "r1" in said.out
    assert "\x1b" not in said.out
    with Showing(as_json=True) as showing:
        showing.differ(VersionsDiffer(NEW, comparison()))
    (told,) = shown(capsys)
    assert (told["different"], told["differences"][0]["id"], told["live"]["counts"]) == (1, "r1", {"record": 1})


def test_what_could_not_be_compared_is_not_called_different() -> None:
    error = VersionsDiffer(NEW, Comparison("history", why_not="the store sleeps"))
    assert "could not be compared with the live version (the store sleeps)" in str(error)


def probing() -> Probing:
    return Probing(KafkaConfig("localhost:9092"), "memory.records", partitions=1, recall=False)


def outcome() -> Outcome:
    return Outcome([(NEW, progress(dead_lettered=1))], {HISTORY: OLD}, switched_s=0.25, dropped=[OLD])


async def test_the_end_tells_versions_switch_and_reads(capsys: pytest.CaptureFixture[str]) -> None:
    looked = probing()
    looked.why_not = None
    during = looked.found["during"]
    during.reads, during.errors, during.said = 3, 1, ["recall: \x1b[31m no"]
    for took_s in (0.01, 0.02):
        during.took(took_s)
    with Showing(as_json=True) as showing:
        showing.done(outcome(), looked)
    (told,) = shown(capsys)
    (built,) = told["projections"]
    assert (built["old"], built["new"], built["digest_equal"], built["dead_lettered"]) == (1, 2, None, 1)
    assert (told["event"], told["switch_seconds"], told["dropped"]) == ("done", 0.25, ["history v1"])
    reads = told["reads"]["during"]
    assert (reads["count"], reads["errors"], reads["p50_ms"], reads["p99_ms"]) == (3, 1, 10.0, 20.0)
    assert told["reads"]["before"]["p99_ms"] is None
    with Showing(as_json=False) as showing:
        showing.done(outcome(), looked)
    said = capsys.readouterr()
    assert "v1 → v2" in said.out
    assert "history v1 is dropped" in said.err
    assert "\x1b" not in said.err


async def test_reads_that_were_not_measured_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    looked = probing()
    looked.why_not = "no 'answer' runs"
    with Showing(as_json=True) as showing:
        showing.done(outcome(), looked)
    (told,) = shown(capsys)
    assert (told["reads"], told["reads_skipped"]) == (None, "no 'answer' runs")


def test_a_named_one_says_what_compaction_took(capsys: pytest.CaptureFixture[str]) -> None:
    with Showing(as_json=True) as showing:
        showing.named(Outcome([(NEW, progress())]), "then", MAY_BE_MISSING)
    (told,) = shown(capsys)
    assert (told["name"], told["projections"][0]["new"]) == ("then", 2)
    assert "last copy only" in told["note"]


def test_percentiles_are_of_what_was_answered() -> None:
    counted = Counted()
    assert counted.percentile(0.99) is None
    for ms in range(1, 101):
        counted.took(ms / 1000)
    assert [round(counted.percentile(share) or 0) for share in (0.5, 0.99, 1.0)] == [50, 99, 100]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_stopped_says_that_the_same_command_goes_on(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    async def body() -> int:
        signal.raise_signal(number)
        await asyncio.Event().wait()
        return 0

    assert carried_out(body) == 130
    assert "the same command goes on from here (again: at once)" in capsys.readouterr().err
