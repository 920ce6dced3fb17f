"""What events say in offsets of the records, as offsets of the copy.

Every offset that an event holds, and what it becomes:

| field | means | in the copy |
|---|---|---|
| ``at`` of a mark | only what lies below is touched | the offset below which the same messages lie |
| ``offset`` of a derivation | the copy or correction that it was made of | the same message |
| ``before`` of a change of recall | only what lies below is meant | below which the same lie; an erasure's: its own |
| ``covers.first``, ``covers.last`` of a summary | the first and last record | the same, or the next within |
| ``at`` of a summary | from there on it is shown | the same message, or the next |
| ``next`` of a watermark | the first that is not derived | the first in the new partition that is not derived |

A message that compaction took away has no place in the copy: then the nearest that keeps the meaning counts. Only a
derivation of a copy that is gone is left out: at one place there lies one record, and a newer one is derived anew.
"""

import json
from typing import Any

from engramlog.engine.client.copying.places import Moved
from engramlog.schemas.codec import Codec
from engramlog.schemas.derived import RecallChangedEvent, RecordDerived
from engramlog.schemas.envelope import Envelope
from engramlog.schemas.summaries import SummaryCreatedEvent, SummaryFailedEvent

Places = tuple[int, int]
"""An old and a new partition."""


def at_of(event: Envelope | None) -> int | None:
    """The offset at which a mark was resolved; None: none, or no mark."""
    if isinstance(event, (SummaryCreatedEvent, SummaryFailedEvent)):
        return None
    at = getattr(getattr(event, "data", None), "at", None)
    return at if isinstance(at, int) else None


def speaks_of_offsets(event: Envelope | None) -> bool:
    """Whether an event holds an offset of the records."""
    spoken = (RecordDerived, RecallChangedEvent, SummaryCreatedEvent, SummaryFailedEvent)
    return isinstance(event, spoken) or at_of(event) is not None


def is_of_nothing(event: Envelope | None, between: Places, moved: Moved) -> bool:
    """Whether an event is a derivation of a copy of a record that is gone: it was replaced, or forgotten."""
    return isinstance(event, RecordDerived) and moved.of(*between).find(event.data.offset) is None


def translated(event: Envelope, value: bytes, between: Places, moved: Moved, *, codec: Codec[Any]) -> bytes:
    """An encoded event with its offsets as those of the copy; its own bytes where none of them changes.

    Args:
        event: The event.
        value: Its bytes.
        between: The old partition that it comes from, and the new one that it goes to.
        moved: Where the records lie in the copy.
        codec: What lifts an old version.
    """
    document = json.loads(value)
    if document["type"] != type(event).model_fields["type"].default:
        document = json.loads(codec.decode_current(value)[1])
    data = _moved(event, document["data"], between, moved)
    if data == document["data"]:
        return value
    return json.dumps(document | {"data": data}, ensure_ascii=False, separators=(",", ":")).encode()


def _moved(event: Envelope, data: dict[str, Any], between: Places, moved: Moved) -> dict[str, Any]:
    places = moved.of(*between)
    if isinstance(event, RecordDerived):
        return data | {"offset": places.at(data["offset"])}
    if isinstance(event, RecallChangedEvent):
        before = data["before"]
        of_all = event.agentid is None
        return data | {"before": moved.erasure(between[0], before, between[1]) if of_all else places.below(before)}
    if isinstance(event, (SummaryCreatedEvent, SummaryFailedEvent)):
        covers = data["covers"]
        first, last = places.since(covers["first"]), places.at(covers["last"])
        found = data | {"covers": covers | {"first": first, "last": last}}
        return found | {"at": places.since(data["at"])} if "at" in data else found
    return data | {"at": places.below(data["at"])}
