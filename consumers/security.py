"""The same TLS and login for FastStream that every other client has."""

from typing import Any

from faststream.security import BaseSecurity, SASLOAuthBearer, SASLPlaintext, SASLScram256, SASLScram512

from engramlog.engine.client import Security

_WITH_PASSWORD = {"PLAIN": SASLPlaintext, "SCRAM-SHA-256": SASLScram256, "SCRAM-SHA-512": SASLScram512}


def faststream_security(security: Security) -> dict[str, Any]:
    """Arguments of a ``KafkaBroker``; FastStream's own objects also describe the login in the AsyncAPI document.

    Raises:
        ConfigurationError: A file of the settings cannot be used.
    """
    arguments = security.arguments()  # also keeps logins out of aiokafka's log
    context, tls = arguments["ssl_context"], security.tls
    if security.sasl_mechanism is None:
        return {"security": BaseSecurity(ssl_context=context, use_ssl=tls)} if tls else {}
    if security.sasl_mechanism == "OAUTHBEARER":
        login = SASLOAuthBearer(ssl_context=context, use_ssl=tls)
        return {"security": login, "sasl_oauth_token_provider": security.tokens}
    kind = _WITH_PASSWORD[security.sasl_mechanism]
    user, password = security.sasl_username or "", security.sasl_password or ""
    return {"security": kind(username=user, password=password, ssl_context=context, use_ssl=tls)}
