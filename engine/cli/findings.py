"""What the doctor says."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        check: What was looked at.
        verdict: How it is.
        found: What was seen.
        fix: What to do; empty: nothing.
    """

    check: str
    verdict: Verdict
    found: str
    fix: str = ""
