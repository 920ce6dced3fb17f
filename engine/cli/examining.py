"""The examinations of ``engramlog doctor``. Each stands alone: what cannot be looked at is a finding, too."""

import platform
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

from engramlog.consumers.app import CONSUMERS, rights_of
from engramlog.engine.cli import logs
from engramlog.engine.cli.examining_recall import look_at_model, look_at_vectors
from engramlog.engine.cli.findings import Finding, Verdict
from engramlog.engine.cli.lag import EngineStatus, inspect_engine, missing_file
from engramlog.engine.client.admin import Cluster, inspect_topics
from engramlog.engine.client.examining import Broker, clock_ahead_s, look_at_broker
from engramlog.engine.client.rights import missing_rights
from engramlog.engine.history.about import about
from engramlog.engine.settings import Settings
from engramlog.schemas.errors import ConfigurationError, EngramlogError

_PACKAGES = ("engramlog", "aiokafka", "faststream", "pydantic", "sqlalchemy", "psycopg", "qdrant-client", "openai")
_TESTED_AIOKAFKA = "0.14."
_LAG = 10_000
_CLOCK_WARNING_S, _CLOCK_PROBLEM_S = 1.0, 10.0
_GB = 1024**3
_DISK_WARNING, _DISK_PROBLEM = 5 * _GB, _GB
_CERTIFICATE_DAYS = 21
_GOOD_REPLICATION = 3
_LOCAL = ("localhost", "127.", "[::1]", "::1")


async def examine(settings: Settings) -> list[Finding]:
    """Look at everything.

    Returns:
        The findings, in the order of the checks; never empty.
    """
    findings = [*_versions(), *_disk(settings)]
    findings += await _guarded("store", lambda: _store(settings))
    findings += await _guarded("model", lambda: look_at_model(settings))
    findings += await _guarded("vectors", lambda: look_at_vectors(settings))
    if (broker := await _broker(settings, findings)) is None:
        return findings
    findings += _security(settings, broker)
    findings += await _guarded("clock", lambda: _clock(settings))
    cluster: list[Cluster] = []
    findings += await _guarded("topics", lambda: _topics(settings, broker, cluster))
    findings += await _guarded("rights", lambda: _rights(settings))
    if cluster and not any(state.problems for state in cluster[0].states):
        findings += await _guarded("consumers", lambda: _consumers(settings))
    return findings


async def _guarded(check: str, look: Callable[[], Awaitable[list[Finding]]]) -> list[Finding]:
    try:
        return await look()
    except EngramlogError as error:
        return [Finding(check, "problem", "cannot be looked at", str(error))]


def _versions() -> Iterator[Finding]:
    found = {"Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    text = ", ".join(f"{name} {number}" for name, number in found.items())
    if found.get("aiokafka", _TESTED_AIOKAFKA).startswith(_TESTED_AIOKAFKA):
        yield Finding("versions", "ok", f"{text} on {sys.platform}")
    else:
        yield Finding(
            "versions", "warning", text, f"engramlog is tested with aiokafka {_TESTED_AIOKAFKA}x: install that"
        )


def _disk(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir.absolute()
    while not folder.exists():
        folder = folder.parent
    usage = shutil.disk_usage(folder)
    text = f"{usage.free / _GB:,.1f} GB of {usage.total / _GB:,.1f} GB are free at {settings.data_dir}"
    verdict: Verdict = "problem" if usage.free < _DISK_PROBLEM else "warning" if usage.free < _DISK_WARNING else "ok"
    fix = "" if verdict == "ok" else "make room, or move it: ENGRAMLOG_DATA_DIR"
    yield Finding("disk", verdict, text, fix)


async def _store(settings: Settings) -> list[Finding]:
    url = settings.effective_history_url()
    if (path := missing_file(url)) is not None:
        fix = "run 'engramlog up' or 'engramlog run store' here, or set ENGRAMLOG_HISTORY_URL to the store that is used"
        return [Finding("store", "warning", f"there is no history at {path}", fix)]
    info = await about(url, timeout_s=settings.timeout_s)
    versions = ", ".join(f"{name} version {active}" for name, active in info.projections.items())
    if not versions:
        fix = "start 'engramlog run store': it makes the tables and fills them from the log"
        return [Finding("store", "warning", f"{info.server} at {logs.masked(url)}: no projection yet", fix)]
    return [Finding("store", "ok", f"{info.server} at {logs.masked(url)}: {versions}")]


async def _broker(settings: Settings, findings: list[Finding]) -> Broker | None:
    kafka = settings.kafka()
    try:
        broker = await look_at_broker(kafka)
    except EngramlogError as error:
        findings.append(Finding("broker", "problem", f"{kafka.bootstrap_servers} cannot be used", str(error)))
        return None
    text = f"{broker.brokers} broker(s) behind {kafka.bootstrap_servers}, {broker.kafka_version}"
    if kafka.idempotent and not broker.idempotence:
        fix = "use Apache Kafka; for the demo broker alone, ENGRAMLOG_IDEMPOTENT=false"
        findings.append(Finding("broker", "problem", f"{text}; it knows no idempotent producers", fix))
    else:
        findings.append(Finding("broker", "ok", text))
    return broker


def _security(settings: Settings, broker: Broker) -> Iterator[Finding]:
    security = settings.security
    text: str = security.protocol
    if security.sasl:
        text += f", {security.sasl_mechanism} as {security.sasl_username or 'the principal of the token'}"
    if broker.certificate_days is not None:
        text += f"; the broker's certificate is valid for {broker.certificate_days:.0f} more days"
    remote = not all(server.startswith(_LOCAL) for server in settings.kafka().bootstrap_servers.split(","))
    if not security.tls and (remote or security.sasl):
        fix = "use a TLS listener: ENGRAMLOG_SECURITY_PROTOCOL=SASL_SSL (or SSL) and ENGRAMLOG_SSL_CAFILE"
        yield Finding("security", "warning", f"{text}: what is remembered goes over the network unencrypted", fix)
    elif broker.certificate_days is not None and broker.certificate_days < _CERTIFICATE_DAYS:
        yield Finding("security", "warning", text, "renew the broker's certificate")
    elif security.tls and not security.ssl_check_hostname:
        fix = "give the broker a certificate for its name, and unset ENGRAMLOG_SSL_CHECK_HOSTNAME"
        yield Finding("security", "warning", f"{text}; the host name is not checked", fix)
    else:
        yield Finding("security", "ok", text)


async def _clock(settings: Settings) -> list[Finding]:
    try:
        ahead_s = await clock_ahead_s(settings.kafka(), settings.topics().replies)
    except ConfigurationError as error:
        return [Finding("clock", "warning", "cannot be compared with the broker's", str(error))]
    text = f"the broker's clock is {abs(ahead_s):.2f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine's"
    if abs(ahead_s) < _CLOCK_WARNING_S:
        return [Finding("clock", "ok", text)]
    verdict: Verdict = "problem" if abs(ahead_s) >= _CLOCK_PROBLEM_S else "warning"
    return [Finding("clock", verdict, f"{text}: deadlines of requests are wrong by that", "synchronise both (NTP)")]


async def _topics(settings: Settings, broker: Broker, seen: list[Cluster]) -> list[Finding]:
    cluster = await inspect_topics(settings.kafka(), topics=settings.topics())
    seen.append(cluster)
    findings = []
    for state in cluster.states:
        name, copies = state.spec.name, state.replication
        found = f"{name}: {state.partitions} partitions, {copies} replica(s)"
        if state.problems:
            findings.append(Finding("topics", "problem", found, "; ".join(state.problems)))
        elif broker.brokers >= _GOOD_REPLICATION and copies < _GOOD_REPLICATION and state.spec.kind == "agent":
            fix = "raise it (kafka-reassign-partitions.sh): an agent topic with one copy is lost with its disk"
            findings.append(Finding("topics", "warning", found, fix))
        elif state.remarks:
            fix = "set what the table says (kafka-configs.sh), or the setting that changes the table"
            findings.append(Finding("topics", "warning", f"{found}; {'; '.join(state.remarks)}", fix))
        else:
            findings.append(Finding("topics", "ok", found))
    return findings


async def _rights(settings: Settings) -> list[Finding]:
    who = settings.security.principal
    missing = await missing_rights(settings.kafka(), rights_of(settings, tuple(CONSUMERS)))
    if not missing:
        return [Finding("rights", "ok", f"{who} may run all consumers")]
    text = f"{who} may not run all consumers (a problem only if it is the user of the engine)"
    return [Finding("rights", "warning", text, "; ".join(missing))]


async def _consumers(settings: Settings) -> list[Finding]:
    status = await inspect_engine(settings)
    return [*_lag(status), _dead_letters(status)]


def _lag(status: EngineStatus) -> Iterator[Finding]:
    for consumer in status.consumers:
        members, lag = len(consumer.group.members), consumer.lag
        text = f"{consumer.name}: {members} running, lag {'unknown' if lag is None else f'{lag:,}'}"
        if not members:
            yield Finding("consumers", "problem", text, f"start it: engramlog run {consumer.name}")
        elif consumer.error:
            yield Finding("consumers", "problem", text, consumer.error)
        elif lag is not None and lag > _LAG:
            fix = f"start more of it (engramlog run {consumer.name}; up to one a partition), or see its log"
            yield Finding("consumers", "warning", text, fix)
        else:
            yield Finding("consumers", "ok", text)


def _dead_letters(status: EngineStatus) -> Finding:
    if not status.dead_letters:
        return Finding("dead letters", "ok", "none")
    return Finding(
        "dead letters",
        "warning",
        f"{status.dead_letters:,} messages could not be processed",
        "see why, and send them again when that is mended: engramlog dead-letters list",
    )
