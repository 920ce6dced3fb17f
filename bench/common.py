"""What every benchmark shares: a real Apache Kafka, a table, and a JSON file with the machine and the versions."""

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from engramlog.consumers.interpreter import tune_interpreter
from engramlog.deploy.local_kafka import KAFKA_VERSION, LocalKafka
from engramlog.engine.client import KafkaConfig
from engramlog.engine.client.admin import create_topics
from engramlog.engine.client.publisher import Outgoing
from engramlog.engine.settings import Settings
from engramlog.schemas.codec import records_codec
from engramlog.schemas.envelope import RecordWritten
from engramlog.schemas.keys import partition_for
from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.topics import Topics

AGENTS = 48
TEXT = "The meeting moved to Thursday at 14:30; 请把报告发给李雪 👋. " * 4


@dataclass(frozen=True)
class Place:
    """Where a benchmark runs: a broker, a directory, topics of its own."""

    settings: Settings
    directory: Path

    @property
    def kafka(self) -> KafkaConfig:
        """The cluster."""
        return self.settings.kafka()

    @property
    def topics(self) -> Topics:
        """Its topics."""
        return Topics(self.settings.prefix, self.settings.partitions)


@asynccontextmanager
async def place(**settings: Any) -> AsyncIterator[Place]:
    """A Kafka (``ENGRAMLOG_TEST_KAFKA``, else one started here), fresh topics, a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="engramlog-bench-") as name:
        directory = Path(name)
        named = os.environ.get("ENGRAMLOG_TEST_KAFKA")
        broker = None if named else LocalKafka(data_dir=directory / "kafka", port=None)
        if broker is not None:
            print("starting Apache Kafka …", file=sys.stderr)
            await broker.start()
        try:
            made = Settings(
                bootstrap_servers=named or (broker.bootstrap_servers if broker else None),
                prefix=f"bench{uuid.uuid4().hex[:8]}",
                data_dir=directory,
                **settings,
            )
            await create_topics(made.kafka(), partitions=made.partitions)
            yield Place(made, directory)
        finally:
            if broker is not None:
                await broker.stop()


def agent_name(number: int) -> str:
    """The n-th agent of the load."""
    return f"agent-{number % AGENTS}"


def make_records(count: int) -> list[MemoryRecord]:
    """Records of a few hundred bytes, as a talk has them."""
    return [MemoryRecord(role="user" if i % 2 else "assistant", content=f"{i}: {TEXT}") for i in range(count)]


def make_event(i: int, record: MemoryRecord) -> RecordWritten:
    """The event of the i-th record."""
    return RecordWritten.of(record, source="bench", tenant="acme", agent=agent_name(i), sessionid="s1")


def make_messages(topics: Topics, count: int) -> list[Outgoing]:
    """Encoded events, spread over the agents."""
    codec = records_codec()
    events = [make_event(i, record) for i, record in enumerate(make_records(count))]
    return [
        Outgoing(topics.records, partition_for(e.tenantid, e.agentid, topics.partitions), e.key(), codec.encode(e))
        for e in events
    ]


def machine() -> dict[str, str]:
    """What the figures depend on."""
    names = ("engramlog", "aiokafka", "faststream", "pydantic", "sqlalchemy")
    return {
        "python": platform.python_version(),
        "cpu": f"{os.cpu_count()} x {platform.machine()}",
        "kafka": os.environ.get("ENGRAMLOG_TEST_KAFKA") or f"Apache Kafka {KAFKA_VERSION}, one node",
        **{name: version(name) for name in names},
    }


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return statistics.median(values)


def run(
    description: str,
    measure: Callable[[argparse.Namespace], Coroutine[Any, Any, dict[str, Any]]],
    *,
    arguments: Callable[[argparse.ArgumentParser], None] = lambda _parser: None,
) -> None:
    """Parse arguments, measure, print a table, write JSON.

    ``measure`` returns ``rows`` (a list of dicts for the table) and any further figures.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    arguments(parser)
    args = parser.parse_args()
    tune_interpreter()  # as 'engramlog run' does; the limits that are measured beside have the same
    result = asyncio.run(measure(args))
    rows: list[dict[str, Any]] = result["rows"]
    table = Table(title=description)
    for column in rows[0]:
        table.add_column(column, justify="left" if column == "what" else "right")
    for row in rows:
        table.add_row(
            *(
                f"{v:,.3f}" if isinstance(v, float) and v < 100 else f"{v:,.0f}" if isinstance(v, float) else str(v)
                for v in row.values()
            )
        )
    console = Console()
    console.print(table)
    for name, value in result.items():
        if name != "rows":
            console.print(f"{name}: {value}")
    facts = machine()
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()), style="dim")
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({**result, "machine": facts}, indent=2, ensure_ascii=False) + "\n")
