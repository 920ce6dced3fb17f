"""What of a log concerns a tenant, or an agent."""

import json
from dataclasses import replace

from engramlog.engine.archive.lines import Filter
from engramlog.engine.client.copying.ordering import is_watermark
from engramlog.engine.client.reader import Decoded, Message
from engramlog.schemas.keys import Key, event_key, partition_for


def narrowed(decoded: Decoded, wanted: Filter, *, partitions: int) -> Message | None:
    """A good message, as an archive of these holds it; None: it concerns somebody else.

    Watermarks are in every archive: in offsets of the archive's own records they say how far those are derived.
    An erasure of the whole tenant is, for a single agent, one of that agent, in its partition only.
    """
    key, message = decoded.key, decoded.message
    assert key is not None
    if is_watermark(key):
        return message
    if wanted.tenant not in {None, key.tenant}:
        return None
    if wanted.agent in {None, key.agent}:
        return message
    here = message.position.partition == partition_for(key.tenant, wanted.agent or "", partitions)
    return None if key.agent or not here else _of_agent(message, key, wanted.agent or "")


def _of_agent(message: Message, key: Key, agent: str) -> Message:
    """An event of a tenant as one of an agent: an erasure, or the change of recall that it led to."""
    own = event_key(key.tenant, agent, key.event_id or "")
    if message.value is None:
        return replace(message, key=own)
    event = json.loads(message.value)
    data = event["data"]
    if data.get("scope") == "tenant":
        data |= {"scope": "agent"}
    value = json.dumps(event | {"agentid": agent, "data": data}, ensure_ascii=False, separators=(",", ":"))
    return replace(message, key=own, value=value.encode())
