"""A local OpenAI-compatible server that plays what real ones do on their bad days.

::

    with model_server() as server:
        settings = Settings(embedder="openai", embedding_urls=server.url, embedding_model="pseudo", …)
        server.chat = {"topic": "cats"}              # every chat answer: an object, or a text
        server.chat = [{"topic": "cats"}, "{broken"]  # or one after the other (then 500)
        server.chat = lambda body: {"topic": …}      # or made of the request's body
    server.chat = {"tool_calls": [{"id": …}]}    # an object with this key: the model calls tools
        server.stall_s = 30                          # answers wait; server.resume() lets them go on
        server.fail(429, times=2, retry_after="1")   # the next two requests
        server.fail(500)                             # every request, until server.recover()
        server.play("broken_json", times=1)          # see Fault
        server.dimension = 5                         # of embeddings from now on
        server.refuses.add("json_schema")            # also "json_object", "max_tokens", "temperature", "dimensions"
        server.api_key = "k"                         # other keys get a 401 that repeats them
        assert server.count("embeddings") == 1       # requests that came, whatever became of them
        server.calls[-1].body["input"]               # what they said

Embeddings are deterministic pseudo vectors: the sum of a random vector for each word (each Han character), so texts
that share words are near each other; nothing else about them is meaningful. The port is free; the server answers each
request in a thread of its own and lives as long as the ``with``.
"""

import base64
import contextlib
import functools
import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Fault = Literal[
    "broken_json",  # 200, and half of a JSON document
    "empty",  # 200, and no bytes
    "no_data",  # 200, without vectors or choices
    "close",  # the connection is closed without an answer
    "nan",  # vectors with NaN
    "zero",  # vectors of zeros
    "one_less",  # a vector is missing
]
_WORD = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+")


@dataclass(frozen=True, slots=True)
class Call:
    """A request that came; the names of its headers are in lower case."""

    path: str
    body: dict[str, Any]
    headers: Mapping[str, str]


@dataclass(slots=True)
class _Planned:
    """What the next ``times`` requests get (None: all of them)."""

    status: int = 200
    fault: Fault | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    times: int | None = None


class ModelServer:
    """See the module."""

    def __init__(self) -> None:
        self.dimension = 64
        self.chat: Any = {}
        self.finish_reason = "stop"
        self.stall_s = 0.0
        self.refuses: set[str] = set()
        self.api_key: str | None = None
        self.calls: list[Call] = []
        self.most_at_once = 0
        self._now = 0
        self._planned: list[_Planned] = []
        self._go_on = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), functools.partial(_Handler, self))
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def count(self, path: str = "") -> int:
        """How many requests have come, to paths that end so."""
        return sum(call.path.endswith(path) for call in self.calls)

    def fail(
        self, status: int, *, times: int | None = None, retry_after: str | None = None, message: str = "it failed"
    ) -> None:
        """Answer the next ``times`` requests (None: all from now on) with an error."""
        headers = {} if retry_after is None else {"Retry-After": retry_after}
        self._planned.append(_Planned(status=status, headers=headers, message=message, times=times))

    def play(self, fault: Fault, *, times: int | None = None) -> None:
        """Answer the next ``times`` requests (None: all from now on) wrongly."""
        self._planned.append(_Planned(fault=fault, times=times))

    def recover(self) -> None:
        """Answer rightly again."""
        self._planned.clear()

    def resume(self) -> None:
        """Do not stall any more, and answer all who wait."""
        self.stall_s = 0.0
        self._go_on.set()
        self._go_on = threading.Event()

    def serve(self) -> None:
        """Until :meth:`close`."""
        self._server.serve_forever(poll_interval=0.02)

    def close(self) -> None:
        """Stop, and let no request wait."""
        self.resume()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler: "_Handler", body: dict[str, Any]) -> None:
        """Answer one request."""
        with self._lock:
            self.calls.append(Call(handler.path, body, {k.lower(): v for k, v in handler.headers.items()}))
            planned = self._next()
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            if self.stall_s:
                self._go_on.wait(self.stall_s)
            self._answer(handler, body, planned)
        finally:
            with self._lock:
                self._now -= 1

    def _next(self) -> _Planned | None:
        while self._planned:
            planned = self._planned[0]
            if planned.times is None:
                return planned
            if planned.times > 0:
                planned.times -= 1
                return planned
            self._planned.pop(0)
        return None

    def _answer(self, handler: "_Handler", body: dict[str, Any], planned: _Planned | None) -> None:
        given = (handler.headers.get("Authorization") or "").removeprefix("Bearer ")
        if self.api_key is not None and given != self.api_key:
            handler.error(401, f"Incorrect API key provided: {given}", {})
        elif planned is not None and planned.status != 200:
            handler.error(planned.status, planned.message, planned.headers)
        elif planned is not None and planned.fault == "close":
            handler.hang_up()
        elif planned is not None and planned.fault == "empty":
            handler.send(200, b"", {})
        elif planned is not None and planned.fault == "broken_json":
            handler.send(200, b'{"object": "list", "data": [{"embedd', {})
        elif planned is not None and planned.fault == "no_data":
            handler.send(200, b'{"object": "list", "data": [], "choices": []}', {})
        elif refused := self._refused(body):
            handler.error(400, f"Unsupported parameter: {refused}", {})
        elif handler.path.endswith("/embeddings"):
            handler.send(200, self._embeddings(body, planned.fault if planned else None), {})
        elif handler.path.endswith("/chat/completions"):
            self._chat(handler, body)
        else:
            handler.error(404, "no such path", {})

    def _refused(self, body: dict[str, Any]) -> str:
        form = (body.get("response_format") or {}).get("type")
        if form in self.refuses:
            return f"response_format.type {form}"
        return next(
            (name for name in ("max_tokens", "temperature", "dimensions") if name in body.keys() & self.refuses), ""
        )

    def _embeddings(self, body: dict[str, Any], fault: Fault | None) -> bytes:
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        rows = [pseudo_vector(text, body.get("dimensions") or self.dimension) for text in texts]
        if fault == "nan":
            rows[0] = np.full_like(rows[0], np.nan)
        elif fault == "zero":
            rows = [np.zeros_like(row) for row in rows]
        elif fault == "one_less":
            rows = rows[:-1]
        packed = body.get("encoding_format") == "base64"
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64.b64encode(row.tobytes()).decode() if packed else row.tolist(),
            }
            for index, row in enumerate(rows)
        ]
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return json.dumps({"object": "list", "data": data, "model": body["model"], "usage": usage}).encode()

    def _chat(self, handler: "_Handler", body: dict[str, Any]) -> None:
        with self._lock:
            if isinstance(self.chat, list):
                if not self.chat:
                    handler.error(500, "no answer is left", {})
                    return
                said: Any = self.chat.pop(0)
            else:
                said = self.chat
        if callable(said):
            said = said(body)
        content = said if isinstance(said, str) or said is None else json.dumps(said, ensure_ascii=False)
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if isinstance(said, dict) and "tool_calls" in said:
            message |= {"content": None, "tool_calls": said["tool_calls"]}
        choice = {"index": 0, "message": message, "finish_reason": self.finish_reason}
        answer = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}
        handler.send(200, json.dumps(answer).encode(), {})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, server: ModelServer, *args: Any) -> None:
        self.model = server
        super().__init__(*args)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.model.answer(self, json.loads(raw))

    def send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def error(self, status: int, message: str, headers: Mapping[str, str]) -> None:
        self.send(status, json.dumps({"error": {"message": message, "type": "error", "code": None}}).encode(), headers)

    def hang_up(self) -> None:
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard library's name
        """Say nothing."""


@functools.lru_cache(maxsize=4096)
def _of_word(word: str, dimension: int) -> NDArray[np.float32]:
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)


def pseudo_vector(text: str, dimension: int) -> NDArray[np.float32]:
    """The pseudo vector of a text; not of unit length, as some servers' are not."""
    words = _WORD.findall(text.casefold()) or [text or "nothing"]
    total = np.zeros(dimension, dtype=np.float32)
    for word in words:
        total += _of_word(word, dimension)
    return total


@contextlib.contextmanager
def model_server() -> Iterator[ModelServer]:
    """A server on a free port, as long as the ``with`` lasts."""
    server = ModelServer()
    thread = threading.Thread(target=server.serve, name="model-server", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(10)
