"""Points in time on the wire."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import WithJsonSchema
from pydantic_core import CoreSchema, core_schema

_SHAPE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}"
_ADVICE = "a time is a string as in RFC 3339, e.g. 2026-03-01T00:00:00Z or 2026-03-01T08:00:00+08:00"


class _Rfc3339:
    """Stricter than pydantic, which also reads ``"1772323200"`` as a time and guesses at its unit."""

    @staticmethod
    def __get_pydantic_core_schema__(_source: Any, _handler: Any) -> CoreSchema:
        text = core_schema.str_schema(pattern=_SHAPE, strict=True)
        shaped = core_schema.custom_error_schema(text, "not_rfc3339", custom_error_message=_ADVICE)
        python = core_schema.datetime_schema(tz_constraint="aware", strict=True)
        return core_schema.json_or_python_schema(
            json_schema=core_schema.chain_schema([shaped, core_schema.datetime_schema(tz_constraint="aware")]),
            python_schema=core_schema.no_info_after_validator_function(_whole_minutes, python),
        )


def _whole_minutes(time: datetime) -> datetime:
    """RFC 3339 has offsets in minutes; a zone's old local mean time (``+08:05:43``) would be cut to another instant."""
    offset = time.utcoffset()
    assert offset is not None
    return time.astimezone(UTC) if offset.seconds % 60 or offset.microseconds else time


Instant = Annotated[datetime, _Rfc3339, WithJsonSchema({"type": "string", "format": "date-time"})]
"""An aware point in time: RFC 3339 in JSON, with an offset; a ``datetime`` with ``tzinfo`` in Python."""


def now() -> datetime:
    """This instant, in UTC."""
    return datetime.now(UTC)
