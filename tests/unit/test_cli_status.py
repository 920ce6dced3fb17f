"""``engramlog status --token`` without a broker: the positions that the history holds, as one text."""

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from engramlog.engine.cli import status
from engramlog.engine.cli.lag import EngineStatus
from engramlog.engine.cli.root import cli
from engramlog.engine.client.admin import Cluster
from engramlog.schemas.asking import Reached, positions_of
from tests.commands import own_logging

APPLIED = (
    Reached(topic="memory.derived.g2", partition=0, offset=70),
    Reached(topic="memory.records", partition=0, offset=41),
    Reached(topic="memory.records", partition=11, offset=0),
)
Show = Callable[..., Result]


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Show:
    def run(*arguments: str, applied: tuple[Reached, ...] | None = APPLIED, code: int = 0) -> Result:
        async def look(_: object) -> EngineStatus:
            return EngineStatus(Cluster("c", 12, ()), (), 0, applied)

        monkeypatch.setattr(status, "_look", look)
        with own_logging():
            result = CliRunner().invoke(cli, ["status", *arguments])
        assert result.exit_code == code, result.output
        return result

    return run


def test_the_token_stands_alone_and_names_what_the_history_holds(show: Show) -> None:
    (line,) = show("--token").stdout.splitlines()
    assert positions_of(line) == APPLIED
    told = json.loads(show("--token", "--json").stdout)
    assert (told["token"], len(told["positions"])) == (line, 3)
    assert json.loads(show("--json").stdout)["token"] == line


def test_without_a_history_there_is_no_token(show: Show) -> None:
    assert show("--token", applied=None, code=3).stdout == ""
    assert json.loads(show("--json", applied=None).stdout)["token"] is None
    assert "--watch" in show("--token", "--watch", "1", code=2).stderr
