"""Schemas and answers of structured output. Pure."""

import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from engramlog.schemas.errors import ModelRefused

_FENCED = re.compile(r"\A```[\w-]*[ \t]*\r?\n(.*?)\r?\n?```\Z", re.DOTALL)
_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
Answer = TypeVar("Answer", bound=BaseModel)

_NAME = re.compile(r"[^A-Za-z0-9_-]")
# Strict mode refuses these keywords; pydantic checks what they say when the answer is here.
_NOT_IN_STRICT = frozenset({"default", "title", "minLength", "maxLength", "uniqueItems", "examples", "discriminator"})
_MAPS = frozenset({"properties", "$defs"})
_SHOWN_ERRORS = 3


def strict_schema(schema: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a model, as strict structured output wants it: closed objects, every property required."""
    found = _strict(schema.model_json_schema())
    assert isinstance(found, dict)
    return found


def schema_name(schema: type[BaseModel]) -> str:
    """Its name, of the characters that the API takes."""
    return _NAME.sub("_", schema.__name__)[:64]


def _strict(node: Any) -> Any:
    if isinstance(node, list):
        return [_strict(value) for value in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:  # nothing may stand beside a reference
        return {"$ref": node["$ref"]}
    done = {
        name: {key: _strict(inner) for key, inner in value.items()} if name in _MAPS else _strict(value)
        for name, value in node.items()
        if name not in _NOT_IN_STRICT
    }
    if "oneOf" in done:
        done["anyOf"] = done.pop("oneOf")
    if "properties" in done:
        done["additionalProperties"] = False
        done["required"] = list(done["properties"])
    return done


def bare(text: str) -> str:
    """An answer without the model's thoughts before it and the code fence around it."""
    found = _THOUGHTS.sub("", text, count=1).strip()
    fenced = _FENCED.match(found)
    return fenced[1].strip() if fenced else found


def parsed(text: str, schema: type[Answer]) -> Answer:
    """The answer as its model, strictly.

    Raises:
        ModelRefused: It is empty, no JSON, or breaks the schema; the message says where, and never what stood there.
    """
    content = bare(text)
    if not content:
        raise ModelRefused("the model's answer is empty")
    try:
        return schema.model_validate_json(content, strict=True)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False, include_context=False)[:_SHOWN_ERRORS]
        places = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the answer'}: {one['msg']}" for one in wrong)
        raise ModelRefused(f"the model's answer does not fit {schema.__name__}: {places}") from None
