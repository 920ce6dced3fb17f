"""From derived records to points, and the filters over them."""

import base64
import math
import pickle
import uuid
import zlib
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qdrant_client import models

from engramlog.engine.history.versions import VECTORS, Version
from engramlog.engine.ports import CollectionSpec
from engramlog.engine.settings import Settings
from engramlog.engine.vectors.edge import EdgeEngine, plain
from engramlog.engine.vectors.frequencies import MOST, Frequencies, asked_count, tenant_of
from engramlog.engine.vectors.opening import collection_of, vector_engine_of
from engramlog.engine.vectors.points import (
    dense_rows,
    document_weights,
    instant_text,
    metadata_text,
    picked,
    point_id,
    term_index,
    unit,
    upsert_of,
)
from engramlog.engine.vectors.selecting import between, equals, of_tenant, selection, with_ids, with_term
from engramlog.engine.vectors.server import ServerEngine
from engramlog.schemas.errors import ConfigurationError
from engramlog.schemas.keys import record_key
from engramlog.schemas.recalls import RecallFilter
from engramlog.schemas.scope import Scope
from tests.vector_model import START, bm25, derived, direction, embedded


def test_a_point_holds_what_is_searched_and_filtered_by() -> None:
    event = derived(
        "记录", user="u1", offset=3, terms={"天气": 2, "cat": 1}, length=3, embedding=embedded(direction(1))
    )
    made = upsert_of(event, sequence=9, partition=4)
    payload = made.point.payload
    assert payload is not None
    assert made.sequence == payload["sequence"] == 9
    assert (payload["tenant"], payload["agent"], payload["session"], payload["user"]) == ("acme", "bot", "s1", "u1")
    assert (payload["position"], payload["partition"], payload["turn"]) == (3, 4, 0)
    assert payload["terms"] == sorted([zlib.crc32("天气".encode()), zlib.crc32(b"cat")])
    assert payload["happened"] == "2026-03-01T00:00:00.000000+00:00"
    absent = {"layer", "tags", "topic", "confidence", "expires", "speaker", "metadata", "left", "invalid"}
    assert not absent & payload.keys()
    assert made.point.id == point_id("acme", "bot", "记录")


def test_a_record_without_session_user_words_or_vector_has_empty_ones() -> None:
    made = upsert_of(derived(session=None), sequence=0, partition=0)
    assert made.point.vector == {}
    assert made.point.payload is not None
    assert (made.point.payload["session"], made.point.payload["user"], made.point.payload["terms"]) == ("", "", [])


def test_the_id_of_a_point_never_changes() -> None:
    assert point_id("acme", "bot", "r1") == "b76dc947-e89d-5a39-af7b-d79c642b9a5d"


@given(st.text(min_size=1), st.text(min_size=1), st.text(min_size=1))
def test_the_id_of_a_point_is_the_uuid_of_its_key(tenant: str, agent: str, record: str) -> None:
    try:
        key = record_key(tenant, agent, record).decode()
    except UnicodeEncodeError:
        return
    assert point_id(tenant, agent, record) == str(uuid.uuid5(uuid.UUID("6f5d2f0e-3a5b-5d0c-9a52-7c1be0a4d3f1"), key))


def test_rows_of_many_embeddings_are_those_of_each_alone() -> None:
    unit_rows, long, zero = direction(1, 3), direction(2, 2) * 5, np.zeros((2, 8))
    wide = np.eye(3, 16)
    made = [embedded(unit_rows), None, embedded(long), embedded(zero), embedded(wide), embedded(direction(4))]
    found = dense_rows(made)
    alone = [dense_rows([one])[0] for one in made]
    assert [None if rows is None else rows.shape for rows in found] == [(3, 8), None, (2, 8), None, (3, 16), (1, 8)]
    for a, b in zip(found, alone, strict=True):
        assert (a is b is None) or (a is not None and b is not None and a.tobytes() == b.tobytes())
    kept = dense_rows([embedded(unit_rows), None, embedded(direction(4))])
    assert kept[0] is not None
    assert kept[0].tobytes() == unit_rows.tobytes()


def test_weights_of_a_document_are_its_half_of_bm25() -> None:
    event = derived(terms={"a": 3, "b": 1}, length=40)
    weights = document_weights(event.data)
    assert math.isclose(weights[term_index("a")], 3 * 1.9 / (3 + 0.9 * (0.6 + 0.4 * 2)))
    assert math.isclose(sum(weights.values()), bm25(event, {"a": 1.0, "b": 1.0}))


def test_terms_with_the_same_index_are_summed() -> None:
    assert term_index("plumless") == term_index("buckeroo")
    event = derived(terms={"plumless": 1, "buckeroo": 2}, length=3)
    (weight,) = document_weights(event.data).values()
    assert math.isclose(weight, bm25(event, {"plumless": 1.0, "buckeroo": 1.0}))


def test_rows_of_unit_length_keep_their_bytes_and_others_get_it() -> None:
    rows = direction(1, 3)
    kept = unit(rows)
    assert kept is not None
    assert kept.tobytes() == rows.tobytes()
    scaled = unit(rows * 7)
    assert scaled is not None
    assert np.allclose(scaled, rows, atol=1e-6)
    mixed = unit(np.vstack([np.zeros(8), rows[:1] * 1e-3]).astype(np.float32))
    assert mixed is not None
    assert mixed.shape == (1, 8)
    assert unit(np.zeros((2, 8), dtype=np.float32)) is None


def test_of_metadata_the_configured_scalars_are_kept() -> None:
    metadata = {
        "project_id": "p1",
        "repo": {"branch": ["main", 1, None, {}], "name": "x"},
        "flag": True,
        "half": 0.5,
        "object": {"a": 1},
        "null": None,
        "secret": "s",
    }
    keys = ("project_id", "repo.branch", "flag", "half", "object", "null", "missing", "project_id.deeper")
    assert picked(metadata, keys) == {
        "project_id": ['"p1"'],
        "repo": {"branch": ['"main"', "1"]},
        "flag": ["true"],
        "half": ["0.5"],
    }


def test_values_of_metadata_differ_as_in_json() -> None:
    assert len({metadata_text(v) for v in (1, "1", True, "true", 1.5)}) == 5
    assert metadata_text(1.0) == metadata_text(1)
    assert metadata_text("天气") == '"天气"'


def test_times_are_instants_whatever_their_offset() -> None:
    shanghai = timezone(timedelta(hours=8))
    assert instant_text(START.astimezone(shanghai)) == instant_text(START)
    assert instant_text(datetime.max.replace(tzinfo=timezone(timedelta(hours=-8)))).startswith("9999-12-31T23:59:59.9")
    assert instant_text(datetime.min.replace(tzinfo=shanghai)) == "0001-01-01T00:00:00.000000+00:00"


@given(st.datetimes(timezones=st.just(UTC)), st.datetimes(timezones=st.just(UTC)))
def test_texts_of_times_are_ordered_as_the_times(a: datetime, b: datetime) -> None:
    assert (instant_text(a) < instant_text(b)) == (a < b)


def test_every_selection_names_tenant_and_agent_and_whose_records() -> None:
    must = selection(Scope("acme", "bot"), RecallFilter(), now=START).must
    assert isinstance(must, list)
    for condition in (equals("tenant", "acme"), equals("agent", "bot"), equals("user", "")):
        assert condition in must


def test_a_count_of_a_tenant_and_term_is_recognised_and_nothing_else() -> None:
    assert asked_count(plain(of_tenant("acme"))) == ("acme", None)
    assert asked_count(plain(with_term("acme", 7))) == ("acme", 7)
    more = models.Filter(must=[equals("tenant", "acme"), equals("terms", 7), equals("agent", "bot")])
    twice = models.Filter(must=[equals("tenant", "acme"), equals("terms", 7), equals("terms", 8)])
    ranged = models.Filter(must=[equals("tenant", "acme"), between("terms", lt=7)])
    without = models.Filter(must=[equals("terms", 7)])
    but = models.Filter(must=[equals("tenant", "acme")], must_not=[equals("terms", 7)])
    for where in (more, twice, ranged, without, but, models.Filter(), None):
        assert asked_count(plain(where)) is None


def test_the_tenant_of_a_filter_is_the_one_at_its_top() -> None:
    assert tenant_of(plain(with_ids(of_tenant("acme"), ["x"]))) == "acme"
    assert tenant_of(plain(models.Filter(should=[equals("tenant", "acme")]))) is None
    assert tenant_of(None) is None


def test_counts_follow_what_is_written_and_are_forgotten_by_tenant() -> None:
    counts = Frequencies()
    counts.learn("acme", None, 5)
    counts.learn("acme", 1, 3)
    counts.learn("acme-corp", 1, 3)
    counts.changed({"tenant": "acme", "terms": [1, 1, 2]}, 1)
    assert (counts.known("acme", None), counts.known("acme", 1), counts.known("acme", 2)) == (6, 4, None)
    counts.forget("acme")
    assert (counts.known("acme", 1), counts.known("acme-corp", 1)) == (None, 3)
    for term in range(MOST + 1):
        counts.learn("acme", term, 1)
    assert counts.known("acme-corp", 1) is None


def test_a_plain_filter_is_small_and_holds_its_times() -> None:
    where = plain(selection(Scope("acme", "bot"), RecallFilter(happened_from=START), now=START))
    assert where is not None
    assert {"key": "happened", "range": {"gte": START}} in where["must"]
    assert len(pickle.dumps(where)) < 1_500


def test_the_settings_name_the_engine_and_its_collection(tmp_path: pytest.TempPathFactory) -> None:
    def engine(url: str | None) -> object:
        return vector_engine_of(Settings(vectors_url=url, data_dir=tmp_path))

    assert isinstance(engine(None), EdgeEngine)
    assert isinstance(engine("edge:/somewhere"), EdgeEngine)
    assert isinstance(engine(":memory:"), ServerEngine)
    assert isinstance(engine("https://qdrant:6333"), ServerEngine)
    for wrong in ("edge:", "qdrant:6333", "postgres://x"):
        with pytest.raises(ConfigurationError, match="ENGRAMLOG_VECTORS_URL"):
            engine(wrong)
    version = Version(VECTORS, 3, 2, "ready")
    spec = collection_of(Settings(metadata_keys="a,b.c"), model="m", dimension=3, version=version)
    assert spec == CollectionSpec("memory-v3-g2", "m", 3, ("metadata.a", "metadata.b.c"), {"generation": "2"})


def test_an_embedding_is_read_row_by_row() -> None:
    rows = direction(5, 2)
    assert base64.b64decode(embedded(rows).values) == rows.tobytes()
    made = upsert_of(derived(embedding=embedded(rows)), sequence=0, partition=0)
    assert np.array_equal(made.point.vector["dense"], rows)  # type: ignore[index,call-overload]
