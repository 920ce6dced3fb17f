"""Reaching the broker once, as every client will, to learn the reason where that fails.

aiokafka's clients log why a connection fails and raise something that no longer says it. So each of ours connects once
by itself before it starts one: a refusal is told at once, in words that name the setting to change.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

from aiokafka.conn import AIOKafkaConnection, collect_hosts
from aiokafka.errors import KafkaConnectionError, KafkaError, SaslAuthenticationFailed
from aiokafka.protocol.metadata import MetadataRequest

from engramlog.engine.client.connection import KafkaConfig, unavailable
from engramlog.engine.client.refusals import refusal, speaks_plaintext, speaks_tls, wants_login
from engramlog.schemas.errors import BrokerUnavailable, ConfigurationError, EngramlogError

_SECOND_LOOK_S = 3.0


async def reach(config: KafkaConfig, doing: str) -> tuple[str, int]:
    """Connect to one of the bootstrap servers, log in, and ask for the cluster's brokers.

    Returns:
        Host and port of the one that answered.

    Raises:
        ConfigurationError: The broker or we refuse: TLS, login or addresses do not fit.
        BrokerUnavailable: None of the bootstrap servers answers.
    """
    arguments = config.connection()
    failures: list[EngramlogError] = []
    for host, port, _ in collect_hosts(config.bootstrap_servers.split(","), randomize=False):
        try:
            await _greet(config, host, port, arguments, doing)
        except EngramlogError as error:
            failures.append(error)
        else:
            return host, port
    raise next((f for f in failures if isinstance(f, ConfigurationError)), failures[0])


async def _greet(config: KafkaConfig, host: str, port: int, arguments: dict[str, Any], doing: str) -> None:
    where = f"Kafka at {host}:{port}"
    greeted = False
    try:
        async with connection(host, port, arguments) as found:
            greeted = True
            answer = await found.send(MetadataRequest([]))
            if not answer.brokers and config.security.tokens is not None:
                # A refused token is a challenge, which aiokafka takes for success; then Kafka answers with nothing.
                raise SaslAuthenticationFailed
    except (KafkaError, OSError, TimeoutError) as error:
        why = refusal(config.security, error) or await _second_look(config, host, port, error, greeted=greeted)
        if why is not None:
            raise ConfigurationError(f"{where}: {why} ({doing})") from error
        raise BrokerUnavailable(unavailable(where, doing, error)) from error


async def _second_look(config: KafkaConfig, host: str, port: int, error: BaseException, *, greeted: bool) -> str | None:
    """What a broken connection does not say by itself: whether the port speaks another protocol than we do."""
    security = config.security
    if greeted:  # it told its versions, and then hung up on the first request
        return wants_login(security) if isinstance(error, KafkaConnectionError) and not security.sasl else None
    if isinstance(error, ConnectionRefusedError):
        return None
    if security.tls:
        return speaks_plaintext(security) if await _is_kafka(host, port) else None
    return speaks_tls(security) if await _is_tls(host, port) else None


async def _is_kafka(host: str, port: int) -> bool:
    plain = {"security_protocol": "PLAINTEXT", "request_timeout_ms": int(_SECOND_LOOK_S * 1000)}
    try:
        async with connection(host, port, plain):
            return True
    except (KafkaError, OSError, TimeoutError):
        return False


async def _is_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent: it is only asked whether
    try:
        async with asyncio.timeout(_SECOND_LOOK_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        await asyncio.wait_for(writer.wait_closed(), _SECOND_LOOK_S)
    return True


@contextlib.asynccontextmanager
async def connection(host: str, port: int, arguments: dict[str, Any]) -> AsyncIterator[AIOKafkaConnection]:
    """A single connection, logged in; closed, and waited for, at the end."""
    made = AIOKafkaConnection(host, port, **arguments)
    try:
        await made.connect()
        yield made
    finally:
        closed = made.close()
        if made._protocol is not None and closed is not None:  # noqa: SLF001 - else nobody will say it is closed
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(asyncio.shield(closed), _SECOND_LOOK_S)
