"""What a ``Retry-After`` header asks for (RFC 9110, 10.2.3). Pure."""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def retry_after_s(value: str | None, *, now: datetime) -> float | None:
    """Seconds to wait, at least 0; None: the header is missing or is neither seconds nor an HTTP date.

    Args:
        value: The header's value.
        now: The present instant, which an HTTP date is compared with.
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        return _until(value, now)
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _until(value: str, now: datetime) -> float | None:
    try:
        then = parsedate_to_datetime(value)
    except ValueError:
        return None
    aware = then if then.tzinfo is not None else then.replace(tzinfo=UTC)
    return max(0.0, (aware - now).total_seconds())
