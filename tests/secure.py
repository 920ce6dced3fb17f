"""A real Apache Kafka with TLS, SASL and ACLs, and everybody's certificates: made anew for each test session."""

import datetime as dt
import ipaddress
import json
import threading
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int8, Int16, Int32, Schema, String
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from engramlog.deploy.local_kafka import LocalKafka, LocalKafkaError
from engramlog.deploy.local_kafka.readiness import free_port
from engramlog.engine.client.rights import Right
from tests.brokers import IN_CI

HOST = "127.0.0.1"
PASSWORDS = {"root": "r00t-5ecret", "engine": "eng1ne-5ecret", "agent": "ag3nt-5ecret", "stranger": "str4nger-5ecret"}
"""root may do everything; engine and agent what the README says of them; stranger nothing."""
PLAIN_PASSWORD = "pl4in-5ecret"
REAUTH_MS = 2_000
KEY_PASSWORD = "k3y-5ecret"
CLIENT_SECRET = "0auth/5ecret+"
_JAAS = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Signed:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """A certificate authority of our own."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        now = dt.datetime.now(dt.UTC)
        public = self._key.public_key()
        self._certificate = (
            x509.CertificateBuilder(self._name, self._name, public, x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=30))
            .not_valid_after(now + dt.timedelta(days=300))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(self._certificate))

    def sign(self, name: str, *, hosts: Sequence[str] = (), expired: bool = False, password: str = "") -> Signed:
        """A certificate for a name; `hosts` are names and addresses that it is for."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = dt.datetime.now(dt.UTC)
        names = [x509.IPAddress(ipaddress.ip_address(h)) if h[0].isdigit() else x509.DNSName(h) for h in hosts]
        builder = (
            x509.CertificateBuilder(
                self._name,
                x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
                key.public_key(),
                x509.random_serial_number(),
            )
            .not_valid_before(now - dt.timedelta(days=20))
            .not_valid_after(now + dt.timedelta(days=-1 if expired else 200))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = _pem(builder.sign(self._key, hashes.SHA256()))
        lock = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
        files = [self._folder / f"{name}{end}" for end in (".crt", ".key", ".both.pem")]
        for file, content in zip(files, (certificate, private, private + certificate), strict=True):
            file.write_bytes(content)
        return Signed(*files)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


@dataclass
class SecureKafka:
    """The broker, its listeners and the files that clients need.

    Attributes:
        ports: By listener: PLAINTEXT (super user, for set-up), SECURE (SASL_SSL), CLEAR (SASL_PLAINTEXT), MTLS (SSL
            with client certificates), EXPIRED and MISNAMED (SASL_SSL with such a certificate).
        authority: Who signed everything.
        stranger: An authority that nobody trusts.
        client: A client certificate, CN=machine, with an encrypted key.
    """

    folder: Path
    ports: dict[str, int]
    authority: Authority
    stranger: Authority
    client: Signed

    def at(self, listener: str = "SECURE") -> str:
        """Bootstrap servers of a listener."""
        return f"{HOST}:{self.ports[listener]}"

    def settings(self, user: str = "engine", **more: Any) -> dict[str, Any]:
        """Settings for a user with TLS and SCRAM-SHA-512."""
        return {
            "bootstrap_servers": self.at(),
            "security_protocol": "SASL_SSL",
            "ssl_cafile": self.authority.file,
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": user,
            "sasl_password": PASSWORDS[user],
            **more,
        }

    async def grant(self, user: str, kind: str, name: str, *operations: int, prefixed: bool = False) -> None:
        """Allow a user something on a topic, group or cluster."""
        pattern = 4 if prefixed else 3
        acls = [(_KINDS[kind], name, pattern, f"User:{user}", "*", operation, 3) for operation in operations]
        answer = await self._ask(_CreateAcls(acls))
        for code, message in answer.results:
            if code:
                raise for_code(code)(message)

    async def revoke(self, user: str, kind: str, name: str) -> None:
        """Take back everything that was granted to a user on that name."""
        await self._ask(_DeleteAcls([(_KINDS[kind], name, _ANY, f"User:{user}", None, _ANY, _ANY)]))

    async def _ask(self, request: Any) -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.at("PLAINTEXT"))
        await admin.start()
        try:
            return await admin._client.send(admin._client.get_random_node(), request)
        finally:
            await admin.close()

    async def grant_roles(self, prefix: str, *, engine: str = "engine", agent: str = "agent") -> None:
        """What the README's table says of the engine and of agents, for the topics of a prefix."""
        read, write, configs = Right.READ, Right.WRITE, Right.DESCRIBE_CONFIGS
        await self.grant(engine, "topic", f"{prefix}.", read, write, configs, prefixed=True)
        await self.grant(engine, "group", f"{prefix}.", read, prefixed=True)
        for topic in ("records", "queries"):
            await self.grant(agent, "topic", f"{prefix}.{topic}", write)
        await self.grant(agent, "topic", f"{prefix}.replies", read)


_ANY = 1
_KINDS = {"topic": 2, "group": 3, "cluster": 4}
_TEXT = String("utf-8")


class _CreateAclsResponse(Response):
    API_KEY = 30
    API_VERSION = 1
    SCHEMA = Schema(("throttle_time_ms", Int32), ("results", Array(("error_code", Int16), ("error_message", _TEXT))))


class _CreateAclsStruct(RequestStruct):
    API_KEY = 30
    API_VERSION = 1
    RESPONSE_TYPE = _CreateAclsResponse
    SCHEMA = Schema(
        (
            "creations",
            Array(
                ("resource_type", Int8),
                ("resource_name", _TEXT),
                ("pattern_type", Int8),
                ("principal", _TEXT),
                ("host", _TEXT),
                ("operation", Int8),
                ("permission", Int8),
            ),
        )
    )


class _CreateAcls(Request[_CreateAclsStruct]):
    API_KEY = 30

    def __init__(self, acls: list[Any]) -> None:
        self._acls = acls

    def build(self, request_struct_class: type[_CreateAclsStruct]) -> _CreateAclsStruct:
        return request_struct_class(self._acls)


class _DeleteAclsResponse(Response):
    API_KEY = 31
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "results",
            Array(
                ("error_code", Int16),
                ("error_message", _TEXT),
                (
                    "matching",
                    Array(
                        ("error_code", Int16),
                        ("error_message", _TEXT),
                        ("resource_type", Int8),
                        ("resource_name", _TEXT),
                        ("pattern_type", Int8),
                        ("principal", _TEXT),
                        ("host", _TEXT),
                        ("operation", Int8),
                        ("permission", Int8),
                    ),
                ),
            ),
        ),
    )


class _DeleteAclsStruct(RequestStruct):
    API_KEY = 31
    API_VERSION = 1
    RESPONSE_TYPE = _DeleteAclsResponse
    SCHEMA = _CreateAclsStruct.SCHEMA


class _DeleteAcls(Request[_DeleteAclsStruct]):
    API_KEY = 31

    def __init__(self, filters: list[Any]) -> None:
        self._filters = filters

    def build(self, request_struct_class: type[_DeleteAclsStruct]) -> _DeleteAclsStruct:
        return request_struct_class(self._filters)


def _overrides(
    ports: dict[str, int], authority: Authority, broker: Signed, expired: Signed, misnamed: Signed
) -> dict[str, str]:
    listeners = {name: port for name, port in ports.items() if name != "CONTROLLER"}
    users = f'user_plain="{PLAIN_PASSWORD}"'
    scram = f"{_JAAS}.scram.ScramLoginModule required;"
    oauth = f"{_JAAS}.oauthbearer"
    found = {
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items()),
        "controller.quorum.bootstrap.servers": f"{HOST}:{ports['CONTROLLER']}",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CLEAR:SASL_PLAINTEXT,MTLS:SSL,EXPIRED:SASL_SSL,"
            "MISNAMED:SASL_SSL"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:root;User:CN=machine",
        "allow.everyone.if.no.acl.found": "false",
        "connection.failed.authentication.delay.ms": "10",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(broker.both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
        "listener.name.mtls.ssl.client.auth": "required",
    }
    for listener, signed in (("expired", expired), ("misnamed", misnamed)):
        found[f"listener.name.{listener}.ssl.keystore.type"] = "PEM"
        found[f"listener.name.{listener}.ssl.keystore.location"] = str(signed.both)
    for listener in ("secure", "clear", "expired", "misnamed"):
        found[f"listener.name.{listener}.sasl.enabled.mechanisms"] = "SCRAM-SHA-512"
        found[f"listener.name.{listener}.scram-sha-512.sasl.jaas.config"] = scram
    found |= {
        "listener.name.secure.sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,OAUTHBEARER",
        "listener.name.secure.scram-sha-256.sasl.jaas.config": scram,
        # Logins by SCRAM-SHA-256 end after so long; aiokafka cannot log in again on the same connection.
        "listener.name.secure.scram-sha-256.connections.max.reauth.ms": str(REAUTH_MS),
        "listener.name.secure.plain.sasl.jaas.config": f"{_JAAS}.plain.PlainLoginModule required {users};",
        "listener.name.secure.oauthbearer.sasl.jaas.config": (
            f'{oauth}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        ),
        "listener.name.secure.oauthbearer.sasl.server.callback.handler.class": (
            f"{oauth}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
        ),
    }
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def secure_kafka(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SecureKafka]:
    """A real Apache Kafka with TLS, SASL and ACLs."""
    folder = tmp_path_factory.mktemp("secure")
    authority = Authority(folder, "authority")
    broker = authority.sign("broker", hosts=[HOST, "localhost"])
    expired = authority.sign("expired", hosts=[HOST], expired=True)
    misnamed = authority.sign("misnamed", hosts=["elsewhere.example"])
    names = ("PLAINTEXT", "SECURE", "CLEAR", "MTLS", "EXPIRED", "MISNAMED", "CONTROLLER")
    ports = {name: free_port() for name in names}
    users = [
        f"SCRAM-SHA-{size}=[name={user},password={password}]"
        for user, password in PASSWORDS.items()
        for size in (256, 512)
    ]
    kafka = LocalKafka(
        data_dir=folder / "kafka",
        port=ports["PLAINTEXT"],
        overrides=_overrides(ports, authority, broker, expired, misnamed),
        format_options=[word for user in users for word in ("--add-scram", user)],
    )
    try:
        await kafka.start()
    except LocalKafkaError as error:
        if IN_CI:
            raise
        pytest.skip(f"no Apache Kafka: {error}")
    try:
        client = authority.sign("machine", password=KEY_PASSWORD)
        yield SecureKafka(folder, ports, authority, Authority(folder, "unknown-authority"), client)
    finally:
        await kafka.stop()


@dataclass
class TokenEndpoint:
    """An OAuth token endpoint that signs nothing: Kafka's test validator takes such tokens.

    Attributes:
        url: Where it is.
        asked: How often it was asked.
        scopes: What was asked for.
        life_s: What it says of the life of its tokens.
    """

    url: str = ""
    asked: int = 0
    life_s: int = 3600
    scopes: tuple[str, ...] = ()
    fails_with: int = 0

    def answer(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        """The answer to a request."""
        self.asked += 1
        self.scopes += tuple(form.get("scope", []))
        if self.fails_with:
            return self.fails_with, {"error": "temporarily_unavailable"}
        # RFC 6749, 2.3.1: both parts are form-encoded before they are joined
        if authorization != _basic("engramlog-engine", "0auth%2F5ecret%2B"):
            return 401, {"error": "invalid_client", "error_description": f"not {authorization}"}
        return 200, {"access_token": unsigned_token("oauth-user", self.life_s), "expires_in": self.life_s}


def _basic(user: str, password: str) -> str:
    from base64 import b64encode

    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def unsigned_token(subject: str, life_s: int = 3600) -> str:
    """A JWS without a signature."""
    now = dt.datetime.now(dt.UTC).timestamp()
    parts: list[dict[str, Any]] = [{"alg": "none"}, {"sub": subject, "iat": now, "exp": now + life_s}]
    return ".".join(urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts) + "."


@contextmanager
def token_endpoint() -> Iterator[TokenEndpoint]:
    """Run one, on a port of its own."""
    endpoint = TokenEndpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            code, body = endpoint.answer(self.headers["Authorization"], form)
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer((HOST, 0), Handler)
    endpoint.url = f"http://{HOST}:{server.server_port}/token"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
