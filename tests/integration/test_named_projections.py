"""Named, read-only projections: memory as it was, built by a replay that ends, and asked like any other."""

from pathlib import Path

import pytest

from engramlog.engine.client import MemoryRecord
from engramlog.engine.history.versions import HISTORY, PROJECTED, VECTORS
from engramlog.engine.replay.opening import Building, workshop
from engramlog.engine.replay.replay import drop, replay_until
from engramlog.schemas.errors import RequestRefused
from tests.acceptance.test_kill_recall import by, model
from tests.brokers import rig_on
from tests.model_server import ModelServer

__all__ = ["model"]

pytestmark = pytest.mark.kafka


async def test_memory_as_it_was_is_asked_by_name(kafka: str, tmp_path: Path, model: ModelServer) -> None:
    async with (
        rig_on(kafka, tmp_path, **by(model)) as rig,
        rig.consumers("store", "derive", "index", "answer"),
        rig.client(timeout_s=60) as client,
        rig.client(timeout_s=60, projection="before-the-move") as then,
        rig.client(timeout_s=60, projection="never-built") as nowhere,
    ):
        scope, other = rig.scope("helper"), rig.scope("helper", tenant="acme-corp")
        home = MemoryRecord(record_id="home", role="user", content="I love living in 大连.")
        await client.publish(scope, [home, MemoryRecord(role="assistant", content="Noted.")])
        await client.publish(other, MemoryRecord(role="user", content="Nobody else may see this about 大连."))
        await client.recall(scope, "大连")
        await client.recall(other, "大连")
        async with workshop(rig.settings) as place:
            live = await place.history.next_offsets()
            until = {where: end for where, end in live.items() if end}
            await client.publish(scope, MemoryRecord(record_id="away", role="user", content="I moved to Porto."))
            await client.remove(scope, [0], leave="both")
            await client.recall(scope, "Porto")
            await replay_until(place, PROJECTED, Building(), name="before-the-move", until=until)
            active = await place.history.versions.active()
            assert (active[HISTORY].number, active[VECTORS].number) == (1, 1)

            window = await then.history(scope)
            assert [c.record.content for c in window.records] == ["I love living in 大连.", "Noted."]
            found = await then.recall(scope, "Porto 大连")
            assert found.hits[0].stored.record.record_id == "home"
            assert "away" not in {hit.stored.record.record_id for hit in found.hits}
            context = await then.context(scope, budget_tokens=500)
            assert "Porto" not in str(context.messages)
            assert [hit.stored.record.content for hit in (await then.recall(other, "大连")).hits] == [
                "Nobody else may see this about 大连."
            ]
            now = [c.record.content for c in (await client.history(scope)).records]
            assert now == ["Noted.", "I moved to Porto."]

            with pytest.raises(RequestRefused, match="read-only"):
                await then.pop(scope, 1)
            with pytest.raises(RequestRefused, match="no projection 'never-built'"):
                await nowhere.history(scope)

            history = (await place.history.versions.named("before-the-move"))[HISTORY]
            await drop(place, history)
            with pytest.raises(RequestRefused, match="no projection"):
                await then.history(scope)
