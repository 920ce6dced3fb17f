"""A log that mixes versions of events rebuilds to the same as one of the newest version alone."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from engramlog.engine.decoding import Decoder
from engramlog.engine.history import History
from engramlog.engine.history.versions import HISTORY
from engramlog.engine.log import Run
from engramlog.engine.replay.targets import HistoryTarget
from engramlog.schemas.codec import Codec
from engramlog.schemas.envelope import RecordCorrectedEvent, RecordWritten
from engramlog.schemas.errors import NewerVersion
from engramlog.schemas.records import MemoryRecord, RecordCorrected
from engramlog.schemas.topics import Topics

TOPICS = Topics("memory", 1)
V1, V2 = "engramlog.record.written.v1", "engramlog.record.written.v2"


class WrittenV2(RecordWritten):
    """A later version: what was called ``words`` before is called ``content``."""

    type: Literal["engramlog.record.written.v2"] = V2  # type: ignore[assignment]


def lifted(event: dict[str, Any]) -> dict[str, Any]:
    data = dict(event["data"])
    data["content"] = data.pop("words")
    return {**event, "type": V2, "data": data}


CODEC: Codec[Any] = Codec(
    Annotated[WrittenV2 | RecordCorrectedEvent, Field(discriminator="type")], upcasters={V1: lifted}
)


@dataclass(frozen=True)
class Message:
    """What lies in the log."""

    offset: int
    key: bytes
    value: bytes | None
    topic: str = TOPICS.records
    partition: int = 0
    timestamp: int = 1_760_000_000_000
    headers: tuple[tuple[str, bytes | None], ...] = ()


def newest(n: int) -> Any:
    to = {"source": "test", "tenantid": "acme", "agentid": "bot", "time": datetime(2026, 3, 1, n, tzinfo=UTC)}
    if n % 4 == 3:
        return RecordCorrectedEvent(id=f"e{n}", data=RecordCorrected(id=f"r{n - 1}", content=f"{n} 更正 👋"), **to)
    record = MemoryRecord(record_id=f"r{n}", role="user", content=f"{n} 你好 👋", timestamp=to["time"])
    return WrittenV2(id=record.record_id, data=record, sessionid="s", **to)


def as_v1(value: bytes) -> bytes:
    event = json.loads(value)
    if event["type"] != V2:
        return value
    data = dict(event["data"])
    data["words"] = data.pop("content")
    return json.dumps({**event, "type": V1, "data": data}, ensure_ascii=False).encode()


async def rebuilt(directory: Path, messages: Sequence[Message], *, batch: int) -> tuple[str, list[str]]:
    history = History(f"sqlite:///{directory}/h.db", topics=TOPICS)
    await history.start()
    try:
        version = await history.versions.begin(HISTORY, generation=1)
        target = HistoryTarget(history, version, TOPICS)
        await target.history.prepare()
        decoder = Decoder({TOPICS.records: CODEC}, partitions=1)
        place = (TOPICS.records, 0)
        at = await target.open_partition(place, cluster_id=None, end_offset=len(messages))
        for i in range(0, len(messages), batch):
            entries = tuple(decoder.entry(message) for message in messages[i : i + batch])
            await target.apply(Run(*place, at, at + len(entries), entries))
            at += len(entries)
        bodies = [json.loads(e.value)["type"] for e in (decoder.entry(m) for m in messages)]
        return await target.history.digest(), bodies
    finally:
        await history.stop()


@pytest.mark.parametrize("batch", [1, 5_000])
async def test_a_log_of_mixed_versions_is_rebuilt_as_one_of_the_newest(tmp_path: Path, batch: int) -> None:
    events = [newest(n) for n in range(20)]
    new = [Message(n, event.key(), CODEC.encode(event)) for n, event in enumerate(events)]
    mixed = [Message(m.offset, m.key, as_v1(m.value) if m.offset % 2 == 0 and m.value else m.value) for m in new]
    assert sum(V1.encode() in (m.value or b"") for m in mixed) == 10
    for name in ("new", "mixed"):
        (tmp_path / name).mkdir()
    digest, types = await rebuilt(tmp_path / "new", new, batch=batch)
    assert await rebuilt(tmp_path / "mixed", mixed, batch=batch) == (digest, types)
    assert V1 not in types


def test_an_event_from_the_future_stops_a_rebuild_by_name() -> None:
    event = newest(0)
    value = CODEC.encode(event).replace(b"written.v2", b"written.v9")
    with pytest.raises(NewerVersion, match=r"written\.v9.*upgrade"):
        Decoder({TOPICS.records: CODEC}, partitions=1).entry(Message(0, event.key(), value))
