"""Memories that contradict each other, found by rules: English and Chinese, no model, no I/O."""

from engramlog.engine.conflicts.comparing import conflicts
from engramlog.engine.conflicts.reading import claims_of

__all__ = ["claims_of", "conflicts"]
