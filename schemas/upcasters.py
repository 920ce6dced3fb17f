"""Old event versions are lifted when they are read, so that no consumer ever sees one.

An upcaster takes the whole event of version n as parsed JSON and returns it as version n + 1, with its ``type``
changed accordingly. Register it under the type it takes: ``"engramlog.record.written.v1": to_v2``.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engramlog.schemas.errors import ConfigurationError, NewerVersion, UnknownType

JsonEvent = dict[str, Any]
Upcaster = Callable[[JsonEvent], JsonEvent]

UPCASTERS: Mapping[str, Upcaster] = {}
"""All event types are in their first version."""

_VERSIONED = re.compile(r"(?P<name>.+)\.v(?P<version>[1-9][0-9]{0,5})")


def split_type(event_type: str) -> tuple[str, int]:
    """``a.b.v3`` is ``("a.b", 3)``.

    Raises:
        UnknownType: It does not end in a version.
    """
    match = _VERSIONED.fullmatch(event_type)
    if not match:
        raise UnknownType(f"the event type {event_type!r} does not end in its version (.v1)")
    return match["name"], int(match["version"])


class Lift:
    """The chain of upcasters for a set of current event types.

    Args:
        current: The types of today, each in its newest version.
        upcasters: What lifts the older ones.

    Raises:
        ConfigurationError: The chain has a hole, or an upcaster that leads nowhere.
    """

    def __init__(self, current: Iterable[str], upcasters: Mapping[str, Upcaster]) -> None:
        self._newest = dict(split_type(t) for t in current)
        self._upcasters = upcasters
        wanted = {f"{name}.v{v}" for name, newest in self._newest.items() for v in range(1, newest)}
        if missing := sorted(wanted - upcasters.keys()):
            raise ConfigurationError(f"no upcaster for {', '.join(missing)}: logs that hold them could not be read")
        if astray := sorted(upcasters.keys() - wanted):
            raise ConfigurationError(f"upcasters that lead to no current event type: {', '.join(astray)}")

    def needs(self, event_type: str) -> bool:
        """Whether the type is an older version.

        Raises:
            UnknownType: The type is not ours.
            NewerVersion: Its version is from the future.
        """
        name, version = split_type(event_type)
        newest = self._newest.get(name)
        if newest is None:
            raise UnknownType(f"unknown event type {event_type!r}; known are {', '.join(sorted(self._newest))}")
        if version > newest:
            raise NewerVersion(f"{event_type!r} is newer than this engramlog, which knows v{newest}: upgrade it first")
        return version < newest

    def __call__(self, event: JsonEvent) -> JsonEvent:
        """Lift a parsed event to its newest version."""
        while self.needs(event["type"]):
            before = event["type"]
            event = self._upcasters[before](event)
            if split_type(event["type"])[1] != split_type(before)[1] + 1:
                raise ConfigurationError(f"the upcaster of {before!r} made {event['type']!r}")
        return event
