"""What any producer, in any language, may put into ``memory.inbox``: a record as plain JSON, or a whole event.

Plain JSON is an object with ``tenant``, ``agent``, ``role`` and whatever else a record has; ``session`` and ``user``
where there are any::

    {"tenant": "acme", "agent": "helper", "session": "s1", "user": "ada", "role": "user", "content": "Hello!"}

A ``record_id`` makes sending it again harmless. Without one, the record is named after its place in the inbox, and so
is its ``timestamp`` by default the time at which the broker took it: admitted twice, it is the same record. Any Kafka
key will do; messages with the same key keep their order.
"""

from uuid import UUID, uuid5

from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.scope import Identifier

_PLACES = UUID("9f0a3b52-6d0f-5d0c-9d5e-7f1a6f0f6a11")


class InboxRecord(MemoryRecord):
    """A record that says whose it is.

    Attributes:
        tenant: The tenant.
        agent: The agent.
        session: The session.
        user: The user it concerns; without one it is shared by the agent's users.
    """

    tenant: Identifier
    agent: Identifier
    session: Identifier | None = None
    user: Identifier | None = None

    def record(self) -> MemoryRecord:
        """The record alone."""
        return MemoryRecord.model_construct(
            _fields_set=self.model_fields_set & MemoryRecord.model_fields.keys(),
            **{name: getattr(self, name) for name in MemoryRecord.model_fields},
        )


def id_of_place(topic: str, partition: int, offset: int) -> str:
    """The id of a record that came without one."""
    return str(uuid5(_PLACES, f"{topic}/{partition}/{offset}"))
