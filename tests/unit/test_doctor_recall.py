"""The doctor's look at the model and the vectors, on a server in this process that plays Qdrant."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from engramlog.engine.cli import examining_recall
from engramlog.engine.cli.examining_recall import look_at_model, look_at_vectors
from engramlog.engine.settings import Settings
from engramlog.schemas.errors import ConfigurationError, StoreUnavailable

KEY = "hunter2"


class Qdrant(BaseHTTPRequestHandler):
    """Tells its version to anybody, and its collections to whoever has the key."""

    collections: tuple[str, ...] = ()

    def do_GET(self) -> None:
        if self.path == "/":
            self._answer(200, {"title": "qdrant", "version": "1.16.3"})
        elif self.headers.get("api-key") != KEY:
            self._answer(401, {})
        else:
            self._answer(200, {"result": {"collections": [{"name": name} for name in self.collections]}})

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ARG002 - the library's form
        return


@pytest.fixture
def qdrant(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Qdrant)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("collections", "verdict", "says"),
    [
        ((), "warning", "no collection yet"),
        (("other", "memories-1"), "warning", "no collection yet"),
        (("memory-vectors_v1_g1", "x"), "ok", "Qdrant 1.16.3 at"),
    ],
    ids=str,
)
async def test_a_server(
    qdrant: str, monkeypatch: pytest.MonkeyPatch, collections: tuple[str, ...], verdict: str, says: str
) -> None:
    monkeypatch.setattr(Qdrant, "collections", collections)
    (finding,) = await look_at_vectors(Settings.model_validate({"vectors_url": f"{qdrant}/", "vectors_api_key": KEY}))
    assert (finding.verdict, says in finding.found) == (verdict, True)
    assert bool(finding.fix) == (verdict != "ok")
    assert KEY not in f"{finding.found}{finding.fix}"


async def test_a_server_that_refuses_the_key_or_is_not_there(qdrant: str) -> None:
    with pytest.raises(ConfigurationError, match="ENGRAMLOG_VECTORS_API_KEY"):
        await look_at_vectors(Settings(vectors_url=qdrant))
    with pytest.raises(StoreUnavailable, match=r"no Qdrant server answers at http://127\.0\.0\.1:1"):
        await look_at_vectors(Settings(vectors_url="http://127.0.0.1:1"))


async def test_the_embedded_store(tmp_path: Path) -> None:
    (missing,) = await look_at_vectors(Settings(data_dir=tmp_path))
    assert missing.verdict == "warning"
    (tmp_path / "vectors").mkdir()
    (found,) = await look_at_vectors(Settings(data_dir=tmp_path))
    assert (found.verdict, str(tmp_path) in found.found) == ("ok", True)
    (elsewhere,) = await look_at_vectors(Settings(data_dir=tmp_path / "no", vectors_url=f"edge:{tmp_path / 'vectors'}"))
    assert elsewhere.verdict == "ok"
    with pytest.raises(ConfigurationError, match="ENGRAMLOG_VECTORS_URL=ftp://x"):
        await look_at_vectors(Settings(vectors_url="ftp://x"))


async def test_the_model_is_loaded_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    class Embedder:
        model, dimension, started = "m", 3, 0

        async def start(self) -> None:
            self.started += 1

        async def stop(self) -> None:
            self.started -= 1

    embedder = Embedder()
    monkeypatch.setattr(examining_recall, "embedder_of", lambda _settings: embedder)
    (finding,) = await look_at_model(Settings(deriver="llm"))
    assert (finding.verdict, finding.found) == ("ok", "m (auto): vectors of 3 components; derived by llm")
    assert embedder.started == 0


async def test_a_model_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match="no such embedder"):
        await look_at_model(Settings(embedder="nobody's"))
