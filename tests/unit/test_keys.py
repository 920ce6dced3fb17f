"""Keys take apart what they put together, and the partition rule is Kafka's own hash over the escaped prefix."""

import json
from pathlib import Path

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import example, given
from hypothesis import strategies as st

from engramlog.schemas.errors import WrongKey
from engramlog.schemas.keys import (
    Key,
    agent_prefix,
    event_key,
    murmur2,
    parse_key,
    partition_for,
    record_key,
)
from tests.unit.partition_vectors import VECTORS, vectors

ids = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=128) | st.text(
    "%/~2F57E", min_size=1
)


@given(ids, ids, ids)
@example("acme", "helper", "~x")
@example("acme/", "helper", "r")
def test_a_record_key_says_whose_and_which(tenant: str, agent: str, record: str) -> None:
    assert parse_key(record_key(tenant, agent, record)) == Key(tenant, agent, record_id=record)


@given(ids, st.none() | ids, ids)
def test_an_event_key_says_whose_and_which(tenant: str, agent: str | None, event: str) -> None:
    assert parse_key(event_key(tenant, agent, event)) == Key(tenant, agent or "", event_id=event)


@given(st.tuples(ids, ids, ids), st.tuples(ids, ids, ids))
@example(("a", "b/c", "d"), ("a/b", "c", "d"))
@example(("a", "b", "%7Ed"), ("a", "b", "~d"))
def test_two_things_never_share_a_key(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    keys = {record_key(*one), event_key(*one), record_key(*other), event_key(*other)}
    assert len(keys) == (2 if one == other else 4)


@given(ids, ids)
def test_an_agent_is_a_prefix_of_all_its_keys_and_of_no_other_agents(tenant: str, agent: str) -> None:
    prefix = agent_prefix(tenant, agent) + "/"
    assert record_key(tenant, agent, "r").decode().startswith(prefix)
    assert not record_key(tenant, agent + "-2", "r").decode().startswith(prefix)
    assert not record_key(tenant + "-corp", agent, "r").decode().startswith(prefix)


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        (None, "must be tenant/agent/record_id"),
        (b"", "is not tenant/agent/record_id"),
        (b"acme", "is not tenant/agent/record_id"),
        (b"acme/helper", "is not tenant/agent/record_id"),
        (b"acme/helper/", "is not tenant/agent/record_id"),
        (b"acme/helper/~", "is not tenant/agent/record_id"),
        (b"/helper/r", "is not tenant/agent/record_id"),
        (b"acme//r", "names no agent"),
        (b"acme/helper/r/1", "is not tenant/agent/record_id"),
        (b"acme/helper/50%", "write '%' as %25"),
        (b"acme/helper/%2f", "write '%' as %25"),
        (b"acme/helper/a~b", "write '%' as %25"),
        (b"~acme/helper/a", "write '%' as %25"),
        (b"\xff/a/b", "not UTF-8"),
    ],
)
def test_a_wrong_key_is_refused_with_what_to_do(key: bytes | None, advice: str) -> None:
    with pytest.raises(WrongKey, match=advice):
        parse_key(key)


@given(st.binary(max_size=40))
def test_no_bytes_but_a_key_or_a_wrong_key(key: bytes) -> None:
    try:
        parsed = parse_key(key)
    except WrongKey:
        return
    if parsed.record_id is not None:
        assert record_key(parsed.tenant, parsed.agent, parsed.record_id) == key
    else:
        assert event_key(parsed.tenant, parsed.agent, parsed.event_id or "") == key


@given(st.binary(max_size=64))
def test_murmur2_is_kafkas(data: bytes) -> None:
    assert murmur2(data) == aiokafka_murmur2(data) & 0xFFFFFFFF


@given(ids, ids, st.integers(1, 1000))
def test_every_agent_has_one_partition(tenant: str, agent: str, partitions: int) -> None:
    assert 0 <= partition_for(tenant, agent, partitions) < partitions


def test_the_vectors_for_other_languages_did_not_drift() -> None:
    committed = Path(__file__).with_name("partition_vectors.json").read_text(encoding="utf-8")
    assert json.loads(committed) == vectors(), f"run: python -m {VECTORS}"


def test_the_vectors_hold_against_aiokafka_alone() -> None:
    for vector in vectors()["vectors"]:
        hashed = aiokafka_murmur2(vector["prefix"].encode()) & 0x7FFFFFFF
        assert {n: hashed % int(n) for n in vector["partitions"]} == vector["partitions"]
