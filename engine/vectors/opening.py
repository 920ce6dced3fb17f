"""Which vector engine the settings name, and what its collection is made of."""

from pathlib import Path

from engramlog.engine.history.versions import Version
from engramlog.engine.ports import CollectionSpec, VectorEngine
from engramlog.engine.settings import Settings
from engramlog.engine.vectors.edge import EdgeEngine
from engramlog.engine.vectors.server import ServerEngine
from engramlog.schemas.errors import ConfigurationError

_EDGE = "edge:"


def vector_engine_of(settings: Settings) -> VectorEngine:
    """The engine that the setting ``vectors_url`` names; not started yet.

    Raises:
        ConfigurationError: It names none.
    """
    url = settings.vectors_url
    if url is None:
        return EdgeEngine(settings.data_dir / "vectors")
    if url.startswith(_EDGE) and len(url) > len(_EDGE):
        return EdgeEngine(Path(url.removeprefix(_EDGE)).expanduser())
    if url == ":memory:" or url.startswith(("http://", "https://")):
        secret = settings.vectors_api_key
        return ServerEngine(url, api_key=None if secret is None else secret.get_secret_value())
    raise ConfigurationError(
        "ENGRAMLOG_VECTORS_URL is neither the URL of a Qdrant server (http://HOST:6333) nor edge:PATH nor :memory:"
    )


def collection_of(settings: Settings, *, model: str, dimension: int, version: Version) -> CollectionSpec:
    """The collection of a version of the vectors.

    Args:
        settings: They name it by their prefix of topics, and say which metadata can be filtered by.
        model: Model of the vectors.
        dimension: Components of each.
        version: The version.
    """
    return CollectionSpec(
        name=f"{settings.prefix}-v{version.number}-g{version.generation}",
        model=model,
        dimension=dimension,
        keyword_keys=tuple(f"metadata.{key}" for key in settings.filter_keys()),
        extra={"generation": str(version.generation)},
    )
