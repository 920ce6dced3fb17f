"""What the tests of the derivers share: records said at a fixed time, and a session folded from its lines."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from engramlog.engine.derivers.rules import SessionState, understand
from engramlog.engine.derivers.understanding import Understanding
from engramlog.schemas.records import MemoryRecord

THEN = datetime(2026, 3, 1, 9, tzinfo=UTC)


def said(text: str, role: str = "user", **fields: Any) -> MemoryRecord:
    """A record with a text of whole characters."""
    whole = text.encode("utf-8", "ignore").decode("utf-8")
    return MemoryRecord.model_validate({"record_id": "r", "role": role, "content": whole, "timestamp": THEN} | fields)


def understood(text: str, role: str = "user", **fields: Any) -> Understanding:
    """What a text says by itself."""
    understanding, _ = understand(said(text, role, **fields), text, None, vector=None)
    return understanding


def session(lines: Iterable[str | tuple[str, str]], state: SessionState | None = None) -> list[Understanding]:
    """What each line of a session says; a line is a text of the user, or role and text."""
    found = []
    for line in lines:
        role, text = ("user", line) if isinstance(line, str) else line
        understanding, state = understand(said(text, role), text, state, vector=None)
        found.append(understanding)
    return found
