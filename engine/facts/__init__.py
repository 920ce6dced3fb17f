"""Facts, preferences, decisions and standing instructions that a text states plainly. By rules; pure."""

from engramlog.engine.facts.extracting import MAX_FACTS, facts
from engramlog.engine.facts.fact import Fact

__all__ = ["MAX_FACTS", "Fact", "facts"]
