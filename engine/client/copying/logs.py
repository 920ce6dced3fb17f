"""Copies a whole log: the records, then what speaks of their offsets."""

from collections.abc import Callable, Iterable
from contextlib import aclosing

from engramlog.engine.client.copying.copier import Copied, Copier, Source
from engramlog.engine.client.copying.ordering import AgentTopic, Ordered
from engramlog.engine.client.copying.places import Moved
from engramlog.engine.client.copying.topics import AS_GIVEN, STAMPED, Log


async def copy_log(
    sources: Iterable[Source], target: Log, *, beside: bool = False, timeout_s: float = 60.0
) -> list[Copied]:
    """Copy the topics of a log.

    Until all of it is there, the target's topics take their log times from the copier: no process of ours runs on them.

    Args:
        sources: The originals, for each of the target's topics one, in their order.
        target: The copy.
        beside: Whether others may have written to the copy, as long as it is about other agents.
        timeout_s: Limit of each batch, in seconds.

    Returns:
        What became of each topic.

    Raises:
        ConfigurationError: The copy holds what it must not.
        DeadlineExceeded: A batch was not acknowledged in time; copying again goes on from there.
        BrokerUnavailable: Kafka does not answer; likewise.
    """
    copiers: list[Copier] = []
    records: Moved | None = None
    for source, one in zip(sources, target.all, strict=True):
        copiers.append(Copier(source, one.topic, records=records, beside=beside, timeout_s=timeout_s))
        records = copiers[0].moved
    for copier in copiers:  # before anything is written
        await copier.look()
    await target.stamp(AS_GIVEN)
    copied = [await copier() for copier in copiers]
    await target.stamp(STAMPED)
    return copied


async def plan_log(sources: Iterable[Source], topics: Iterable[AgentTopic], *, beside: bool = True) -> list[Copied]:
    """What copying would do; nothing is written. Arguments and errors as for :func:`copy_log`."""
    planned: list[Copied] = []
    for source, topic in zip(sources, topics, strict=True):
        copier = Copier(source, topic, beside=beside)
        await copier.look()
        async with aclosing(source.messages()) as messages:
            async for message in messages:
                copier.plan(message)
        planned.append(copier.copied)
    return planned


def sources_of(log: Log, ends: list[dict[int, int]], on_read: Callable[[int], None]) -> list[Source]:
    """A log's topics as the originals of a copy, up to these ends."""
    return [Ordered(one.topic, until, on_read) for one, until in zip(log.all, ends, strict=True)]
