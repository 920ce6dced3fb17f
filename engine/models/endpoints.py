"""OpenAI-compatible endpoints: vectors and structured answers, whatever serves them."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel

from engramlog.engine.models import answers
from engramlog.engine.models.clean import cleaned
from engramlog.engine.models.dialects import Message
from engramlog.engine.models.json_mode import parsed
from engramlog.engine.models.openai_endpoint import OPENAI_URL, Endpoint, RequestRejected, connected
from engramlog.engine.models.pool import Pool, Slot
from engramlog.engine.models.structured import Answer
from engramlog.engine.ports import Matrix
from engramlog.schemas.errors import ConfigurationError, ModelRefused

DEFAULT_KEY_SETTING = "ENGRAMLOG_EMBEDDING_API_KEY or ENGRAMLOG_LLM_API_KEY"
_BIG_BODY = 262_144
_AGAIN = "That does not fit: {error}. Answer again, with the corrected JSON object and nothing else."


class Endpoints:
    """A pool of endpoints that serve the same models. Used from one event loop; never blocks it.

    They are asked in turn. One that does not answer is followed by the next; one that fails three times in a row rests
    1 s, doubling to 30 s; when all rest, calls fail at once. Retries, pauses (``Retry-After`` is obeyed) and failover
    all happen within the deadline of the call. Keys appear in no message and no log.

    Args:
        urls: Base URLs, e.g. ``http://host:8000/v1``. Empty: OpenAI's own.
        api_key: The key of all of them; None: they need none.
        timeout_s: Deadline of a whole call, in seconds.
        concurrency: How many requests are under way at once.
        key_setting: Which setting holds the key, for messages.
        clock: Monotonic seconds.
        sleep: Waits so many seconds.
        chance: A random number from 0 to 1.
        connect: Makes an endpoint of a URL.

    Raises:
        ConfigurationError: A URL is none, OpenAI's own is meant and there is no key, or ``openai`` is not installed.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        api_key: str | None,
        timeout_s: float,
        concurrency: int = 8,
        key_setting: str = DEFAULT_KEY_SETTING,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
        connect: Callable[..., Endpoint] = connected,
    ) -> None:
        if not urls and not api_key:
            raise ConfigurationError(f"OpenAI's own endpoint needs a key: set {key_setting}, or name another endpoint")
        self._timeout_s = timeout_s
        self._endpoints = [
            connect(url, api_key=api_key, timeout_s=timeout_s, key_setting=key_setting) for url in urls or (OPENAI_URL,)
        ]
        self._pool = Pool(self._endpoints, concurrency=concurrency, clock=clock, sleep=sleep, chance=chance)

    async def stop(self) -> None:
        """Close the connections."""
        for endpoint in self._endpoints:
            await endpoint.close()

    async def embed(
        self, texts: Sequence[str], *, model: str, dimensions: int | None, timeout_s: float | None = None
    ) -> Matrix:
        """The vectors of some texts, in one request, as the model gave them (not normalised): ``(n, d)``.

        Args:
            texts: At most what the endpoint takes at once. NUL and lone surrogates are left out.
            model: The model's name.
            dimensions: Components to ask for; None: what the model gives.
            timeout_s: Deadline of the call; None: the pool's.

        Returns:
            Finite float32; ``(0, 0)`` for no texts, without a request.

        Raises:
            ModelUnavailable: No answer before the deadline.
            ModelRefused: The endpoint refuses the request, or its answer is none (broken JSON, wrong count, NaN).
            ConfigurationError: It refuses our key.
        """
        sent = [cleaned(text) for text in texts]
        if not sent:
            return np.empty((0, 0), dtype=np.float32)
        body: dict[str, Any] = {"model": model, "input": sent, "encoding_format": "base64"}
        if dimensions is not None:
            body["dimensions"] = dimensions

        async def question(slot: Slot) -> bytes:
            return await slot.endpoint.embeddings(body)

        answer = await self._pool.ask(question, timeout_s=timeout_s or self._timeout_s)
        source = f"the embedding endpoint ({model})"
        if len(answer) > _BIG_BODY:  # parsing some megabytes would hold up the loop
            return await asyncio.to_thread(answers.vectors, answer, len(sent), source=source)
        return answers.vectors(answer, len(sent), source=source)

    async def structured(
        self,
        *,
        model: str,
        system: str,
        user: str,
        schema: type[Answer],
        max_tokens: int = 800,
        timeout_s: float | None = None,
    ) -> Answer:
        """A chat answer of a given shape.

        It is asked for with a strict JSON Schema; an endpoint that refuses that is asked for a JSON object, and that
        is remembered. An answer that does not fit is asked for once more, within the same deadline.

        Args:
            model: The model's name.
            system: What it is to do.
            user: What with.
            schema: The shape; validated strictly. All its properties are demanded of the model.
            max_tokens: The most tokens of the answer.
            timeout_s: Deadline of the whole call; None: the pool's.

        Raises:
            ModelUnavailable: No answer before the deadline.
            ModelRefused: The endpoint refuses the request, or the second answer does not fit either.
            ConfigurationError: It refuses our key.
        """
        messages: list[Message] = [
            {"role": "system", "content": cleaned(system)},
            {"role": "user", "content": cleaned(user)},
        ]
        deadline = self._pool.now() + (timeout_s or self._timeout_s)

        async def question(slot: Slot) -> bytes:
            return await _asked(slot, messages, model=model, schema=schema, max_tokens=max_tokens)

        first = await self._pool.ask(question, timeout_s=deadline - self._pool.now())
        try:
            return _read(first, schema, model)
        except ModelRefused as error:
            messages.append({"role": "user", "content": _AGAIN.format(error=error)})
        second = await self._pool.ask(question, timeout_s=deadline - self._pool.now())
        return _read(second, schema, model)


async def _asked(
    slot: Slot, messages: Sequence[Message], *, model: str, schema: type[BaseModel], max_tokens: int
) -> bytes:
    """One endpoint's answer, in the first dialect that it takes; that one is remembered."""
    dialect = slot.dialect
    while True:
        body = dialect.body(messages, model=model, schema=schema, max_tokens=max_tokens)
        try:
            answer = await slot.endpoint.chat(body)
        except RequestRejected as refusal:
            simpler = dialect.simpler(str(refusal))
            if simpler is None:
                raise
            dialect = simpler
        else:
            slot.dialect = dialect
            return answer


def _read(answer: bytes, schema: type[Answer], model: str) -> Answer:
    return parsed(answers.said(answer, source=model), schema)
