"""Which summariser is meant."""

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Final, cast

from engramlog.engine.models.endpoints import Endpoints
from engramlog.engine.ports import Embedder
from engramlog.engine.summarisers.archive import Archive
from engramlog.engine.summarisers.extractive import Extractive
from engramlog.engine.summarisers.llm import TIMEOUT_S, LlmSummariser
from engramlog.engine.summarisers.passages import Summariser
from engramlog.engine.tokens import count_text
from engramlog.schemas.errors import ConfigurationError

GROUP: Final = "engramlog.summarisers"
"""The entry points of other summarisers: each a callable that takes ``embedder``, ``endpoints``, ``model`` and
``count`` by name and gives a summariser."""

DEFAULT: Final = "extractive"
_BUILT_IN: Final = ("extractive", "archive", "llm")


def names() -> tuple[str, ...]:
    """All summarisers that there are, ours first."""
    return (*_BUILT_IN, *sorted({point.name for point in entry_points(group=GROUP)} - set(_BUILT_IN)))


def summariser_by_name(
    name: str = DEFAULT,
    *,
    embedder: Embedder | None = None,
    endpoints: Endpoints | None = None,
    model: str | None = None,
    timeout_s: float = TIMEOUT_S,
    count: Callable[[str], int] = count_text,
) -> Summariser:
    """A summariser.

    Args:
        name: ``extractive``, ``archive``, ``llm``, or the name of an entry point of :data:`GROUP`.
        embedder: For ``extractive``: sentences are weighed by meaning, too. It must be started before use.
        endpoints: For ``llm``: where the model is served.
        model: For ``llm``: its name.
        timeout_s: For ``llm``: how long a summary may take, in seconds.
        count: How many tokens a text has.

    Raises:
        ConfigurationError: There is none of that name, or it lacks what it needs.
    """
    if name == "extractive":
        return Extractive(embedder=embedder, count=count)
    if name == "archive":
        return Archive()
    if name == "llm":
        if endpoints is None or not model:
            raise ConfigurationError(
                "the summariser llm needs a model: set ENGRAMLOG_LLM_MODEL (and ENGRAMLOG_LLM_URLS), "
                "or use the summariser extractive"
            )
        return LlmSummariser(endpoints, model=model, timeout_s=timeout_s, count=count)
    for point in entry_points(group=GROUP):
        if point.name == name:
            made = point.load()(embedder=embedder, endpoints=endpoints, model=model, count=count)
            return cast("Summariser", made)
    raise ConfigurationError(f"there is no summariser {name!r}: there are {', '.join(names())}")
