"""The topic table: what may never change, and what every topic must say."""

import pytest

from engramlog.schemas.codec import MAX_EVENT_BYTES
from engramlog.schemas.errors import ConfigurationError
from engramlog.schemas.topics import AGENT_CONFIG, MAX_MESSAGE_BYTES, MUST_HOLD, Topics

DAY_MS = 86_400_000


def test_names_come_from_the_prefix() -> None:
    names = [spec.name for spec in Topics(prefix="acme.memory").table()]
    assert names == [
        f"acme.memory.{name}"
        for name in ("inbox", "records", "derived.g1", "summaries", "queries", "replies", "dead-letters")
    ]


def test_the_way_of_the_log_is_compacted_for_ever() -> None:
    agent_topics = [spec for spec in Topics().table() if spec.kind == "agent"]
    assert [spec.name for spec in agent_topics] == ["memory.records", "memory.derived.g1", "memory.summaries"]
    assert all(spec.config == AGENT_CONFIG for spec in agent_topics)
    assert {name: AGENT_CONFIG[name] for name in MUST_HOLD} == {
        "cleanup.policy": "compact",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "message.timestamp.type": "LogAppendTime",
    }
    assert AGENT_CONFIG["delete.retention.ms"] == str(30 * DAY_MS)
    assert AGENT_CONFIG["max.compaction.lag.ms"] == str(7 * DAY_MS)


def test_traffic_is_forgotten_and_says_when() -> None:
    services = [spec for spec in Topics().table() if spec.kind == "service"]
    assert all(spec.config["cleanup.policy"] == "delete" for spec in services)
    assert all(0 < int(spec.config["retention.ms"]) <= 30 * DAY_MS for spec in services)


def test_every_topic_keeps_log_time_and_has_the_same_partitions() -> None:
    table = Topics(partitions=7).table()
    assert {spec.partitions for spec in table} == {7}
    assert {spec.config["message.timestamp.type"] for spec in table} == {"LogAppendTime"}


def test_every_topic_says_what_lies_in_it_and_who_writes_it() -> None:
    table = Topics().table()
    assert all(spec.payload and spec.key and spec.producers for spec in table)
    assert len({spec.name for spec in table}) == len(table)


def test_a_message_has_room_for_an_event_and_its_headers() -> None:
    assert MAX_EVENT_BYTES + 100_000 < MAX_MESSAGE_BYTES
    assert {spec.config["max.message.bytes"] for spec in Topics().table()} == {str(MAX_MESSAGE_BYTES)}


@pytest.mark.parametrize("prefix", ["", "a b", "租户", "a/b", "x" * 240, "a\n"])
def test_a_prefix_that_kafka_would_refuse_is_refused_first(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="prefix"):
        Topics(prefix=prefix)


@pytest.mark.parametrize("partitions", [0, -1])
def test_there_is_at_least_one_partition(partitions: int) -> None:
    with pytest.raises(ConfigurationError, match="partitions"):
        Topics(partitions=partitions)
