"""The doctor's verdicts, where the machine or the broker would have to be broken to show them."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from engramlog.engine.cli import examining
from engramlog.engine.client.examining import Broker, _kafka_version
from engramlog.engine.settings import Settings
from engramlog.schemas.errors import BrokerUnavailable, ConfigurationError

GB = 1024**3


class Usage(NamedTuple):
    total: float
    used: float
    free: float


@pytest.mark.parametrize(("free_gb", "verdict"), [(50, "ok"), (3, "warning"), (0.5, "problem")])
def test_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free_gb: float, verdict: str) -> None:
    monkeypatch.setattr(examining.shutil, "disk_usage", lambda _path: Usage(100 * GB, 0, free_gb * GB))
    (finding,) = examining._disk(Settings(data_dir=tmp_path / "not" / "there"))
    assert finding.verdict == verdict
    assert bool(finding.fix) == (verdict != "ok")


@pytest.mark.parametrize(
    ("ahead_s", "verdict", "says"),
    [(0.2, "ok", "0.20 s ahead"), (-3, "warning", "3.00 s behind"), (60, "problem", "60.00 s ahead")],
)
async def test_clock(monkeypatch: pytest.MonkeyPatch, ahead_s: float, verdict: str, says: str) -> None:
    async def told(*_: Any) -> float:
        return ahead_s

    monkeypatch.setattr(examining, "clock_ahead_s", told)
    (finding,) = await examining._clock(Settings())
    assert (finding.verdict, says in finding.found) == (verdict, True)


async def test_a_clock_that_must_not_be_asked_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: Any) -> float:
        raise ConfigurationError("no Write")

    monkeypatch.setattr(examining, "clock_ahead_s", refused)
    (finding,) = await examining._clock(Settings())
    assert (finding.verdict, finding.fix) == ("warning", "no Write")


@pytest.mark.parametrize(
    ("settings", "days", "verdict"),
    [
        ({}, None, "ok"),
        ({"bootstrap_servers": "kafka.example:9092"}, None, "warning"),
        ({"bootstrap_servers": "kafka.example:9093", "security_protocol": "SSL"}, 100, "ok"),
        ({"bootstrap_servers": "kafka.example:9093", "security_protocol": "SSL"}, 5, "warning"),
        ({"security_protocol": "SSL", "ssl_check_hostname": False}, 100, "warning"),
    ],
)
def test_security(settings: dict[str, Any], days: float | None, verdict: str) -> None:
    broker = Broker(brokers=1, kafka_version="", idempotence=True, certificate_days=days)
    (finding,) = examining._security(Settings(**settings), broker)
    assert finding.verdict == verdict


async def test_what_cannot_be_looked_at_is_a_problem() -> None:
    async def away() -> list[examining.Finding]:
        raise BrokerUnavailable("gone")

    assert await examining._guarded("topics", away) == [
        examining.Finding("topics", "problem", "cannot be looked at", "gone")
    ]


@pytest.mark.parametrize(
    ("fetch", "says"), [(11, "older than Apache Kafka 2.7"), (13, "3.1 or newer"), (18, "4.1"), (99, "4.1 or newer")]
)
def test_the_version_of_a_broker_is_told_by_its_requests(fetch: int, says: str) -> None:
    assert says in _kafka_version({1: (4, fetch)})
