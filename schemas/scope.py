"""Whose memory: the scope that every query and every event is bound to."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, StringConstraints
from pydantic.dataclasses import dataclass as validated

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
"""An id: 1 to 128 characters, any but control characters. Compared exactly, never normalised."""

Users = Literal["own", "all"]
"""Whose records a request sees: its own user's and the shared ones, or every user's."""


@validated(frozen=True, config=ConfigDict(extra="forbid"))
class Scope:
    """A tenant's agent, or one of its sessions, as one user sees it. No query can be built without one.

    Attributes:
        tenant: The tenant; nothing ever crosses it.
        agent: The agent; all its events are in one partition, in one order.
        session: One session, or None for all sessions of the agent in log order.
        user: The user who asks: records of other users are not seen, shared records (without a user) are.
            None sees only shared records.
        users: ``"all"`` lifts that restriction.
    """

    tenant: Identifier
    agent: Identifier
    session: Identifier | None = None
    user: Identifier | None = None
    users: Users = "own"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where an event lies in the log.

    Attributes:
        topic: Full topic name, prefix included.
        partition: Partition number, from 0.
        offset: Offset of the event, from 0.
    """

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"
