"""``engramlog topics``: the topics of the table, made and checked."""

import asyncio
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.failures import FOUND, OK
from engramlog.engine.cli.migrating import migrate
from engramlog.engine.cli.options import json_option, settings_options

if TYPE_CHECKING:
    from engramlog.engine.client.admin import Cluster, TopicState
    from engramlog.engine.settings import Settings


@click.group()
def topics() -> None:
    """Create, check and describe the topics."""


_CREATE_EPILOG = """\b
Examples:
  engramlog topics create
  engramlog topics create --partitions 24 --bootstrap-servers kafka.example:9092
  engramlog topics create --prefix staging --json

\b
Topics that exist are left as they are. The partitions of agent topics can never change: an agent's place is computed
from their number. Exit code 1: what is there now does not fit (see 'topics check').
"""


@topics.command(epilog=_CREATE_EPILOG)
@click.option(
    "--partitions", type=click.IntRange(1, 10_000), help="Of each new topic. [env: ENGRAMLOG_PARTITIONS; default: 12]"
)
@settings_options(timeout=False)
@json_option
def create(*, settings: "Settings", partitions: int | None, as_json: bool) -> int:
    """Create the topics that are missing."""
    if partitions is not None:
        settings = settings.model_copy(update={"partitions": partitions})
    created, cluster = asyncio.run(_create(settings))
    return _report(cluster, created, as_json=as_json)


_CHECK_EPILOG = """\b
Examples:
  engramlog topics check
  engramlog topics check --json | jq -r '.problems[]'

\b
Every process does the same before it starts. Exit code 1: a topic is missing, or an agent topic would forget.
"""


@topics.command(epilog=_CHECK_EPILOG)
@settings_options(timeout=False)
@json_option
def check(*, settings: "Settings", as_json: bool) -> int:
    """Compare the cluster's topics with the table."""
    return _report(asyncio.run(_inspect(settings)), (), as_json=as_json)


_DESCRIBE_EPILOG = """\b
Examples:
  engramlog topics describe
  engramlog topics describe --json | jq 'select(.kind == "agent")'
"""


@topics.command(epilog=_DESCRIBE_EPILOG)
@settings_options(timeout=False)
@json_option
def describe(*, settings: "Settings", as_json: bool) -> int:
    """What lies in each topic, who writes and reads it, and how it is configured."""
    cluster = asyncio.run(_inspect(settings))
    for state in cluster.states:
        if as_json:
            output.print_json(_described(state))
            continue
        shown = {name: value for name, value in _described(state).items() if name not in {"topic", "config"}}
        rows = [(name, _text(value)) for name, value in shown.items() if value != []]
        rows += [(name, _setting(state, name, wanted)) for name, wanted in state.spec.config.items()]
        output.print_table(state.spec.name, ("what", "value"), rows, last_wraps=True)
    return FOUND if any(state.problems for state in cluster.states) else OK


async def _create(settings: "Settings") -> "tuple[list[str], Cluster]":
    return await make_topics(settings), await _inspect(settings)


async def make_topics(settings: "Settings") -> list[str]:
    """Create the topics that are missing, as the settings want them; the names of those that were created."""
    from engramlog.engine.client.admin import create_topics

    return await create_topics(
        settings.kafka(),
        topics=settings.topics(),
        replication=settings.replication,
        min_insync_replicas=settings.min_insync_replicas,
    )


async def _inspect(settings: "Settings") -> "Cluster":
    from engramlog.engine.client.admin import inspect_topics

    return await inspect_topics(settings.kafka(), topics=settings.topics())


def _report(cluster: "Cluster", created: "list[str] | tuple[()]", *, as_json: bool) -> int:
    bad = [state for state in cluster.states if state.problems]
    for state in cluster.states:
        if as_json:
            output.print_json(_state(state, new=state.spec.name in created))
    if not as_json:
        output.print_table(
            f"Topics of cluster {cluster.cluster_id or '(without an id)'}",
            ("topic", "kind", "partitions", "replicas", "state"),
            [_row(state, new=state.spec.name in created) for state in cluster.states],
            right=("partitions", "replicas"),
            last_wraps=True,
        )
    return FOUND if bad else OK


def _row(state: "TopicState", *, new: bool) -> tuple[Any, ...]:
    verdict = "; ".join(state.problems) or ("created" if new else "good")
    remarks = f" ({'; '.join(state.remarks)})" if state.remarks else ""
    return state.spec.name, state.spec.kind, state.partitions, state.replication, verdict + remarks


def _state(state: "TopicState", *, new: bool) -> dict[str, Any]:
    return {
        "topic": state.spec.name,
        "kind": state.spec.kind,
        "created": new,
        "partitions": state.partitions,
        "replication": state.replication,
        "problems": list(state.problems),
        "remarks": list(state.remarks),
    }


def _described(state: "TopicState") -> dict[str, Any]:
    spec = state.spec
    return {
        "topic": spec.name,
        "kind": spec.kind,
        "payload": spec.payload,
        "key": spec.key,
        "producers": list(spec.producers),
        "consumers": list(spec.consumers),
        "partitions": state.partitions,
        "replication": state.replication,
        "config": {name: state.config.get(name) for name in spec.config},
        "problems": list(state.problems),
        "remarks": list(state.remarks),
    }


def _text(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def _setting(state: "TopicState", name: str, wanted: str) -> str:
    actual = state.config.get(name)
    if actual is None:
        return f"(the broker does not say; the table: {wanted})"
    return actual if actual == wanted else f"{actual} (the table: {wanted})"


topics.add_command(migrate)
