"""The command line inside a test's process, beside the event loop of the test."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from click.testing import CliRunner, Result

from engramlog.engine.cli.root import cli
from tests.brokers import Rig

Command = Callable[..., Awaitable[Result]]


def command_on(rig: Rig, *common: str) -> Command:
    """Runs commands on the topics of a rig."""
    kafka = ("--bootstrap-servers", rig.config.bootstrap_servers, "--prefix", rig.settings.prefix)

    async def run(*arguments: str, code: int = 0) -> Result:
        with own_logging():
            result = await asyncio.to_thread(CliRunner().invoke, cli, [*arguments, *kafka, *common])
        assert result.exit_code == code, (result.stdout[-6000:], result.stderr or result.exception)
        return result

    return run


def lines(result: Result) -> list[Any]:
    """Its JSON lines."""
    return [json.loads(line) for line in result.stdout.splitlines()]


@contextmanager
def own_logging() -> Iterator[None]:
    """Give the loggers back as they were."""
    names = ("aiokafka", "asyncio", "faststream", "engramlog.faststream", "engramlog.engine.client.client")
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    levels = {name: logging.getLogger(name).level for name in names}
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
        for name, before in levels.items():
            logging.getLogger(name).setLevel(before)
