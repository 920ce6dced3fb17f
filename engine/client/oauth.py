"""Tokens for SASL/OAUTHBEARER: asked for at a token endpoint, or read from a file."""

import asyncio
import base64
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

_TIMEOUT_S = 10.0
_MAX_BYTES = 1_000_000
_DEFAULT_LIFE_S = 300.0
_RENEW_AT = 0.8
_CLIENT_ERRORS = range(400, 500)
_BUSY = (408, 429)


# Both are KafkaErrors, for aiokafka must survive them: anything else would end its background tasks.
class TokenRefused(KafkaError):  # type: ignore[misc]  # noqa: N818 - aiokafka is untyped; the name says what happened
    """There is no token, and asking again will not help."""


class TokenUnavailable(KafkaError):  # type: ignore[misc]  # noqa: N818 - likewise
    """The token endpoint does not answer."""

    retriable = True


class ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka is untyped
    """Tokens by the client credentials grant (RFC 6749, 4.4). One is used until 80 % of its life have passed.

    Args:
        url: The token endpoint.
        client_id: Who we are.
        client_secret: The secret that goes with it; never part of any message.
        scope: What is asked for; None: the endpoint's default.
        context: Makes the TLS context for the endpoint.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: str,
        *,
        scope: str | None,
        context: Callable[[], ssl.SSLContext],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url, self._client_id, self._client_secret = url, client_id, client_secret
        self._scope, self._context, self._clock = scope, context, clock
        self._lock = threading.Lock()  # not asyncio's: one source serves several event loops
        self._token, self._renew_at = "", 0.0

    async def token(self) -> str:
        """A token that is still valid.

        Raises:
            TokenRefused: The endpoint refuses, or does not answer as a token endpoint does.
            TokenUnavailable: The endpoint cannot be reached, or has a fault of its own.
        """
        return await asyncio.to_thread(self._current)

    def _current(self) -> str:
        with self._lock:
            if not self._token or self._clock() >= self._renew_at:
                answer = self._ask()
                self._token = answer["access_token"]
                life_s = answer.get("expires_in")
                life_s = float(life_s) if isinstance(life_s, int | float) and life_s > 0 else _DEFAULT_LIFE_S
                self._renew_at = self._clock() + _RENEW_AT * life_s
            return self._token

    def _ask(self) -> dict[str, Any]:
        form = {"grant_type": "client_credentials", **({"scope": self._scope} if self._scope else {})}
        login = ":".join(urllib.parse.quote(part, safe="") for part in (self._client_id, self._client_secret))
        request = urllib.request.Request(  # noqa: S310 - http or https: the settings are checked
            self._url,
            data=urllib.parse.urlencode(form).encode(),
            headers={
                "Authorization": f"Basic {base64.b64encode(login.encode()).decode()}",
                "Accept": "application/json",
            },
        )
        try:
            context = self._context() if self._url.startswith("https:") else None
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context) as response:  # noqa: S310 - as above
                answer = json.loads(response.read(_MAX_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error) from None
        except urllib.error.URLError as error:
            raise self._unreachable(error.reason) from None
        except (OSError, TimeoutError) as error:
            raise self._unreachable(error) from None
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("access_token"), str):
            raise TokenRefused(
                f"the token endpoint {self._url} answered without an access_token: check ENGRAMLOG_OAUTH_TOKEN_URL"
            )
        return answer

    def _refused(self, error: urllib.error.HTTPError) -> KafkaError:
        if error.code not in _CLIENT_ERRORS or error.code in _BUSY:
            return TokenUnavailable(f"the token endpoint {self._url} answered with HTTP {error.code}")
        try:
            code = str(json.loads(error.read(_MAX_BYTES))["error"])[:60]
        except (OSError, ValueError, KeyError, TypeError):
            code = "no reason given"
        return TokenRefused(
            f"the token endpoint {self._url} refuses the client {self._client_id!r}: HTTP {error.code}, {code}; check "
            "ENGRAMLOG_OAUTH_CLIENT_ID, ENGRAMLOG_OAUTH_CLIENT_SECRET and ENGRAMLOG_OAUTH_SCOPE"
        )

    def _unreachable(self, reason: object) -> KafkaError:
        if isinstance(reason, ssl.SSLCertVerificationError):
            return TokenRefused(
                f"the certificate of the token endpoint {self._url} is not trusted: {reason.verify_message}; set "
                "ENGRAMLOG_OAUTH_CAFILE to its authority"
            )
        return TokenUnavailable(f"the token endpoint {self._url} does not answer: {reason}")


class TokenFile(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka is untyped
    """A token in a file that somebody else keeps fresh (a sidecar, a projected volume); read at every login.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    async def token(self) -> str:
        """The token that is there now.

        Raises:
            TokenRefused: The file cannot be read, or is empty.
        """
        try:
            token = (await asyncio.to_thread(self._path.read_text)).strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise TokenRefused(f"ENGRAMLOG_OAUTH_TOKEN_FILE={self._path} cannot be read: {reason}") from None
        if not token:
            raise TokenRefused(f"ENGRAMLOG_OAUTH_TOKEN_FILE={self._path} is empty")
        return token


TokenSource: TypeAlias = ClientCredentials | TokenFile
