"""Free-form JSON inside events (metadata, tool calls): what may stand there."""

import math
from typing import Annotated

from pydantic import AfterValidator, JsonValue
from pydantic_core import PydanticCustomError

MAX_DEPTH = 64
"""Levels of objects and arrays that an event may have, envelope included."""

MAX_JSON_DEPTH = 48
"""Levels of a free-form object. Fewer than :data:`MAX_DEPTH`, so that a record that fits into its own event also fits
into every other that carries it: a reply nests it nine levels deeper."""

SHALLOWER = "store the document elsewhere and link it, or keep it as a JSON string"
_MAX_BITS = 4_096  # Python itself reads no integer of more than 4,300 digits
WHOLE_TEXT = "repair the text first, e.g. text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')"


def check_json(value: JsonValue, *, depth: int = 0) -> JsonValue:
    """Refuse what would not come out of the log as it went in.

    Raises:
        PydanticCustomError: A number is NaN or infinite (``not_finite``) or has thousands of digits
            (``too_long_a_number``), a string is not valid Unicode (``lone_surrogate``), or the nesting is deeper than
            :data:`MAX_JSON_DEPTH` (``too_deep``).
    """
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, (int, float)):
        _check_number(value)
    elif isinstance(value, (dict, list)):
        if depth >= MAX_JSON_DEPTH:
            raise PydanticCustomError("too_deep", f"nested deeper than {MAX_JSON_DEPTH} levels; {SHALLOWER}")
        for item in value.values() if isinstance(value, dict) else value:
            check_json(item, depth=depth + 1)
        if isinstance(value, dict):
            for key in value:
                _check_text(key)
    return value


def _check_number(number: float) -> None:
    if isinstance(number, int):
        if number.bit_length() > _MAX_BITS:
            raise PydanticCustomError("too_long_a_number", "an integer of thousands of digits; use a string")
    elif not math.isfinite(number):
        raise PydanticCustomError("not_finite", "NaN and infinity are not JSON; use null or a string")


def _check_text(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"half a character (a lone surrogate) at character {error.start}; {WHOLE_TEXT}"
        raise PydanticCustomError("lone_surrogate", message) from None


JsonObject = Annotated[dict[str, JsonValue], AfterValidator(check_json)]
"""A JSON object of at most :data:`MAX_JSON_DEPTH` levels, without NaN, infinity or lone surrogates."""
