"""What every test shares: Hypothesis profiles, and a Ctrl-C that reaches the processes that tests start."""

import os
import signal

from hypothesis import HealthCheck, settings

settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", deadline=None, max_examples=50)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

pytest_plugins = ["tests.brokers", "tests.secure"]


def pytest_configure() -> None:
    """A shell ignores SIGINT for what it runs in the background, and all its children would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
