"""Logging of the command line: on standard error, never on standard output."""

import logging
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engramlog.engine.settings import Settings

_log = logging.getLogger("engramlog.cli")
_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_CHATTY = {
    "aiokafka": logging.WARNING,
    "asyncio": logging.WARNING,
    "faststream": logging.WARNING,
    "httpx": logging.WARNING,
    "httpx2": logging.WARNING,
    "engramlog.faststream": logging.ERROR,  # it warns at each start that topics are not made by chance: on purpose
    "engramlog.engine.client.client": logging.ERROR,  # it warns of cut histories: the commands say so themselves
}
_REPEATING = {"aiokafka", "opentelemetry"}
_QUIET_S = 60.0
_REMEMBERED = 1_000
_URL_PASSWORD = re.compile(r"(?<=://)([^/@:\s]*):\S*@")
_SECRET = re.compile(r"password|secret|token|api_key", re.IGNORECASE)
_PARAMETER = re.compile(r"((?:password|secret|token)[^=&\s]*=)[^&\s]+", re.IGNORECASE)
_NOT_SECRET = ("_url", "_file")
_MASK = "***"


class _Once(logging.Filter):
    """Lets what libraries repeat pass once a minute: while Kafka is away, they say it a hundred times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is to be written."""
        if record.name.partition(".")[0] not in _REPEATING or logging.getLogger().level <= logging.DEBUG:
            return True
        what = (record.name, record.getMessage())
        if record.created - self._said.get(what, -_QUIET_S) < _QUIET_S:
            return False
        if len(self._said) >= _REMEMBERED:
            self._said.clear()
        self._said[what] = record.created
        return True


class _Handler(logging.StreamHandler[Any]):
    """Ours, so that setting up again replaces it and nobody else's; writes to what standard error is now."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        self.stream = sys.stderr
        super().emit(record)


def set_up(level: str, *, brief: bool = False) -> None:
    """Log to standard error from a level on; libraries from WARNING on, unless the level is DEBUG.

    Args:
        level: The least level.
        brief: Nothing of aiokafka: what it tries again fails in the end as one error of ours, or not at all.
    """
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, _Handler):
            root.removeHandler(handler)
    handler = _Handler()
    handler.setFormatter(logging.Formatter(_FORMAT))
    handler.addFilter(_Once())
    root.addHandler(handler)
    root.setLevel(level)
    for name, usual in _CHATTY.items():
        least = logging.CRITICAL if brief and name == "aiokafka" else usual
        logging.getLogger(name).setLevel(max(least, root.level) if root.level > logging.DEBUG else logging.NOTSET)


def log_settings(settings: "Settings") -> None:
    """Log the effective settings, without secrets."""
    _log.info("settings: %s", " ".join(f"{name}={value}" for name, value in shown(settings).items()))


def shown(settings: "Settings") -> dict[str, Any]:
    """The effective settings, without secrets, as JSON takes them."""
    values: dict[str, Any] = settings.model_dump()
    values["history_url"] = settings.effective_history_url()
    return {name: _shown(name, value) for name, value in values.items()}


def masked(url: str) -> str:
    """A URL without its password, wherever it stands."""
    return _PARAMETER.sub(rf"\1{_MASK}", _URL_PASSWORD.sub(rf"\1:{_MASK}@", url))


def _shown(name: str, value: Any) -> Any:
    if value is not None and _SECRET.search(name) and not name.endswith(_NOT_SECRET):
        return _MASK
    if isinstance(value, Path):
        return str(value)
    return masked(value) if isinstance(value, str) else value
