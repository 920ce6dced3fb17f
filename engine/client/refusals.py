"""What Kafka's refusals mean, and which setting mends them: none of these gets better by trying again."""

import ssl
from collections.abc import Mapping

from aiokafka import errors as kafka

from engramlog.engine.client.oauth import TokenRefused
from engramlog.engine.client.security import Security

_EXPIRED, _NOT_YET = 10, 9
_UNKNOWN_CA = (2, 18, 19, 20, 21)
_WRONG_NAME = (62, 64)
_NO_CERTIFICATE = "it wants a client certificate: set ENGRAMLOG_SSL_CERTFILE and ENGRAMLOG_SSL_KEYFILE"
_ALERTS: Mapping[str, str] = {
    "CERTIFICATE_REQUIRED": _NO_CERTIFICATE,
    "CERTIFICATE_EXPIRED": "our certificate has expired: renew ENGRAMLOG_SSL_CERTFILE",
    "UNKNOWN_CA": "it does not trust the authority of our certificate: another ENGRAMLOG_SSL_CERTFILE is needed",
    "BAD_CERTIFICATE": "it does not accept our certificate: set ENGRAMLOG_SSL_CERTFILE to one that it trusts",
    "CERTIFICATE_UNKNOWN": "it does not accept our certificate (expired, or of an unknown authority): renew "
    "ENGRAMLOG_SSL_CERTFILE",
    "HANDSHAKE_FAILURE": "there is no TLS version, cipher or certificate that both accept: see the broker's log",
}
_FORBIDDEN: Mapping[type[kafka.KafkaError], str] = {
    kafka.TopicAuthorizationFailedError: "the topic",
    kafka.GroupAuthorizationFailedError: "the consumer group",
    kafka.ClusterAuthorizationFailedError: "the cluster",
    kafka.TransactionalIdAuthorizationFailed: "the transactional id",
    kafka.DelegationTokenAuthorizationFailed: "the delegation token",
}
_LOGIN = (
    kafka.SaslAuthenticationFailed,
    kafka.AuthenticationFailedError,
    kafka.AuthenticationMethodNotSupported,
    kafka.UnsupportedSaslMechanismError,
    kafka.IllegalSaslStateError,
)


def refusal(security: Security, error: BaseException) -> str | None:
    """Why the broker (or we) refused, and what to change; None: it is no refusal, and may pass.

    Looks at what caused the error, too: aiokafka wraps the reason of a lost connection.
    """
    seen: BaseException | None = error
    while seen is not None:
        for explain in (_login, _forbidden, _tls):
            if (found := explain(security, seen)) is not None:
                return found
        seen = seen.__cause__
    return None


def is_forbidden(error: BaseException) -> bool:
    """Whether it is the ACLs that refuse."""
    return isinstance(error, tuple(_FORBIDDEN))


def _login(security: Security, error: BaseException) -> str | None:
    if isinstance(error, TokenRefused):
        return _text(error)
    if not isinstance(error, _LOGIN):
        return None
    who = f"{security.sasl_mechanism or 'SASL'} login of {security.sasl_username or 'this client'}"
    if isinstance(error, kafka.UnsupportedSaslMechanismError):
        return (
            f"the broker does not offer {security.sasl_mechanism} at this listener: set ENGRAMLOG_SASL_MECHANISM to "
            "one that it has enabled (sasl.enabled.mechanisms)"
        )
    if isinstance(error, kafka.IllegalSaslStateError):
        wanted = "SSL" if security.tls else "PLAINTEXT"
        return f"this listener takes no login: set ENGRAMLOG_SECURITY_PROTOCOL={wanted}, or use a SASL listener's port"
    if isinstance(error, kafka.SaslAuthenticationFailed):
        settings = (
            "ENGRAMLOG_OAUTH_TOKEN_URL, its scope, or ENGRAMLOG_OAUTH_TOKEN_FILE"
            if security.tokens is not None
            else "ENGRAMLOG_SASL_USERNAME, ENGRAMLOG_SASL_PASSWORD and ENGRAMLOG_SASL_MECHANISM"
        )
        return f"the broker refuses the {who}: check {settings}"
    return f"the broker refuses the {who} ({type(error).__name__}): check ENGRAMLOG_SASL_MECHANISM"


def _forbidden(security: Security, error: BaseException) -> str | None:
    what = next((what for kind, what in _FORBIDDEN.items() if isinstance(error, kind)), None)
    if what is None:
        return None
    named = _text(error)
    return (
        f"Kafka's ACLs forbid it: {security.principal} has not the right to use {what}{f' {named}' if named else ''}; "
        "grant it (kafka-acls.sh; the README lists what each role needs), or log in as another user"
    )


def _tls(security: Security, error: BaseException) -> str | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _untrusted(security, error)
    if not isinstance(error, ssl.SSLError):
        return None
    reason = error.reason or ""
    if "WRONG_VERSION_NUMBER" in reason or "HTTP_REQUEST" in reason:
        return speaks_plaintext(security)
    if security.ssl_certfile is None and "ALERT" in reason and ("CERTIFICATE" in reason or "HANDSHAKE" in reason):
        return f"the broker ended the TLS handshake: {_NO_CERTIFICATE}"
    told = next((text for alert, text in _ALERTS.items() if alert in reason and "ALERT" in reason), None)
    return f"the broker ended the TLS handshake: {told}" if told else None


def _untrusted(security: Security, error: ssl.SSLCertVerificationError) -> str:
    said = error.verify_message
    if error.verify_code == _EXPIRED:
        return (
            f"the broker's certificate has expired ({said}): renew it on the broker (or correct this machine's clock)"
        )
    if error.verify_code == _NOT_YET:
        return f"the broker's certificate is not valid yet ({said}): correct this machine's clock"
    if error.verify_code in _WRONG_NAME:
        return (
            f"the broker's certificate is for another host ({said}): use a name of the certificate in "
            "ENGRAMLOG_BOOTSTRAP_SERVERS and in the broker's advertised.listeners (or, where the network is trusted, "
            "ENGRAMLOG_SSL_CHECK_HOSTNAME=false)"
        )
    if error.verify_code in _UNKNOWN_CA:
        now = security.ssl_cafile or "not set: the system's authorities count"
        return (
            f"the authority that signed the broker's certificate is not known ({said}): set ENGRAMLOG_SSL_CAFILE to "
            f"its certificate ({now})"
        )
    return f"the broker's certificate is not accepted ({said}): see ENGRAMLOG_SSL_CAFILE"


def speaks_plaintext(security: Security) -> str:
    """A TLS client at a listener without TLS."""
    wanted = "SASL_PLAINTEXT" if security.sasl else "PLAINTEXT"
    return (
        f"this port speaks no TLS: set ENGRAMLOG_SECURITY_PROTOCOL={wanted}, or use the port of the broker's TLS "
        "listener"
    )


def speaks_tls(security: Security) -> str:
    """A client without TLS at a TLS listener."""
    wanted = "SASL_SSL" if security.sasl else "SSL (or SASL_SSL, with ENGRAMLOG_SASL_MECHANISM)"
    return f"this port speaks TLS: set ENGRAMLOG_SECURITY_PROTOCOL={wanted}"


def wants_login(security: Security) -> str:
    """A client without SASL at a SASL listener."""
    wanted = "SASL_SSL" if security.tls else "SASL_PLAINTEXT"
    return (
        f"the broker wants a login and closed the connection: set ENGRAMLOG_SECURITY_PROTOCOL={wanted}, "
        "ENGRAMLOG_SASL_MECHANISM, ENGRAMLOG_SASL_USERNAME and ENGRAMLOG_SASL_PASSWORD"
    )


def _text(error: BaseException) -> str:
    """What an error was given, without aiokafka's number and name in front."""
    return ", ".join(str(getattr(argument, "topic", argument)) for argument in error.args)
