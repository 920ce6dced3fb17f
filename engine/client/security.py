"""TLS and SASL: how every client proves who it is, and makes sure of who the broker is.

One object for all clients: aiokafka takes :meth:`Security.arguments`; FastStream is given the same context, user and
token source (``consumers/security.py``).
"""

import logging
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from engramlog.engine.client.oauth import ClientCredentials, TokenFile, TokenSource
from engramlog.schemas.errors import ConfigurationError

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


@dataclass(frozen=True, slots=True)
class Security:
    """Who we are to the broker, and whom we take for it. The settings have the same names, after ``ENGRAMLOG_``.

    Attributes:
        protocol: What the listener speaks (setting ``security_protocol``): plain or TLS, with SASL or without.
        ssl_cafile: PEM file of the authorities that may have signed the broker's certificate. None: the system's.
        ssl_certfile: PEM file with our own certificate (and its chain), for brokers that ask for one.
        ssl_keyfile: PEM file with its key. None: it lies in ``ssl_certfile``.
        ssl_key_password: What the key is encrypted with.
        ssl_check_hostname: Whether the broker's certificate must name the host that we connect to.
        sasl_mechanism: How we log in.
        sasl_username: Who we are (PLAIN, SCRAM).
        sasl_password: The password (PLAIN, SCRAM).
        oauth_token_url: Token endpoint (OAUTHBEARER, client credentials grant).
        oauth_client_id: Who we are to the token endpoint.
        oauth_client_secret: The secret that goes with it.
        oauth_scope: What we ask for; None: what the endpoint gives by default.
        oauth_cafile: PEM file of the authorities of the token endpoint. None: the system's.
        oauth_token_file: A file that holds a token and that somebody else keeps fresh, instead of an endpoint.

    Raises:
        ConfigurationError: The settings contradict each other; the message names all that do.
    """

    protocol: Protocol = "PLAINTEXT"
    ssl_cafile: Path | None = None
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    sasl_mechanism: Mechanism | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    oauth_token_url: str | None = None
    oauth_client_id: str | None = None
    oauth_client_secret: str | None = field(default=None, repr=False)
    oauth_scope: str | None = None
    oauth_cafile: Path | None = None
    oauth_token_file: Path | None = None
    tokens: TokenSource | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if problems := [*_of_tls(self), *_of_sasl(self)]:
            raise ConfigurationError("; ".join(problems))
        if self.sasl_mechanism == "OAUTHBEARER":
            object.__setattr__(self, "tokens", _tokens(self))

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol in {"SSL", "SASL_SSL"}

    @property
    def sasl(self) -> bool:
        """Whether we log in."""
        return self.protocol in {"SASL_PLAINTEXT", "SASL_SSL"}

    @property
    def principal(self) -> str:
        """Who we are to the broker, as far as we know it, in the words of its ACLs."""
        if self.sasl_username:
            return f"User:{self.sasl_username}"
        return "the principal of the token or certificate" if self.sasl or self.ssl_certfile else "User:ANONYMOUS"

    def context(self) -> ssl.SSLContext | None:
        """A TLS context, from the files as they are now; None: no TLS.

        Raises:
            ConfigurationError: A file is missing or of the wrong kind, or the key's password is missing or wrong.
        """
        if not self.tls:
            return None
        context = _trusting(self.ssl_cafile, "ENGRAMLOG_SSL_CAFILE")
        context.check_hostname = self.ssl_check_hostname
        if self.ssl_certfile is not None:
            _show_certificate(context, self.ssl_certfile, self.ssl_keyfile, self.ssl_key_password)
        return context

    def arguments(self) -> dict[str, Any]:
        """Arguments of every aiokafka client.

        Raises:
            ConfigurationError: See :meth:`context`.
        """
        found: dict[str, Any] = {"security_protocol": self.protocol, "ssl_context": self.context()}
        if self.sasl:
            logging.getLogger("aiokafka.conn").addFilter(_without_logins)
            found["sasl_mechanism"] = self.sasl_mechanism
            found["sasl_plain_username"] = self.sasl_username
            found["sasl_plain_password"] = self.sasl_password
            found["sasl_oauth_token_provider"] = self.tokens
        return found


def _of_tls(given: Security) -> list[str]:
    named = {
        "ENGRAMLOG_SSL_CAFILE": given.ssl_cafile,
        "ENGRAMLOG_SSL_CERTFILE": given.ssl_certfile,
        "ENGRAMLOG_SSL_KEYFILE": given.ssl_keyfile,
        "ENGRAMLOG_SSL_KEY_PASSWORD": given.ssl_key_password,
    }
    used = [name for name, value in named.items() if value is not None]
    problems = []
    if used and not given.tls:
        wanted = "SASL_SSL" if given.sasl else "SSL"
        problems.append(
            f"{', '.join(used)} would not be used with ENGRAMLOG_SECURITY_PROTOCOL={given.protocol}, which does not "
            f"encrypt: set it to {wanted}"
        )
    if given.ssl_certfile is None and (given.ssl_keyfile is not None or given.ssl_key_password is not None):
        problems.append("ENGRAMLOG_SSL_KEYFILE and ENGRAMLOG_SSL_KEY_PASSWORD need ENGRAMLOG_SSL_CERTFILE")
    return problems


def _of_sasl(given: Security) -> list[str]:
    mechanism = given.sasl_mechanism
    if not given.sasl:
        login = {
            "ENGRAMLOG_SASL_MECHANISM": mechanism,
            "ENGRAMLOG_SASL_USERNAME": given.sasl_username,
            "ENGRAMLOG_SASL_PASSWORD": given.sasl_password,
        }
        used = [name for name, value in login.items() if value is not None]
        wanted = "SASL_SSL" if given.tls else "SASL_SSL (or SASL_PLAINTEXT)"
        says = f"would not be used with ENGRAMLOG_SECURITY_PROTOCOL={given.protocol}: set it to {wanted}"
        return [f"{', '.join(used)} {says}"] if used else []
    if mechanism is None:
        choices = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
        return [f"ENGRAMLOG_SECURITY_PROTOCOL={given.protocol} needs ENGRAMLOG_SASL_MECHANISM: {choices}"]
    if mechanism == "OAUTHBEARER":
        return _of_oauth(given)
    needed = {"ENGRAMLOG_SASL_USERNAME": given.sasl_username, "ENGRAMLOG_SASL_PASSWORD": given.sasl_password}
    return [f"ENGRAMLOG_SASL_MECHANISM={mechanism} needs {name}" for name, value in needed.items() if not value]


def _of_oauth(given: Security) -> list[str]:
    endpoint = {
        "ENGRAMLOG_OAUTH_TOKEN_URL": given.oauth_token_url,
        "ENGRAMLOG_OAUTH_CLIENT_ID": given.oauth_client_id,
        "ENGRAMLOG_OAUTH_CLIENT_SECRET": given.oauth_client_secret,
    }
    if given.oauth_token_file is not None:
        used = [name for name, value in endpoint.items() if value]
        return [f"ENGRAMLOG_OAUTH_TOKEN_FILE is set, and so is {', '.join(used)}: choose one"] if used else []
    missing = [name for name, value in endpoint.items() if not value]
    problems = []
    if missing:
        problems.append(
            f"ENGRAMLOG_SASL_MECHANISM=OAUTHBEARER needs {', '.join(missing)} (or ENGRAMLOG_OAUTH_TOKEN_FILE instead)"
        )
    if given.oauth_token_url and not given.oauth_token_url.startswith(("https://", "http://")):
        problems.append(f"ENGRAMLOG_OAUTH_TOKEN_URL={given.oauth_token_url!r} is no http(s) address")
    return problems


def _tokens(given: Security) -> TokenSource:
    if given.oauth_token_file is not None:
        return TokenFile(given.oauth_token_file)
    assert given.oauth_token_url and given.oauth_client_id and given.oauth_client_secret  # noqa: PT018 - narrows types
    return ClientCredentials(
        given.oauth_token_url,
        given.oauth_client_id,
        given.oauth_client_secret,
        scope=given.oauth_scope,
        context=lambda: _trusting(given.oauth_cafile, "ENGRAMLOG_OAUTH_CAFILE"),
    )


def _trusting(cafile: Path | None, setting: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=cafile)
    except ssl.SSLError as error:
        raise ConfigurationError(f"{setting}={cafile} holds no certificates in PEM: {error.reason or error}") from None
    except OSError as error:
        raise ConfigurationError(f"{setting}={cafile} cannot be read: {error.strerror}") from None


def _show_certificate(context: ssl.SSLContext, certfile: Path, keyfile: Path | None, password: str | None) -> None:
    asked = False

    def unlock() -> str:
        nonlocal asked
        asked = True
        return password or ""

    for file, setting in ((certfile, "ENGRAMLOG_SSL_CERTFILE"), (keyfile, "ENGRAMLOG_SSL_KEYFILE")):
        _readable(file, setting)
    try:
        context.load_cert_chain(certfile, keyfile, password=unlock)  # without a function it would ask at the terminal
    except (ssl.SSLError, ValueError) as error:
        where = f"ENGRAMLOG_SSL_KEYFILE={keyfile}" if keyfile else f"the key in ENGRAMLOG_SSL_CERTFILE={certfile}"
        if asked and not password:
            raise ConfigurationError(f"{where} is encrypted: set ENGRAMLOG_SSL_KEY_PASSWORD") from None
        if asked:
            raise ConfigurationError(f"{where} cannot be decrypted with ENGRAMLOG_SSL_KEY_PASSWORD") from None
        reason = getattr(error, "reason", None) or error
        raise ConfigurationError(
            f"ENGRAMLOG_SSL_CERTFILE={certfile} and its key ({keyfile or 'in the same file'}) do not fit together or "
            f"are not PEM: {reason}"
        ) from None


def _readable(file: Path | None, setting: str) -> None:
    if file is None:
        return
    try:
        file.open("rb").close()
    except OSError as error:
        raise ConfigurationError(f"{setting}={file} cannot be read: {error.strerror}") from None


def _without_logins(record: logging.LogRecord) -> bool:
    """At DEBUG aiokafka logs every request, the one with the password or the token too: not that one."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    return not any(type(argument).__name__.startswith("SaslAuthenticate") for argument in arguments)


PLAINTEXT = Security()
"""Neither encrypted nor logged in."""
