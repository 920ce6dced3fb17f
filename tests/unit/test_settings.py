"""Settings: what contradicts itself is told, secrets come from files and are never shown, the reference is current."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from engramlog.engine.cli import logs
from engramlog.engine.cli.config import reference, rows_of
from engramlog.engine.cli.root import cli
from engramlog.engine.client import Security
from engramlog.engine.settings import SECRETS, Settings
from engramlog.schemas.errors import ConfigurationError

DOCS = Path(__file__).parents[2] / "docs"
SCRAM = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "ada"}
OAUTH = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.startswith("ENGRAMLOG_")]:
        monkeypatch.delenv(name)


CONTRADICTIONS: Mapping[str, tuple[Mapping[str, object], str]] = {
    "no mechanism": ({"security_protocol": "SASL_SSL"}, "needs ENGRAMLOG_SASL_MECHANISM: PLAIN, SCRAM"),
    "no user": ({**SCRAM, "sasl_username": None, "sasl_password": "x"}, "needs ENGRAMLOG_SASL_USERNAME"),
    "no password": (SCRAM, "SCRAM-SHA-512 needs ENGRAMLOG_SASL_PASSWORD"),
    "login without SASL": ({"sasl_mechanism": "PLAIN"}, "ENGRAMLOG_SASL_MECHANISM would not be used .*SASL_SSL"),
    "CA without TLS": ({"ssl_cafile": "/ca.pem"}, "ENGRAMLOG_SSL_CAFILE would not be used .*: set it to SSL"),
    "CA with SASL in the clear": (
        {**SCRAM, "sasl_password": "x", "security_protocol": "SASL_PLAINTEXT", "ssl_cafile": "/ca.pem"},
        "does not encrypt: set it to SASL_SSL",
    ),
    "key without certificate": (
        {"security_protocol": "SSL", "ssl_keyfile": "/key.pem"},
        "ENGRAMLOG_SSL_KEYFILE and ENGRAMLOG_SSL_KEY_PASSWORD need ENGRAMLOG_SSL_CERTFILE",
    ),
    "no token": (OAUTH, "OAUTH_TOKEN_URL, ENGRAMLOG_OAUTH_CLIENT_ID, ENGRAMLOG_OAUTH_CLIENT_SECRET .*TOKEN_FILE"),
    "two tokens": ({**OAUTH, "oauth_token_file": "/t", "oauth_token_url": "https://x"}, "choose one"),
    "no address": (
        {**OAUTH, "oauth_token_url": "file:///etc/passwd", "oauth_client_id": "a", "oauth_client_secret": "b"},
        "no http",
    ),
    "too few copies": ({"replication": 1, "min_insync_replicas": 2}, "MIN_INSYNC_REPLICAS=2 can never be reached"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_what_contradicts_itself_is_told_at_once(case: str) -> None:
    given, says = CONTRADICTIONS[case]
    with pytest.raises(ConfigurationError, match=says):
        Settings(**given)  # type: ignore[arg-type]


def test_all_contradictions_are_told_together() -> None:
    with pytest.raises(ConfigurationError, match=r"SSL_CAFILE.*; .*SASL_PASSWORD"):
        Security(ssl_cafile=Path("/ca.pem"), sasl_password="x")


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_can_come_from_a_file(secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, variable = tmp_path / "secret", f"ENGRAMLOG_{secret.upper()}"
    file.write_text("s3cret with a blank \n")
    monkeypatch.setenv(f"{variable}_FILE", str(file))
    given = {"ssl_certfile": "/c", **SCRAM, "sasl_password": "x"}
    given = {name: value for name, value in given.items() if name != secret}
    found = getattr(Settings(**given), secret)  # type: ignore[arg-type]
    assert (found if isinstance(found, str) else found.get_secret_value()) == "s3cret with a blank "
    monkeypatch.setenv(variable, "both")
    with pytest.raises(ConfigurationError, match=f"{variable} and {variable}_FILE are both set"):
        Settings(**given)  # type: ignore[arg-type]
    monkeypatch.delenv(variable)
    file.unlink()
    with pytest.raises(ConfigurationError, match=f"{variable}_FILE=.* cannot be read: No such file"):
        Settings(**given)  # type: ignore[arg-type]


def test_an_empty_variable_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Compose files pass on what is not set as an empty text.
    for name in ("BOOTSTRAP_SERVERS", "SSL_CAFILE", "SASL_MECHANISM", "SASL_PASSWORD", "SECURITY_PROTOCOL"):
        monkeypatch.setenv(f"ENGRAMLOG_{name}", "")
    assert Settings() == Settings(bootstrap_servers=None)
    file = tmp_path / "secret"
    file.write_text("x")
    monkeypatch.setenv("ENGRAMLOG_SASL_PASSWORD_FILE", str(file))
    assert Settings(**SCRAM).security.sasl_password == "x"  # type: ignore[arg-type]


def test_names_of_protocols_and_mechanisms_may_be_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAMLOG_SECURITY_PROTOCOL", "sasl_ssl")
    monkeypatch.setenv("ENGRAMLOG_SASL_MECHANISM", "scram-sha-512")
    found = Settings(sasl_username="ada", sasl_password="x").security  # type: ignore[arg-type]
    assert (found.protocol, found.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")


def test_a_value_out_of_range_is_told_without_the_secrets_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAMLOG_SASL_PASSWORD", "s3cret")
    monkeypatch.setenv("ENGRAMLOG_SECURITY_PROTOCOL", "SASL")
    done = CliRunner().invoke(cli, ["config"])
    assert done.exit_code == 4
    assert "security_protocol='SASL'" in done.output
    assert "s3cret" not in done.output
    assert "Traceback" not in done.output


def test_the_table_takes_retention_from_the_settings() -> None:
    topics = Settings(traffic_retention_minutes=5, dead_letters_retention_days=90).topics()
    kept = {spec.name: spec.config["retention.ms"] for spec in topics.table()}
    assert kept["memory.queries"] == kept["memory.replies"] == "300000"
    assert kept["memory.dead-letters"] == str(90 * 86_400_000)
    assert kept["memory.records"] == "-1"


def test_every_setting_has_a_meaning_and_a_type() -> None:
    assert [row.variable for row in rows_of() if not row.meaning or not row.kind] == []


def test_the_reference_is_current() -> None:
    assert (DOCS / "SETTINGS.md").read_text() == reference(), "run: make schemas"


def test_what_is_in_force_is_shown_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SCRAM, "sasl_password": "s3cret"}.items():
        monkeypatch.setenv(f"ENGRAMLOG_{name.upper()}", value)
    monkeypatch.setenv("ENGRAMLOG_HISTORY_URL", "postgresql://ada:s3cret@db/memory")
    for arguments in (["config"], ["config", "--json"], ["config", "--set"], ["config", "--markdown"]):
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, done.output
        assert "s3cret" not in done.output
    done = CliRunner().invoke(cli, ["config", "--set", "--json"])
    rows = {row["variable"]: row for row in map(json.loads, done.output.splitlines())}
    assert rows["ENGRAMLOG_SASL_PASSWORD"] | {"type": "", "meaning": ""} == {
        "variable": "ENGRAMLOG_SASL_PASSWORD",
        "type": "",
        "default": "none",
        "meaning": "",
        "secret": True,
        "set": True,
        "value": "***",
    }
    assert rows["ENGRAMLOG_SASL_USERNAME"]["value"] == "ada"
    assert len(rows) == 5


def test_every_secret_is_masked_wherever_settings_are_shown() -> None:
    given = {"history_url": "postgresql://ada:s3cret@db/x", "ssl_certfile": "/c", "ssl_key_password": "s3cret"}
    settings = Settings(**SCRAM, sasl_password="s3cret", **given)  # type: ignore[arg-type]
    assert "s3cret" not in f"{logs.shown(settings)} {settings!r} {settings.security!r} {settings.kafka()!r}"
    oauth = {"oauth_token_url": "https://x", "oauth_client_id": "a", "oauth_client_secret": "s3cret"}
    shown = logs.shown(Settings(**OAUTH, **oauth))  # type: ignore[arg-type]
    assert shown["oauth_token_url"] == "https://x"
    assert shown["oauth_client_secret"] == "***"
