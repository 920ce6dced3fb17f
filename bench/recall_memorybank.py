"""MemoryBank's probing questions, each with what is recalled for it: a table to read. The set names no answers.

``python -m bench.recall_memorybank --data DIR [--limit 3] [--cache FILE.npz] [--json OUT]`` reads
``memorybank_zh.json`` and ``memorybank_zh_questions_dev.jsonl``. In this process, over the embedded store; no Kafka.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from bench.common import run
from bench.recall_inside import TENANT, Everything, KeptEmbedder, filled
from bench.recall_talks import Asked, Talk
from engramlog.engine.client import MemoryRecord
from engramlog.engine.embedders import embedder_of
from engramlog.engine.retrieve import Retrieval
from engramlog.engine.settings import Settings
from engramlog.schemas.recalls import RecallQuery
from engramlog.schemas.scope import Scope


def talks(directory: Path) -> list[Talk]:
    """The users that questions are asked of."""
    said = json.loads((directory / "memorybank_zh.json").read_text(encoding="utf-8"))
    lines = (directory / "memorybank_zh_questions_dev.jsonl").read_text(encoding="utf-8").splitlines()
    asked = {user: questions for line in lines for user, questions in json.loads(line).items()}
    return [
        Talk(
            user,
            tuple((day, tuple(_turns(user, day, pairs))) for day, pairs in said[user]["history"].items()),
            tuple(Asked(text, (), "all") for text in questions),
        )
        for user, questions in asked.items()
    ]


def _turns(user: str, day: str, pairs: list[dict[str, str]]) -> Iterator[MemoryRecord]:
    begin = datetime.fromisoformat(f"{day}T09:00:00+08:00")
    for n, pair in enumerate(pairs):
        for m, (part, role) in enumerate((("query", "user"), ("response", "assistant"))):
            yield MemoryRecord.model_validate(
                {
                    "record_id": f"{user}/{day}/{n}/{part}",
                    "role": role,
                    "content": pair[part],
                    "timestamp": begin + timedelta(minutes=2 * n + m),
                }
            )


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Ask every question."""
    found = talks(args.data)
    embedder = KeptEmbedder(embedder_of(Settings()), args.cache)
    await embedder.start()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="engramlog-bench-") as name:
        async with filled(found, embedder, Path(name)) as vectors:
            retrieval = Retrieval(vectors, embedder, Everything(found))
            for talk in found:
                now = max(record.timestamp for _, record in talk.records())
                for question in talk.questions:
                    query = RecallQuery(text=question.text, limit=args.limit, now=now)
                    answer = await retrieval.recall(Scope(TENANT, talk.name), query, max_bytes=700_000)
                    rows += [
                        {
                            "what": f"{talk.name}: {question.text}" if n == 0 else "",
                            "score": f"{hit.score:.2f}",
                            "day": hit.stored.record.timestamp.date().isoformat(),
                            "who": hit.stored.record.role,
                            "recalled": hit.stored.record.content,
                        }
                        for n, hit in enumerate(answer.hits)
                    ]
    await embedder.stop()
    return {"rows": rows}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The benchmark's own arguments."""
    parser.add_argument("--data", type=Path, required=True, help="directory with MemoryBank's files")
    parser.add_argument("--limit", type=int, default=3, help="memories a question")
    parser.add_argument("--cache", type=Path, metavar="FILE", help="keep the vectors here between runs")


if __name__ == "__main__":
    run("MemoryBank's questions, and what is recalled", measure, arguments=arguments)
