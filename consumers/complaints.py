"""Refusals at run time, said once and clearly: FastStream would log each with a traceback, every five seconds.

It goes on trying at that pace, and everything recovers when the right is granted again.
"""

import logging
import time
from collections.abc import Callable

from engramlog.engine.client import Security
from engramlog.engine.client.refusals import refusal

SAY_AGAIN_S = 300.0
"""The same refusal is logged again after so many seconds."""
_NAMES = ("engramlog.faststream", "aiokafka.cluster", "aiokafka.consumer.fetcher")


class Complaints(logging.Filter):
    """Turns a record about a refusal into one line that says what to change, and drops its repetitions.

    Args:
        security: Who we are.
        consumer: The consumers of this process.
        clock: Seconds that only go forward.
    """

    def __init__(self, security: Security, consumer: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._security, self._consumer, self._clock = security, consumer, clock
        self._said: dict[str, float] = {}

    def install(self) -> None:
        """Watch FastStream's and aiokafka's loggers, instead of whoever watched them before."""
        for logger in map(logging.getLogger, _NAMES):
            for old in logger.filters[:]:
                if isinstance(old, Complaints):
                    logger.removeFilter(old)
            logger.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged."""
        error = record.exc_info[1] if record.exc_info else None
        why = None if error is None else refusal(self._security, error)
        if why is not None:
            record.msg, record.args = "%s: %s; it is tried again every few seconds", (self._consumer, why)
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.ERROR, "ERROR"
        elif "not authorized" not in str(record.msg).lower():
            return True
        return self._is_new(record.getMessage())

    def _is_new(self, text: str) -> bool:
        now = self._clock()
        if now - self._said.get(text, -SAY_AGAIN_S) < SAY_AGAIN_S:
            return False
        self._said[text] = now
        return True
