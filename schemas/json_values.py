"""Free-form JSON inside events (metadata, tool calls): what may stand there."""

import math
from typing import Annotated

from pydantic import AfterValidator, JsonValue

MAX_DEPTH = 64
"""Levels of objects and arrays that an event may have, envelope included."""


def check_json(value: JsonValue, *, depth: int = 0) -> JsonValue:
    """Refuse what would not come out of the log as it went in.

    Raises:
        ValueError: A number is NaN or infinite, a string is not valid Unicode, or the nesting is deeper than
            :data:`MAX_DEPTH`.
    """
    if isinstance(value, str):
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise ValueError(f"a lone surrogate at character {error.start}: {_SURROGATE_ADVICE}") from None
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("NaN and infinity are not JSON; use null or a string")
    elif isinstance(value, (dict, list)):
        if depth >= MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels; store the document elsewhere and link it")
        for item in value.values() if isinstance(value, dict) else value:
            check_json(item, depth=depth + 1)
        if isinstance(value, dict):
            for key in value:
                check_json(key, depth=depth + 1)
    return value


_SURROGATE_ADVICE = "repair the text first, e.g. text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')"

JsonObject = Annotated[dict[str, JsonValue], AfterValidator(check_json)]
"""A JSON object of at most :data:`MAX_DEPTH` levels, without NaN, infinity or lone surrogates."""
