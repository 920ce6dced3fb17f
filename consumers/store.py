"""``store``: projects ``memory.records`` into the history."""

from engramlog.consumers.delivery import Delivery, Log
from engramlog.consumers.wire import Wiring, subscribe
from engramlog.schemas.codec import records_codec

NAME = "store"


def register(wiring: Wiring) -> Delivery:
    """Subscribe the history to the records."""
    log = Log(wiring.topics.records, wiring.cluster.partitions, wiring.cluster.cluster_id, records_codec())
    delivery = Delivery(log, wiring.history, wiring.dead_letters(NAME))
    subscribe(wiring, NAME, log.topic, delivery, max_records=wiring.settings.max_poll_records)
    return delivery
