"""A circuit breaker: an endpoint that keeps failing rests, and one call at a time tries whether it is back. Pure."""

FAILURES = 3
FIRST_REST_S = 1.0
LONGEST_REST_S = 30.0


class Breaker:
    """The state of one endpoint.

    Three failures in a row open it: it rests 1 s. Then one call may try; if that fails, too, the rest doubles, up to
    30 s. Any success closes it. Times are those of one monotonic clock, in seconds.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._rest_s = FIRST_REST_S
        self._rests_until: float | None = None
        self._trying = False

    def allows(self, now: float) -> bool:
        """Whether a call may be made now."""
        return self._rests_until is None or (now >= self._rests_until and not self._trying)

    def begin(self) -> None:
        """A call that was allowed starts; it ends in ``succeeded``, ``failed`` or ``gave_up``."""
        if self._rests_until is not None:
            self._trying = True

    def succeeded(self) -> None:
        """The endpoint answered, even if only to refuse."""
        self._failures, self._rest_s, self._rests_until, self._trying = 0, FIRST_REST_S, None, False

    def failed(self, now: float) -> None:
        """It did not answer, or is overloaded."""
        if self._rests_until is not None:
            if self._trying and now >= self._rests_until:
                self._rest_s = min(LONGEST_REST_S, 2 * self._rest_s)
                self._rests_until, self._trying = now + self._rest_s, False
            return  # calls that were under way when it opened say nothing new
        self._failures += 1
        if self._failures >= FAILURES:
            self._rests_until = now + self._rest_s

    def gave_up(self) -> None:
        """The call was cancelled, or failed for a reason of ours: nothing is known about the endpoint."""
        self._trying = False
