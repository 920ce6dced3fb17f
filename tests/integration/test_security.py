"""TLS, SASL and ACLs on a real Apache Kafka: what works, and one clear error for each way of being wrong."""

import asyncio
import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engramlog.consumers.app import Consumers
from engramlog.engine.client import MemoryClient, MemoryRecord, Scope, Security
from engramlog.engine.client.admin import create_topics, inspect_topics
from engramlog.engine.client.oauth import ClientCredentials, TokenRefused, TokenUnavailable
from engramlog.engine.client.rights import Right, Wanted, missing_rights
from engramlog.engine.settings import Settings
from engramlog.schemas.errors import BrokerUnavailable, ConfigurationError
from tests.brokers import eventually
from tests.secure import (
    CLIENT_SECRET,
    KEY_PASSWORD,
    PASSWORDS,
    PLAIN_PASSWORD,
    REAUTH_MS,
    SecureKafka,
    TokenEndpoint,
    token_endpoint,
    unsigned_token,
)

pytestmark = pytest.mark.kafka
SECRETS = [*PASSWORDS.values(), PLAIN_PASSWORD, KEY_PASSWORD, CLIENT_SECRET, "wr0ng-5ecret"]


@dataclass
class Place:
    """Topics of a test's own on the secure broker, made by root, with the rights of the README granted."""

    kafka: SecureKafka
    prefix: str
    data_dir: Path

    def settings(self, user: str = "engine", **more: Any) -> Settings:
        given = self.kafka.settings(user, prefix=self.prefix, partitions=3, data_dir=self.data_dir, **more)
        return Settings(session_timeout_ms=6_000, **given)


@pytest_asyncio.fixture
async def place(secure_kafka: SecureKafka, tmp_path: Path) -> Place:
    made = Place(secure_kafka, f"t{uuid.uuid4().hex[:10]}", tmp_path)
    await create_topics(made.settings("root").kafka(), partitions=3)
    return made


@pytest.fixture(autouse=True)
def no_secret_anywhere(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Whatever a test did: no secret is in any log, at any level, nor in what was printed."""
    caplog.set_level(logging.DEBUG)
    yield
    said = capfd.readouterr()
    texts = (caplog.text, said.out, said.err, *(repr(record.args) for record in caplog.records))
    assert not [secret for secret in SECRETS for text in texts if secret in text]


async def _round_trip(engine: Settings, agent: Settings) -> None:
    scope = Scope("acme", "helper", session="s1")
    async with Consumers(engine), MemoryClient(agent.kafka(), timeout_s=30) as memory:
        await memory.publish(scope, MemoryRecord(role="user", content="My name is Ada."))
        window = await memory.history(scope)
    assert not window.seen.stale
    assert [entry.record.content for entry in window.records] == ["My name is Ada."]


async def test_engine_and_agent_with_just_their_rights(place: Place) -> None:
    await place.kafka.grant_roles(place.prefix)
    await _round_trip(place.settings("engine"), place.settings("agent"))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_other_passwords(place: Place, mechanism: str) -> None:
    login = {"sasl_username": "plain", "sasl_password": PLAIN_PASSWORD} if mechanism == "PLAIN" else {}
    await place.kafka.grant_roles(place.prefix, engine=login.get("sasl_username", "engine"))
    await _round_trip(place.settings(sasl_mechanism=mechanism, **login), place.settings("root"))


async def test_logins_that_end_cost_nothing(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    login = {"sasl_mechanism": "SCRAM-SHA-256"}
    await place.kafka.grant_roles(place.prefix)
    scope = Scope("acme", "helper", session="s1")
    engine, agent = place.settings("engine", **login), place.settings("agent", **login)
    said = [f"turn {n}" for n in range(30)]
    async with Consumers(engine), MemoryClient(agent.kafka(), timeout_s=30) as memory:
        for text in said:
            await memory.publish(scope, MemoryRecord(role="user", content=text))
            await asyncio.sleep(4 * REAUTH_MS / 1000 / len(said))  # the broker's clock, not ours, ends the logins
        window = await memory.history(scope)
        assert not window.seen.stale
    assert [entry.record.content for entry in window.records] == said
    logins = [r for r in caplog.records if r.getMessage() == "Authenticated as engine via SCRAM-SHA-256"]
    assert len([r for r in logins if r.created > logins[0].created + 1.5 * REAUTH_MS / 1000]) >= 3


async def test_mutual_tls_with_an_encrypted_key(place: Place) -> None:
    both = Settings(
        bootstrap_servers=place.kafka.at("MTLS"),
        prefix=place.prefix,
        data_dir=place.data_dir,
        security_protocol="SSL",
        ssl_cafile=place.kafka.authority.file,
        ssl_certfile=place.kafka.client.certificate,
        ssl_keyfile=place.kafka.client.key,
        ssl_key_password=KEY_PASSWORD,
    )
    await _round_trip(both, both)


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with token_endpoint() as found:
        yield found


def _oauth(endpoint: TokenEndpoint, **more: Any) -> dict[str, Any]:
    return {
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_username": None,
        "sasl_password": None,
        "oauth_token_url": endpoint.url,
        "oauth_client_id": "engramlog-engine",
        "oauth_client_secret": CLIENT_SECRET,
        **more,
    }


async def test_oauth_by_a_token_endpoint_which_is_asked_once(place: Place, endpoint: TokenEndpoint) -> None:
    await place.kafka.grant_roles(place.prefix, engine="oauth-user", agent="oauth-user")
    both = place.settings(**_oauth(endpoint, oauth_scope="kafka"))
    await _round_trip(both, both)
    assert (endpoint.asked, endpoint.scopes) == (1, ("kafka",))


async def test_oauth_by_a_file_that_is_read_again(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "token"
    given = {"sasl_mechanism": "OAUTHBEARER", "sasl_username": None, "sasl_password": None, "oauth_token_file": file}
    settings = place.settings(**given)
    with pytest.raises(ConfigurationError, match=r"ENGRAMLOG_OAUTH_TOKEN_FILE.*cannot be read"):
        await inspect_topics(settings.kafka())
    file.write_text(unsigned_token("nobody", life_s=-60))
    with pytest.raises(ConfigurationError, match=r"refuses the OAUTHBEARER login.*ENGRAMLOG_OAUTH_TOKEN_FILE"):
        await inspect_topics(settings.kafka())
    file.write_text(unsigned_token("oauth-user") + "\n")
    assert (await inspect_topics(settings.kafka())).cluster_id


async def test_oauth_tokens_are_renewed_before_they_expire(endpoint: TokenEndpoint) -> None:
    now = 0.0
    tokens = ClientCredentials(
        endpoint.url, "engramlog-engine", CLIENT_SECRET, scope=None, context=_no_tls, clock=lambda: now
    )
    endpoint.life_s = 100
    first = await asyncio.gather(*(tokens.token() for _ in range(10)))
    now = 79.0
    assert {await tokens.token(), *first} == {first[0]}
    now = 81.0
    await tokens.token()
    assert endpoint.asked == 2
    endpoint.fails_with, now = 503, 1000.0
    with pytest.raises(TokenUnavailable, match="HTTP 503"):
        await tokens.token()


async def test_oauth_a_wrong_secret(place: Place, endpoint: TokenEndpoint) -> None:
    settings = place.settings(**_oauth(endpoint, oauth_client_secret="wr0ng-5ecret"))
    with pytest.raises(ConfigurationError, match=r"refuses the client 'engramlog-engine': HTTP 401, invalid_client"):
        await inspect_topics(settings.kafka())
    assert settings.security.tokens is not None
    with pytest.raises(TokenRefused):
        await settings.security.tokens.token()


async def test_oauth_an_endpoint_that_is_away_may_come_back(place: Place) -> None:
    with token_endpoint() as gone:
        pass
    settings = place.settings(**_oauth(gone))
    with pytest.raises(BrokerUnavailable, match=r"token endpoint .* does not answer"):
        await inspect_topics(settings.kafka())


def _no_tls() -> Any:
    raise AssertionError


def _change(**more: Any) -> Callable[[SecureKafka], dict[str, Any]]:
    return lambda kafka: kafka.settings("engine", **more)


def _listener(name: str, **more: Any) -> Callable[[SecureKafka], dict[str, Any]]:
    return lambda kafka: kafka.settings("engine", bootstrap_servers=kafka.at(name), **more)


_NO_LOGIN = {"sasl_mechanism": None, "sasl_username": None, "sasl_password": None}
_NO_TLS = {"ssl_cafile": None}
_OPEN = {**_NO_LOGIN, **_NO_TLS, "security_protocol": "PLAINTEXT"}

REFUSALS: dict[str, tuple[Callable[[SecureKafka], dict[str, Any]], str]] = {
    "wrong password": (
        _change(sasl_password="wr0ng-5ecret"),
        r"refuses the SCRAM-SHA-512 login of engine: check ENGRAMLOG_SASL_USERNAME, ENGRAMLOG_SASL_PASSWORD",
    ),
    "wrong password, PLAIN": (
        _change(sasl_mechanism="PLAIN", sasl_password="wr0ng-5ecret"),
        r"refuses the PLAIN login of engine: check",
    ),
    "unknown user": (_change(sasl_username="nobody"), r"refuses the SCRAM-SHA-512 login of nobody: check"),
    "mechanism that is not enabled": (
        _listener("CLEAR", security_protocol="SASL_PLAINTEXT", ssl_cafile=None, sasl_mechanism="SCRAM-SHA-256"),
        r"does not offer SCRAM-SHA-256 .*ENGRAMLOG_SASL_MECHANISM",
    ),
    "expired certificate": (_listener("EXPIRED"), r"broker's certificate has expired"),
    "certificate of another host": (_listener("MISNAMED"), r"for another host.*ENGRAMLOG_BOOTSTRAP_SERVERS"),
    "unknown authority": (
        lambda kafka: kafka.settings("engine", ssl_cafile=kafka.stranger.file),
        r"authority that signed .* not known .*ENGRAMLOG_SSL_CAFILE.*unknown-authority",
    ),
    "no authority": (_change(ssl_cafile=None), r"not known .*ENGRAMLOG_SSL_CAFILE .*system's"),
    "plaintext to a TLS port": (_change(**_OPEN), r"this port speaks TLS.*ENGRAMLOG_SECURITY_PROTOCOL=SSL"),
    "SASL in the clear to a TLS port": (
        _change(security_protocol="SASL_PLAINTEXT", **_NO_TLS),
        r"this port speaks TLS: set ENGRAMLOG_SECURITY_PROTOCOL=SASL_SSL",
    ),
    "TLS to a plaintext port": (_listener("CLEAR"), r"speaks no TLS: set ENGRAMLOG_SECURITY_PROTOCOL=SASL_PLAINTEXT"),
    "no login where one is wanted": (
        _change(security_protocol="SSL", **_NO_LOGIN),
        r"wants a login .*ENGRAMLOG_SECURITY_PROTOCOL=SASL_SSL",
    ),
    "no login where one is wanted, in the clear": (
        _listener("CLEAR", **_OPEN),
        r"wants a login .*ENGRAMLOG_SECURITY_PROTOCOL=SASL_PLAINTEXT",
    ),
    "login where none is wanted": (
        _listener("PLAINTEXT", security_protocol="SASL_PLAINTEXT", **_NO_TLS),
        r"takes no login: set ENGRAMLOG_SECURITY_PROTOCOL=PLAINTEXT",
    ),
    "no client certificate": (
        _listener("MTLS", security_protocol="SSL", **_NO_LOGIN),
        r"wants a client certificate: set ENGRAMLOG_SSL_CERTFILE",
    ),
    "a CA file that is not there": (_change(ssl_cafile=Path("/no/such.pem")), r"ENGRAMLOG_SSL_CAFILE=/no/such.pem.*No"),
    "a key whose password is missing": (
        lambda kafka: kafka.settings("engine", ssl_certfile=kafka.client.certificate, ssl_keyfile=kafka.client.key),
        r"is encrypted: set ENGRAMLOG_SSL_KEY_PASSWORD",
    ),
    "a key whose password is wrong": (
        lambda kafka: kafka.settings(
            "engine",
            ssl_certfile=kafka.client.certificate,
            ssl_keyfile=kafka.client.key,
            ssl_key_password="wr0ng-5ecret",
        ),
        r"cannot be decrypted with ENGRAMLOG_SSL_KEY_PASSWORD",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_refusal_is_one_clear_error_and_no_retry(
    secure_kafka: SecureKafka, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    change, says = REFUSALS[case]
    settings = Settings(**change(secure_kafka))
    async with asyncio.timeout(20):
        with pytest.raises(ConfigurationError, match=says):
            await inspect_topics(settings.kafka())
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING and "in the clear" not in r.getMessage()]


@pytest.mark.parametrize("case", ["wrong password", "expired certificate", "plaintext to a TLS port"])
async def test_a_client_is_refused_as_well(secure_kafka: SecureKafka, case: str) -> None:
    change, says = REFUSALS[case]
    settings = Settings(**change(secure_kafka))
    async with MemoryClient(settings.kafka(), timeout_s=20) as memory:
        with pytest.raises(ConfigurationError, match=says):
            await memory.publish(Scope("acme", "helper"), MemoryRecord(role="user", content="hello"))


async def test_the_host_name_can_be_left_unchecked(secure_kafka: SecureKafka) -> None:
    settings = Settings(**_listener("MISNAMED", ssl_check_hostname=False)(secure_kafka))
    assert (await inspect_topics(settings.kafka())).cluster_id


Granting = Callable[[Place], Awaitable[None]]


async def _only_describe(place: Place) -> None:
    await place.kafka.grant("engine", "topic", f"{place.prefix}.", Right.DESCRIBE, 10, prefixed=True)
    await place.kafka.grant("engine", "group", f"{place.prefix}.", Right.DESCRIBE, prefixed=True)


async def _no_group(place: Place) -> None:
    await place.kafka.grant("engine", "topic", f"{place.prefix}.", Right.READ, Right.WRITE, 10, prefixed=True)


async def _no_configs(place: Place) -> None:
    await place.kafka.grant("engine", "topic", f"{place.prefix}.", Right.READ, Right.WRITE, prefixed=True)
    await place.kafka.grant("engine", "group", f"{place.prefix}.", Right.READ, prefixed=True)


async def _nothing(_place: Place) -> None:
    pass


@pytest.mark.parametrize(
    ("granted", "says"),
    [
        (_nothing, r"User:engine must not see the topic '.*\.records'"),
        (_only_describe, r"User:engine needs Read on the topic .*Write on the topic .*Read on the group '.*\.store'"),
        (_no_group, r"User:engine needs Read on the group '.*\.answer' .*kafka-acls.sh --add"),
        (_no_configs, r"must not see how the topic '.*\.records' is configured \(grant DescribeConfigs\)"),
    ],
)
async def test_consumers_do_not_start_without_their_rights(place: Place, granted: Granting, says: str) -> None:
    await granted(place)
    with pytest.raises(ConfigurationError, match=says):
        async with Consumers(place.settings("engine")):
            raise AssertionError


async def test_topics_are_not_created_without_the_right(secure_kafka: SecureKafka) -> None:
    settings = Settings(**secure_kafka.settings("stranger"), prefix=f"t{uuid.uuid4().hex[:10]}")
    with pytest.raises(ConfigurationError, match=r"forbid creating '.*': grant User:stranger Create"):
        await create_topics(settings.kafka(), partitions=1)


async def test_who_may_create_topics_creates_them(secure_kafka: SecureKafka) -> None:
    settings = Settings(**secure_kafka.settings("stranger"), prefix=f"t{uuid.uuid4().hex[:10]}", partitions=2)
    create, rest = 5, (Right.DESCRIBE, Right.DESCRIBE_CONFIGS)
    await secure_kafka.grant("stranger", "topic", f"{settings.prefix}.", create, *rest, prefixed=True)
    created = await create_topics(settings.kafka(), topics=settings.topics(), replication=1, min_insync_replicas=1)
    cluster = (await inspect_topics(settings.kafka(), topics=settings.topics())).require()
    assert [state.spec.name for state in cluster.states] == created
    assert {(state.partitions, state.replication) for state in cluster.states} == {(2, 1)}
    assert [state.remarks for state in cluster.states if state.remarks] == []


async def test_rights_are_told_one_by_one(place: Place) -> None:
    await place.kafka.grant("stranger", "topic", f"{place.prefix}.records", Right.READ)
    topic = f"{place.prefix}.records"
    wanted = Wanted(reads=(topic,), writes=(topic,), groups=(f"{place.prefix}.store",))
    missing = await missing_rights(place.settings("stranger").kafka(), wanted)
    assert [line.partition(" (")[0] for line in missing] == [
        f"User:stranger needs Write on the topic '{topic}'",
        f"User:stranger needs Read on the group '{place.prefix}.store'",
    ]
    assert await missing_rights(place.settings("root").kafka(), wanted) == []


async def test_an_agent_that_must_not_write_is_told_so(place: Place) -> None:
    await place.kafka.grant("stranger", "topic", f"{place.prefix}.", Right.DESCRIBE, prefixed=True)
    async with MemoryClient(place.settings("stranger").kafka(), timeout_s=20) as memory:
        with pytest.raises(ConfigurationError, match="ACLs forbid it: User:stranger has not the right"):
            await memory.publish(Scope("acme", "helper"), MemoryRecord(role="user", content="hello"))


async def test_an_agent_that_must_not_read_replies_is_told_so(place: Place) -> None:
    for topic in ("records", "queries"):
        await place.kafka.grant("stranger", "topic", f"{place.prefix}.{topic}", Right.WRITE)
    await place.kafka.grant("stranger", "topic", f"{place.prefix}.replies", Right.DESCRIBE)
    await place.kafka.grant_roles(place.prefix)
    async with Consumers(place.settings("engine")), MemoryClient(place.settings("stranger").kafka()) as memory:
        with pytest.raises(ConfigurationError, match=r"ACLs forbid it: User:stranger .* the topic .*\.replies"):
            await memory.history(Scope("acme", "helper"))


@pytest.mark.parametrize("kind", ["topic", "group"])
async def test_a_right_that_is_lost_at_run_time_is_told_once_and_everything_recovers(
    place: Place, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = {"topic": f"{place.prefix}.records", "group": f"{place.prefix}.store"}[kind]
    await place.kafka.grant("engine", "topic", f"{place.prefix}.d", Right.WRITE, prefixed=True)
    await place.kafka.grant("engine", "topic", f"{place.prefix}.records", Right.READ, Right.DESCRIBE_CONFIGS)
    for topic in ("derived.g1", "summaries"):
        await place.kafka.grant("engine", "topic", f"{place.prefix}.{topic}", Right.READ, Right.DESCRIBE_CONFIGS)
    await place.kafka.grant("engine", "group", f"{place.prefix}.store", Right.READ)
    for topic in ("queries", "replies", "inbox"):
        await place.kafka.grant("engine", "topic", f"{place.prefix}.{topic}", Right.DESCRIBE)
    scope = Scope("acme", "helper")
    async with (
        Consumers(place.settings("engine"), ["store"]) as running,
        MemoryClient(place.settings("root").kafka()) as memory,
    ):
        await memory.publish(scope, MemoryRecord(role="user", content="before"))
        await _stored(running, 1)
        await place.kafka.revoke("engine", kind, name)
        await memory.publish(scope, MemoryRecord(role="user", content="meanwhile"))
        await eventually(_said(caplog, f"User:engine has not the right .*{name}"))
        await asyncio.sleep(6)  # FastStream tries again after 5 s: nothing more is said
        told = [r for r in caplog.records if r.name == "engramlog.faststream" and "ACLs" in r.getMessage()]
        assert len(told) == 1
        assert not [r for r in caplog.records if r.exc_info and r.levelno > logging.DEBUG]
        await place.kafka.grant("engine", kind, name, Right.READ)
        await _stored(running, 2)


def _said(caplog: pytest.LogCaptureFixture, pattern: str) -> Callable[[], Awaitable[bool]]:
    async def said() -> bool:
        return any(re.search(pattern, r.getMessage()) for r in caplog.records if r.levelno >= logging.WARNING)

    return said


async def _stored(running: Consumers, count: int) -> None:
    async def stored() -> bool:
        assert running._history is not None
        return sum(checkpoint.next for checkpoint in await running._history.checkpoints()) >= count

    await eventually(stored)


def test_no_repr_shows_a_secret(secure_kafka: SecureKafka) -> None:
    settings = Settings(
        **secure_kafka.settings(
            "engine",
            ssl_certfile=secure_kafka.client.certificate,
            ssl_key_password=KEY_PASSWORD,
            history_url=f"postgresql://ada:{PLAIN_PASSWORD}@db/memory",
        )
    )
    oauth = Security(
        "SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        oauth_token_url="https://x",
        oauth_client_id="c",
        oauth_client_secret=CLIENT_SECRET,
    )
    shown = f"{settings!r} {settings} {settings.kafka()!r} {settings.security!r} {oauth!r} {oauth.tokens!r}"
    assert not [secret for secret in SECRETS if secret in shown]
