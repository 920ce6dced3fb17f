"""``derive``: derives topic, importance, vectors and the like from ``memory.records``."""

from engramlog.consumers.delivery import Delivery
from engramlog.consumers.derived_log import KafkaDerivedLog
from engramlog.consumers.ownership import Ownership
from engramlog.consumers.wire import Wiring, subscribe
from engramlog.engine.derivation import DeriveConfig
from engramlog.engine.derive import Deriving
from engramlog.engine.derived_topic import DerivedTopic
from engramlog.schemas.codec import records_codec

NAME = "derive"
AT_ONCE = 64
"""Records that are derived at once: enough to fill a model's batch, few enough to be published soon."""


def register(wiring: Wiring) -> Delivery:
    """Subscribe the derivation to the records."""
    topics, cluster, backends = wiring.topics, wiring.cluster, wiring.backends
    assert backends.embedder is not None, "opened for this consumer"
    generation = backends.version.generation
    topic = topics.derived_of(generation)
    deriving = Deriving(
        wiring.history,
        backends.embedder,
        KafkaDerivedLog(wiring.broker, topic),
        DeriveConfig(metadata_keys=wiring.settings.filter_keys(), generation=generation),
        refiner=backends.refiner,
        before=DerivedTopic(wiring.settings.kafka(), topic),
    )
    wiring.on_stop(deriving.stop)
    ownership = Ownership(deriving, cluster.cluster_id)
    delivery = Delivery(
        ownership,
        {topics.records: records_codec()},
        cluster.partitions,
        wiring.dead_letters(NAME),
        wiring.observer(NAME),
        reports_invalid=False,
    )
    subscribe(wiring, NAME, [topics.records], delivery, max_records=AT_ONCE, ownership=ownership, projection="derive")
    return delivery
