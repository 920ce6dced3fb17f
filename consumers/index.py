"""``index``: projects ``memory.derived.gN`` into the vectors."""

from aiokafka import TopicPartition

from engramlog.consumers.delivery import Delivery
from engramlog.consumers.ownership import Ownership
from engramlog.consumers.wire import Wiring, subscribe
from engramlog.engine.index import Indexing
from engramlog.engine.wiring import Backends
from engramlog.schemas.codec import derived_codec

NAME = "index"
AT_ONCE = 500


def register(wiring: Wiring) -> Delivery:
    """Subscribe the vectors to what is derived."""
    topics, cluster, backends = wiring.topics, wiring.cluster, wiring.backends
    assert backends.vectors is not None, "opened for this consumer"
    derived = topics.derived_of(backends.version.generation)
    checkpoints = wiring.history.vectors(backends.version.checkpoints)
    indexing = Indexing(backends.vectors, checkpoints, records=topics.records)
    wiring.on_stop(indexing.stop)
    ownership = Ownership(indexing, cluster.cluster_id)
    indexing.when_lost(lambda topic, partition: ownership.reopen(TopicPartition(topic, partition)))

    async def follow(found: Backends) -> None:
        assert found.vectors is not None, "opened for this consumer"
        if found.vectors is not indexing.vectors:
            await indexing.go_over(found.vectors, wiring.history.vectors(found.version.checkpoints))

    wiring.on_switch(follow)
    delivery = Delivery(
        ownership,
        {derived: derived_codec()},
        cluster.partitions,
        wiring.dead_letters(NAME),
        wiring.observer(NAME),
        reports_invalid=False,
    )
    subscribe(wiring, NAME, [derived], delivery, max_records=AT_ONCE, ownership=ownership, projection="vectors")
    return delivery
