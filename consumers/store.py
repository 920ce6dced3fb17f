"""``store``: projects ``memory.records`` into the history."""

from engramlog.consumers.delivery import Delivery
from engramlog.consumers.ownership import Ownership
from engramlog.consumers.wire import Wiring, subscribe
from engramlog.schemas.codec import records_codec

NAME = "store"


def register(wiring: Wiring) -> Delivery:
    """Subscribe the history to the records."""
    cluster = wiring.cluster
    ownership = Ownership(wiring.history, cluster.cluster_id)
    dead_letters = wiring.dead_letters(NAME)
    delivery = Delivery(ownership, records_codec(), cluster.partitions, dead_letters, wiring.observer(NAME))
    topic, most = wiring.topics.records, wiring.settings.max_poll_records
    subscribe(wiring, NAME, topic, delivery, max_records=most, ownership=ownership)
    return delivery
