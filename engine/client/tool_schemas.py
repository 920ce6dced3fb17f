"""OpenAI tool schemas, made from a function's signature and docstring."""

import inspect
import re
from collections.abc import Callable
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

_ARGS = re.compile(r"^Args:\n(?P<lines>(?:[ \t]+.*\n?|\n)+)", re.MULTILINE)
_ARGUMENT = re.compile(r"^ {4}(?P<name>\w+): (?P<text>.*(?:\n {8}.*)*)", re.MULTILINE)


def arguments_of(function: Callable[..., Any]) -> type[BaseModel]:
    """A model of a function's arguments: what it is called with is validated by it.

    The descriptions come from the section ``Args:`` of a Google docstring.
    """
    hints = get_type_hints(function, include_extras=True)
    said = _descriptions(inspect.getdoc(function) or "")
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self":
            continue
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[name] = (hints[name], Field(default, description=said.get(name)))
    return create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)


def tool_schema(function: Callable[..., Any], arguments: type[BaseModel]) -> dict[str, Any]:
    """The entry of a function for ``tools`` of the Chat Completions API.

    Args:
        function: The function; what stands before the sections of its docstring is its description.
        arguments: The model of its arguments, see :func:`arguments_of`.
    """
    description = (inspect.getdoc(function) or "").partition("\nArgs:")[0]
    return {
        "type": "function",
        "function": {
            "name": function.__name__,
            "description": " ".join(description.split()),
            "parameters": _untitled(arguments.model_json_schema()),
        },
    }


def _descriptions(docstring: str) -> dict[str, str]:
    section = _ARGS.search(docstring)
    if section is None:
        return {}
    return {m["name"]: " ".join(m["text"].split()) for m in _ARGUMENT.finditer(section["lines"])}


def _untitled(schema: Any) -> Any:
    """A schema without the titles that pydantic adds; a property may be called ``title``."""
    if isinstance(schema, list):
        return [_untitled(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _untitled(value) for key, value in schema.items() if key != "title" or not isinstance(value, str)}
