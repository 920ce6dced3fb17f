"""What every test shares: Hypothesis profiles, and a Ctrl-C that reaches the processes that tests start."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", deadline=None, max_examples=50)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

pytest_plugins = ["tests.brokers", "tests.secure"]

LONGEST_FIRST = ("acceptance", "integration", "flow", "contract", "unit")
"""The directories of the tests in the order in which workers take files: at the end none waits for a long one."""


def pytest_configure() -> None:
    """A shell ignores SIGINT for what it runs in the background, and all its children would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first; within a directory the order stays as it is."""
    here = Path(__file__).parent
    items.sort(key=lambda item: LONGEST_FIRST.index(item.path.relative_to(here).parts[0]))
