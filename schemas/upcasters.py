"""Old event versions are lifted when they are read, so that no consumer ever sees one.

An upcaster takes the whole event of version n as parsed JSON and returns it as version n + 1, with its ``type``
changed accordingly. Register it under the type it takes: ``"engramlog.record.written.v1": to_v2``.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engramlog.schemas.errors import ConfigurationError, NewerVersion, SchemaViolation, UnknownType

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
        """Lift a parsed event to its newest version.

        Raises:
            SchemaViolation: It is not a good event of its own version, so an upcaster stumbled over it.
            ConfigurationError: An upcaster returned something else than the next version.
        """
        while self.needs(before := event["type"]):
            try:
                event = self._upcasters[before](event)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                raise SchemaViolation(f"not a good {before!r}: lifting it failed with {error!r}") from error
            name, version = split_type(before)
            if event.get("type") != (wanted := f"{name}.v{version + 1}"):
                raise ConfigurationError(f"the upcaster of {before!r} made {event.get('type')!r}, not {wanted!r}")
        return event
