"""One OpenAI-compatible endpoint, through the ``openai`` package; every foreign error is mapped to ours here."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from engramlog.engine.models.retry_after import retry_after_s
from engramlog.schemas.errors import ConfigurationError, EngramlogError, ModelRefused, ModelUnavailable

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

OPENAI_URL = "https://api.openai.com/v1"
_TRANSIENT = frozenset({408, 409, 425, 429})
_SERVER_FAULT = 500
_DENIED = frozenset({401, 403})
_REJECTED = frozenset({400, 422})
_SHOWN = 200


class Endpoint(Protocol):
    """What the pool asks. Bodies are those of OpenAI's HTTP API, answers the raw bytes.

    Attributes:
        name: Scheme, host and port, for messages; never a password or a key.
    """

    name: str

    async def embeddings(self, body: Mapping[str, Any]) -> bytes:
        """``POST /embeddings``; errors as :func:`mapped` has them."""

    async def chat(self, body: Mapping[str, Any]) -> bytes:
        """``POST /chat/completions``; errors as :func:`mapped` has them."""

    async def close(self) -> None:
        """Close its connections."""


class Overloaded(ModelUnavailable):
    """The endpoint asks us to come back later.

    Attributes:
        retry_after_s: In how many seconds, if it said so.
    """

    def __init__(self, message: str, retry_after_s: float | None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RequestRejected(ModelRefused):
    """The endpoint does not take the request as it stands (400 or 422): a parameter, or the input."""


class OpenAiEndpoint:
    """An :class:`Endpoint`. Never retries by itself.

    Args:
        url: The base URL, e.g. ``http://host:8000/v1``.
        api_key: Its key; None: it needs none.
        timeout_s: Limit of one call.
        key_setting: What to set when the key is refused, for messages.
        now: The present instant, for ``Retry-After`` with a date.

    Raises:
        ConfigurationError: ``openai`` is not installed, or the URL or the key cannot be one.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None,
        timeout_s: float,
        key_setting: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.name = name_of(url)
        if "@" in urlsplit(url).netloc:  # HTTP libraries log whole URLs
            raise ConfigurationError(f"{self.name}: leave user and password out of the URL, and set {key_setting}")
        if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
            raise ConfigurationError(f"{key_setting}: a key is printable ASCII; look for a line break or a stray sign")
        self._secret = api_key
        self._key_setting = key_setting
        self._now = now
        self._client = _client(url, api_key, timeout_s)

    async def embeddings(self, body: Mapping[str, Any]) -> bytes:
        """``POST /embeddings``."""
        return await self._asked(self._client.embeddings.with_raw_response.create, body)

    async def chat(self, body: Mapping[str, Any]) -> bytes:
        """``POST /chat/completions``."""
        return await self._asked(self._client.chat.completions.with_raw_response.create, body)

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    async def _asked(self, create: Callable[..., Any], body: Mapping[str, Any]) -> bytes:
        from openai import OpenAIError

        try:
            response = await create(**body)
        except OpenAIError as error:
            raise self._mapped(error) from None  # the original holds the request, and that the key
        content: bytes = response.http_response.content
        return content

    def _mapped(self, error: Exception) -> EngramlogError:
        """Our error for one of ``openai``'s. Connection errors tell no details: some hold the key."""
        from openai import APIConnectionError, APIStatusError, APITimeoutError

        if isinstance(error, APITimeoutError):
            return ModelUnavailable(f"{self.name} gave no answer in time")
        if isinstance(error, APIConnectionError):
            return ModelUnavailable(f"{self.name} cannot be reached, or it closed the connection")
        if isinstance(error, APIStatusError):
            return self._mapped_status(error)
        return ModelRefused(f"{self.name} gave an answer that cannot be read ({type(error).__name__})")

    def _mapped_status(self, error: "APIStatusError") -> EngramlogError:
        status = error.status_code
        if status in _DENIED:
            return ConfigurationError(f"{self.name} refuses us with {status}: set {self._key_setting}")
        told = f"{self.name} answers {status}{self._reason(error)}"
        if status in _TRANSIENT or status >= _SERVER_FAULT:
            return Overloaded(told, retry_after_s(error.response.headers.get("retry-after"), now=self._now()))
        return RequestRejected(told) if status in _REJECTED else ModelRefused(told)

    def _reason(self, error: "APIStatusError") -> str:
        """What the endpoint said, shortened, without our key."""
        body = error.body
        said = body.get("message") if isinstance(body, dict) else None
        if not isinstance(said, str) or not said.strip():
            return ""
        if self._secret:
            said = said.replace(self._secret, "***")
        flat = " ".join(said.split())
        return f": {flat if len(flat) <= _SHOWN else flat[:_SHOWN] + '…'}"


def name_of(url: str) -> str:
    """An endpoint's name: its URL without user, password, query and fragment.

    Raises:
        ConfigurationError: It is no URL of an endpoint.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigurationError("the URL of a model endpoint cannot be read; write http://host:8000/v1") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        shown = url if "@" not in url else "the URL of a model endpoint"
        raise ConfigurationError(f"{shown} is no HTTP URL; write http://host:8000/v1")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"


def _client(url: str, api_key: str | None, timeout_s: float) -> "AsyncOpenAI":
    try:
        from openai import AsyncOpenAI
    except ImportError:
        raise ConfigurationError("model endpoints need 'openai': pip install engramlog[engine]") from None
    return AsyncOpenAI(base_url=url, api_key=api_key or "none", timeout=timeout_s, max_retries=0)


def connected(url: str, *, api_key: str | None, timeout_s: float, key_setting: str) -> Endpoint:
    """The endpoint at a URL."""
    return OpenAiEndpoint(url, api_key=api_key, timeout_s=timeout_s, key_setting=key_setting)
