"""What endpoints send back: headers, vectors, schemas."""

import base64
import json
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, create_model

from engramlog.engine.models.answers import said, vectors
from engramlog.engine.models.clean import cleaned
from engramlog.engine.models.json_mode import bare, parsed, schema_name, strict_schema
from engramlog.engine.models.retry_after import retry_after_s
from engramlog.schemas.errors import ModelRefused

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        ("7", 7.0),
        ("1.5", 1.5),
        ("-3", 0.0),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("Sun, 01 Mar 2026 20:00:30 +0800", 30.0),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after_s(value, now=NOW) == seconds


def packed(*values: float) -> str:
    return base64.b64encode(np.array(values, dtype="<f4").tobytes()).decode()


def body(*rows: Any, indexes: list[int] | None = None) -> bytes:
    data = [{"embedding": row, **({} if indexes is None else {"index": indexes[i]})} for i, row in enumerate(rows)]
    return json.dumps({"data": data}).encode()


def test_vectors_come_as_numbers_or_as_base64() -> None:
    wanted = np.array([[1, 2], [3, 4]], dtype=np.float32)
    assert np.array_equal(vectors(body([1, 2], [3, 4]), 2, source="s"), wanted)
    found = vectors(body(packed(1, 2), packed(3, 4)), 2, source="s")
    assert np.array_equal(found, wanted)
    assert found.dtype == np.float32


def test_vectors_are_put_in_the_order_of_the_texts() -> None:
    found = vectors(body([3], [1], [2], indexes=[2, 0, 1]), 3, source="s")
    assert found.tolist() == [[1], [2], [3]]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "no JSON"),
        (b"{broken", "no JSON"),
        (b"[]", "no JSON"),
        (b'{"data": null}', "no JSON"),
        (b'{"data": []}', "0 vectors for 2 texts"),
        (body([1.0]), "1 vectors for 2 texts"),
        (body([1.0], [1.0], [1.0]), "3 vectors for 2 texts"),
        (body([1.0], [1.0, 2.0]), "1 and 2 components"),
        (body([], []), "0 components"),
        (body([1.0], [1.0], indexes=[0, 0]), "indexes"),
        (body([1.0], [1e300]), "no finite number"),
        (body(packed(1), packed(float("nan"))), "no finite number"),
        (body(packed(1), "AAA="), "base64"),
        (body(packed(1), "not base64!"), "base64"),
        (b'{"data": [{"embedding": [NaN]}, {"embedding": [1]}]}', "no JSON|no finite"),
    ],
)
def test_an_answer_that_is_none_is_refused(answer: bytes, says: str) -> None:
    with pytest.raises(ModelRefused, match=says):
        vectors(answer, 2, source="s")


@pytest.mark.parametrize("answer", [b"", b"{", b"{}", b'{"choices": []}', b'{"choices": [{}]}', b"null"])
def test_a_chat_answer_that_is_none_is_refused(answer: bytes) -> None:
    with pytest.raises(ModelRefused):
        said(answer, source="s")


class Inner(BaseModel):
    name: str = Field(min_length=1, max_length=20, description="whose")
    score: float = 0.5


class Outer(BaseModel):
    """What is asked for."""

    kind: Literal["a", "b"]
    title: str | None = None
    inner: list[Inner] = Field(default_factory=list, max_length=3)
    default: Inner | None = None


def test_strict_schemas_are_closed_and_demand_everything() -> None:
    schema = strict_schema(Outer)
    assert schema["required"] == ["kind", "title", "inner", "default"]
    assert schema["additionalProperties"] is False
    inner = schema["$defs"]["Inner"]
    assert (inner["required"], inner["additionalProperties"]) == (["name", "score"], False)
    assert inner["properties"]["name"] == {"type": "string", "description": "whose"}
    assert schema["properties"]["inner"]["maxItems"] == 3
    assert "default" not in schema["properties"]["title"]


def test_answers_are_validated_strictly_and_refusals_do_not_repeat_them() -> None:
    assert parsed('{"kind": "a", "inner": [{"name": "x", "score": 1}]}', Outer).inner == [Inner(name="x", score=1.0)]
    with pytest.raises(ModelRefused, match=r"inner\.0\.score") as caught:
        parsed('{"kind": "a", "inner": [{"name": "x", "score": "secret"}]}', Outer)
    assert "secret" not in str(caught.value)


def test_names_of_schemas_are_what_the_api_takes() -> None:
    assert schema_name(create_model("Größe[猫]")) == "Gr__e___"
    assert len(schema_name(create_model("x" * 100))) == 64


@given(st.text())
def test_bare_text_stays_as_it_is(text: str) -> None:
    if "```" not in text and "<think>" not in text:
        assert bare(text) == text.strip()


@given(st.text(st.characters(exclude_categories=())))
def test_cleaned_text_can_be_encoded_and_is_stable(text: str) -> None:
    clean = cleaned(text)
    clean.encode()
    assert "\0" not in clean
    assert cleaned(clean) == clean


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_whole_text_is_not_changed(text: str) -> None:
    assert cleaned(text) == text


def test_two_halves_of_a_character_become_whole() -> None:
    assert cleaned("a\0\ud83d\udc4b\ud800b") == "a👋b"
