"""Summaries of a talk: of its own sentences, by a language model, or only its beginning."""

from engramlog.engine.summarisers.checking import checked
from engramlog.engine.summarisers.choosing import DEFAULT, GROUP, names, summariser_by_name
from engramlog.engine.summarisers.passages import Passage, Summariser, Summary, SummaryRefused

__all__ = [
    "DEFAULT",
    "GROUP",
    "Passage",
    "Summariser",
    "Summary",
    "SummaryRefused",
    "checked",
    "names",
    "summariser_by_name",
]
