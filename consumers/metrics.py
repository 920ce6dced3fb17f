"""The metrics of one process. Labels are bounded: consumers, topics, partitions, kinds, codes; no tenant, no agent."""

from collections.abc import Callable, Iterable
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_RECORDS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_000, 5_000, 10_000)


class Metrics:
    """What is counted and timed, in a registry of its own: several engines in one process do not mix.

    Attributes:
        registry: What is served.
        dead_letters: By consumer and reason.
        run_records: Records of a run, by consumer.
        run_seconds: Time to apply a run, by consumer, tries included.
        run_failures: Runs that could not be applied, by consumer: the partition was closed, or had a new owner.
        requests: By what is asked and how it ended: ``answered``, ``stale``, ``failed``, ``late``, ``unreadable``.
        failures: Failed requests, by what is asked and the code of the reply.
        under_way: Requests that are being answered, by what is asked.
        wait_seconds: How long requests waited for positions, by what is asked.
        request_seconds: From the log to the reply, by what is asked.
        loop_delay: How late the event loop last woke up.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        Info("engramlog_build", "Version of engramlog.", registry=registry).info({"version": version("engramlog")})
        self.dead_letters = Counter(
            "engramlog_dead_letters",
            "Messages that went to the dead letters.",
            ("consumer", "reason"),
            registry=registry,
        )
        self.run_records = Histogram(
            "engramlog_run_records", "Records of an applied run.", ("consumer",), buckets=_RECORDS, registry=registry
        )
        self.run_seconds = Histogram(
            "engramlog_run_apply_seconds",
            "Time to apply a run, tries included.",
            ("consumer",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.run_failures = Counter(
            "engramlog_run_failures",
            "Runs that could not be applied: the partition was closed, or another owner was there.",
            ("consumer",),
            registry=registry,
        )
        self.requests = Counter(
            "engramlog_requests", "Requests by how they ended.", ("ask", "outcome"), registry=registry
        )
        self.failures = Counter(
            "engramlog_request_failures",
            "Requests that were answered with an error.",
            ("ask", "code"),
            registry=registry,
        )
        self.under_way = Gauge(
            "engramlog_requests_under_way", "Requests that are being answered.", ("ask",), registry=registry
        )
        self.wait_seconds = Histogram(
            "engramlog_request_wait_seconds",
            "How long requests waited until the history had seen what they must see.",
            ("ask",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.request_seconds = Histogram(
            "engramlog_request_seconds",
            "From a request's place in the log to its reply there.",
            ("ask",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.loop_delay = Gauge(
            "engramlog_event_loop_delay_seconds", "How late the event loop last woke up.", registry=registry
        )

    def collect_from(self, collect: Callable[[], Iterable[Metric]]) -> None:
        """Serve more, made anew at each look."""
        self.registry.register(_Made(collect))


class _Made(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()
