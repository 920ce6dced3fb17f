"""The doctor's look at what recall stands on: the model that makes vectors, and where they lie."""

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from engramlog.engine.cli.findings import Finding
from engramlog.engine.embedders import embedder_of
from engramlog.engine.settings import Settings
from engramlog.schemas.errors import ConfigurationError, StoreUnavailable

_EDGE = "edge:"
_NOT_ALLOWED = frozenset({401, 403})


async def look_at_model(settings: Settings) -> list[Finding]:
    """Load the model, or ask its endpoint.

    Raises:
        ConfigurationError: It cannot work as configured.
        ModelUnavailable: Its endpoint does not answer.
    """
    embedder = embedder_of(settings)
    await embedder.start()
    try:
        text = f"{embedder.model} ({settings.embedder}): vectors of {embedder.dimension} components"
        return [Finding("model", "ok", f"{text}; derived by {settings.deriver}")]
    finally:
        await embedder.stop()


async def look_at_vectors(settings: Settings) -> list[Finding]:
    """Look at where the vectors lie.

    Raises:
        ConfigurationError: The server refuses the key, or the setting names no store.
        StoreUnavailable: The server does not answer.
    """
    return [await asyncio.to_thread(_server if settings.vectors_are_served() else _embedded, settings)]


def _embedded(settings: Settings) -> Finding:
    url = settings.vectors_url or f"{_EDGE}{settings.data_dir / 'vectors'}"
    if not url.startswith(_EDGE):
        raise ConfigurationError(f"ENGRAMLOG_VECTORS_URL={url}: http://HOST:6333 or edge:PATH")
    path = Path(url.removeprefix(_EDGE)).expanduser()
    if not path.exists():
        fix = "run 'engramlog up' here, or set ENGRAMLOG_VECTORS_URL to the store that is used"
        return Finding("vectors", "warning", f"there are no vectors at {path}", fix)
    return Finding("vectors", "ok", f"Qdrant Edge at {path}; 'index' and 'answer' must run in one process")


def _server(settings: Settings) -> Finding:
    url = (settings.vectors_url or "").rstrip("/")
    version = _get(url, settings).get("version", "of an unknown version")
    names = [c["name"] for c in _get(f"{url}/collections", settings)["result"]["collections"]]
    ours = sorted(name for name in names if name.startswith(f"{settings.prefix}-"))
    if not ours:
        fix = "start 'engramlog run index': it makes the collection and fills it from the log"
        return Finding("vectors", "warning", f"Qdrant {version} at {url}: no collection yet", fix)
    return Finding("vectors", "ok", f"Qdrant {version} at {url}: {', '.join(ours)}")


def _get(url: str, settings: Settings) -> dict[str, Any]:
    key = settings.secret(settings.vectors_api_key)
    request = urllib.request.Request(url, headers={"api-key": key} if key else {})  # noqa: S310 - it is http(s)
    try:
        with urllib.request.urlopen(request, timeout=settings.timeout_s) as response:  # noqa: S310 - likewise
            found: dict[str, Any] = json.load(response)
            return found
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in _NOT_ALLOWED:
            raise ConfigurationError("the Qdrant server refuses the API key (ENGRAMLOG_VECTORS_API_KEY)") from None
        raise StoreUnavailable(f"the Qdrant server at {url} answers {error.code}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise StoreUnavailable(f"no Qdrant server answers at {url}: {reason}") from None
