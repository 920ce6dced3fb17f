"""``admit``: takes records of any producer from ``memory.inbox`` and publishes them as events of their agents."""

from engramlog.consumers.forwarding import Forwarding, Message, Outgoing
from engramlog.consumers.wire import Wiring, subscribe
from engramlog.engine.admit import Sent, admit
from engramlog.schemas.codec import records_codec
from engramlog.schemas.keys import partition_for

NAME = "admit"


def register(wiring: Wiring) -> Forwarding:
    """Subscribe the records to the inbox."""
    topic, partitions = wiring.topics.records, wiring.cluster.partitions

    def handle(message: Message) -> Outgoing:
        sent = Sent(message.topic, message.partition, message.offset, message.timestamp, message.value or b"")
        event = admit(sent)
        partition = partition_for(event.tenantid, event.agentid, partitions)
        return Outgoing(topic, partition, event.key(), records_codec().encode(event))

    settings = wiring.settings
    forwarding = Forwarding(
        broker=wiring.broker,
        handle=handle,
        dead_letters=wiring.dead_letters(NAME),
        observer=wiring.observer(NAME),
        stale_after_s=settings.session_timeout_ms / 2000,
    )
    subscribe(wiring, NAME, [wiring.topics.inbox], forwarding, max_records=min(500, settings.max_poll_records))
    return forwarding
