"""``store``: projects ``memory.records``, ``memory.derived.gN`` and ``memory.summaries`` into the history."""

from engramlog.consumers.delivery import Delivery
from engramlog.consumers.ownership import Ownership
from engramlog.consumers.wire import Wiring, subscribe
from engramlog.schemas.codec import derived_codec, records_codec, summaries_codec

NAME = "store"


def register(wiring: Wiring) -> Delivery:
    """Subscribe the history to the records, and to what is made from them."""
    topics, cluster = wiring.topics, wiring.cluster
    ownership = Ownership(wiring.history, cluster.cluster_id)
    codecs = {
        topics.records: records_codec(),
        topics.derived_of(wiring.history_generation): derived_codec(),
        topics.summaries: summaries_codec(),
    }
    dead_letters = wiring.dead_letters(NAME)
    delivery = Delivery(ownership, codecs, cluster.partitions, dead_letters, wiring.observer(NAME))
    most = wiring.settings.max_poll_records
    subscribe(wiring, NAME, [*codecs], delivery, max_records=most, ownership=ownership, projection="history")
    return delivery
