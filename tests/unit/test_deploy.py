"""What lies in deploy/ fits the code: settings, commands, ports, extras, metrics; checked without Docker."""

import contextlib
import fnmatch
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from faststream.kafka.prometheus import KafkaPrometheusMiddleware

from engramlog.consumers.app import CONSUMERS
from engramlog.consumers.health import Health
from engramlog.consumers.metrics import Metrics
from engramlog.deploy.local_kafka.distribution import KAFKA_VERSION
from engramlog.engine.cli.root import cli
from engramlog.engine.settings import SECRETS, Settings
from engramlog.schemas.topics import Topics

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service.get("image") == "engramlog"}
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
ALERTS = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
DASHBOARD = json.loads((DEPLOY / "grafana" / "dashboards" / "engramlog.json").read_text())
RUNBOOK = (DEPLOY / "RUNBOOK.md").read_text()
TEXTS = [p for p in DEPLOY.rglob("*") if p.suffix in {".yaml", ".md", ".json"} or p.name == "Dockerfile"]

KNOWN = {f"ENGRAMLOG_{name.upper()}" for name in Settings.model_fields}
KNOWN |= {f"ENGRAMLOG_{name.upper()}_FILE" for name in SECRETS}

_INSTRUCTION = re.compile(r"^([A-Z]+)\s+(.*)$")
_METRIC = re.compile(r"\b(?:engramlog|faststream|process|python)_[a-z0-9_]+")
_MATCHER = re.compile(r"(?:by|without|on|ignoring) \(([^)]*)\)|\{([^}]*)\}")


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile."""
    lines = [line for line in DOCKERFILE.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    found = [_INSTRUCTION.match(line) for line in lines]
    assert all(found)
    return [(m[1], m[2]) for m in found if m]


def of(kind: str) -> list[str]:
    return [rest for name, rest in instructions() if name == kind]


def image_environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for line in of("ENV") for pair in shlex.split(line))


def parses(arguments: list[str]) -> None:
    """The command exists and takes these arguments; it is not run."""
    command: click.Command = cli
    name, rest = "engramlog", list(arguments)
    while isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command = found
    with contextlib.suppress(click.MissingParameter):  # a text names the command, not always what it is given
        command.make_context(name, rest, resilient_parsing=False)


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: str(p.relative_to(DEPLOY)))
def test_every_variable_is_a_setting(path: Path) -> None:
    assert {*re.findall(r"ENGRAMLOG_[A-Z_]*[A-Z]", path.read_text())} <= KNOWN


@pytest.mark.parametrize("name", OURS)
def test_every_command_of_compose_parses_and_its_settings_are_valid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = OURS[name]
    parses(service["command"])
    values = {**image_environment(), **service["environment"]}
    for variable, value in values.items():
        if variable.startswith("ENGRAMLOG_"):
            plain = re.sub(r"\$\{\w+:\?[^}]*\}", "secret", re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value)))
            monkeypatch.setenv(variable, plain)
    made = Settings()
    assert made.bootstrap_servers == "kafka:19092"
    assert made.effective_history_url() == "postgresql://engramlog:secret@postgres:5432/engramlog"
    assert not made.otlp_endpoint
    assert service["build"] == {"context": "..", "dockerfile": "deploy/Dockerfile"}


def test_every_consumer_is_a_service_and_is_scraped() -> None:
    running = {name: service["command"] for name, service in OURS.items() if service["command"][0] == "run"}
    assert running == {name: ["run", name] for name in CONSUMERS}
    (scrape,) = PROMETHEUS["scrape_configs"]
    (found,) = scrape["dns_sd_configs"]
    assert {*found["names"]} == {*CONSUMERS}
    assert str(found["port"]) == image_environment()["ENGRAMLOG_HEALTH_PORT"] == of("EXPOSE")[0]
    assert scrape.get("metrics_path", "/metrics") == "/metrics"


def test_services_wait_for_what_they_need() -> None:
    for name in CONSUMERS:
        needs = OURS[name]["depends_on"]
        assert needs["topics"] == {"condition": "service_completed_successfully"}
        assert needs["postgres"] == needs["qdrant"] == {"condition": "service_healthy"}
    assert all("healthcheck" in SERVICES[name] for name in ("kafka", "postgres", "qdrant"))


def test_the_addresses_in_compose_are_those_of_its_services() -> None:
    kafka = SERVICES["kafka"]["environment"]
    advertised = dict(pair.split("://") for pair in kafka["KAFKA_ADVERTISED_LISTENERS"].split(","))
    assert advertised == {"INSIDE": "kafka:19092", "OUTSIDE": "localhost:9092"}
    assert {*dict(pair.split(":", 1) for pair in kafka["KAFKA_LISTENERS"].split(","))} == {*advertised, "CONTROLLER"}
    assert kafka["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{KAFKA_VERSION}"
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text())
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert all(":latest" not in s["image"] and (":" in s["image"] or s in OURS.values()) for s in SERVICES.values())


def test_what_compose_mounts_is_there() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (DEPLOY / source).is_dir() if source.startswith(".") else source in COMPOSE["volumes"]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    provider = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/engramlog.yaml").read_text())
    folder = provider["providers"][0]["options"]["path"]
    assert home == f"{folder}/engramlog.json"
    assert any(v.split(":")[1] == folder for v in SERVICES["grafana"]["volumes"])
    assert "--config.file=/etc/prometheus/prometheus.yaml" in SERVICES["prometheus"]["command"]


def test_the_image_is_built_from_what_is_there_and_the_context_lets_in_no_more() -> None:
    rules = [r for r in (ROOT / ".dockerignore").read_text().splitlines() if r and not r.startswith("#")]
    assert rules[0] == "*"
    copied = [part for line in of("COPY") if not line.startswith("--from") for part in shlex.split(line)[:-1]]
    assert {r[1:] for r in rules if r.startswith("!")} == {*copied}
    assert all((ROOT / name).exists() for name in copied)
    out = [r for r in rules[1:] if not r.startswith("!")]
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    for part, patterns in packaged.items():
        folder = part.removeprefix("engramlog.")
        assert not [p for p in patterns for rule in out if fnmatch.fnmatch(f"{folder}/{p}", f"{rule}*")]


def test_the_image_installs_extras_that_exist_with_pinned_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (install,) = [line for line in of("RUN") if "pip install" in line]
    (extras,) = re.findall(r"'\.\[([a-z,-]+)\]'", install)
    assert {*extras.split(",")} <= {*project["optional-dependencies"]}
    assert {"engine", "offline", "postgres", "telemetry"} == {*extras.split(",")}
    assert "--constraint constraints.txt" in install
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().split()}
    for extra in ("engine", "offline", "postgres", "telemetry"):
        names = {re.split(r"[\[<>=~]", need)[0] for need in project["optional-dependencies"][extra]}
        assert names <= pinned
    (version,) = re.findall(r"ARG PYTHON=(\S+)", DOCKERFILE)
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]


def test_the_image_runs_as_nobody_special_and_says_whether_it_lives() -> None:
    assert of("USER") == ["10001:10001"]
    assert json.loads(of("ENTRYPOINT")[0]) == ["engramlog"]
    parses(json.loads(of("CMD")[0]))
    (check,) = of("HEALTHCHECK")
    command = json.loads(check.partition("CMD ")[2])
    compile(command[2], "HEALTHCHECK", "exec")
    assert "/live" in command[2]
    stages = of("FROM")
    assert len(stages) == 2
    assert stages[0].endswith("AS build")


def test_commands_in_comments_and_in_the_runbook_parse() -> None:
    said = re.findall(r"`engramlog ([^`]+)`", RUNBOOK)
    said += [line.partition(" engramlog ")[2] for line in DOCKERFILE.splitlines() if line.startswith("#   docker run")]
    assert len(said) > 3
    for command in said:
        parses(shlex.split(command))


def served() -> set[str]:
    """Every name that /metrics may serve."""
    metrics = Metrics()
    Health(metrics, max_lag=1)
    KafkaPrometheusMiddleware(registry=metrics.registry, app_name="engramlog")
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "info": ("_info",)}
    return {
        f"{family.name}{suffix}" for family in metrics.registry.collect() for suffix in suffixes.get(family.type, ("",))
    }


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for group in ALERTS["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]


LABELS = {
    *("ask", "outcome", "code", "consumer", "reason", "projection", "topic", "partition", "source"),
    *("handler", "destination", "status", "instance", "le"),
}


@pytest.mark.parametrize("expression", [*expressions()])
def test_every_expression_names_metrics_that_are_served(expression: str) -> None:
    names = {*_METRIC.findall(expression)}
    assert names
    assert names <= served()
    for grouped, matched in _MATCHER.findall(expression):
        labels = {part.strip() for part in grouped.split(",") if part.strip()}
        labels |= {*re.findall(r"(\w+)\s*[=!]", matched)}
        assert labels <= LABELS
    assert expression.count("(") == expression.count(")")


def test_the_dashboard_shows_lag_throughput_latency_dead_letters_and_stale_answers() -> None:
    told = " ".join(expressions())
    for metric in (
        "engramlog_projection_lag_offsets",
        "engramlog_run_records_sum",
        "engramlog_request_seconds_bucket",
        "engramlog_dead_letters_total",
        'outcome="stale"',
    ):
        assert metric in told
    places = [p["gridPos"] for p in DASHBOARD["panels"]]
    cells = [(x, y) for g in places for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])]
    assert len({*cells}) == len(cells)
    assert len({p["id"] for p in DASHBOARD["panels"]}) == len(places)


def test_a_consumer_that_nobody_runs_raises_an_alert() -> None:
    (absent,) = [e for e in expressions() if "absent(" in e]
    assert {*re.findall(r'consumer="(\w+)"', absent)} == {*CONSUMERS}


def test_every_alert_has_a_chapter_in_the_runbook() -> None:
    chapters = {*re.findall(r"^## (.*)$", RUNBOOK, re.MULTILINE)}
    alerts = {rule["alert"]: rule["annotations"]["runbook"] for group in ALERTS["groups"] for rule in group["rules"]}
    assert {chapter.removeprefix("RUNBOOK.md: ") for chapter in alerts.values()} <= chapters
    assert {*re.findall(r"`(Engramlog\w+)", RUNBOOK)} <= {*alerts}


def test_the_runbook_names_topics_and_links_that_exist() -> None:
    names = {spec.name for spec in Topics().table()}
    assert {*re.findall(r"`(memory\.[a-z-]+)`", RUNBOOK)} <= names
    for target in re.findall(r"\]\(([^)]+)\)", RUNBOOK):
        assert (DEPLOY / target).exists()
