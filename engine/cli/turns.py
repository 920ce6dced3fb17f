"""One remembered turn on its way from a file to the log."""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError

from engramlog.engine.cli.options import DEFAULT_AGENT, DEFAULT_TENANT
from engramlog.schemas.codec import invalid
from engramlog.schemas.envelope import RecordWritten
from engramlog.schemas.errors import InvalidEvent, LoneSurrogate, SchemaViolation
from engramlog.schemas.json_values import WHOLE_TEXT
from engramlog.schemas.records import MemoryRecord

SOURCE = "engramlog/cli"
_IDS = uuid.UUID("0b0e1f8a-6c55-5d0c-9d0e-6a3d6f7c2b11")
_RECORD: TypeAdapter[MemoryRecord] = TypeAdapter(MemoryRecord)


@dataclass(frozen=True, slots=True)
class Whose:
    """Whose memory it is, where the file does not say: what the command line was given.

    Attributes:
        tenant: Tenant; None: not given.
        agent: Agent; None: not given.
        session: Session; None: not given.
        user: User; None: not given.
    """

    tenant: str | None = None
    agent: str | None = None
    session: str | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A record, whose memory it is, and where it comes from.

    Attributes:
        event: The event to publish.
        where: Its place in the file, for messages: ``talk.jsonl:7``.
    """

    event: RecordWritten
    where: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it one record: tenant, agent, record id."""
        return self.event.tenantid, self.event.agentid, self.event.id


@dataclass(frozen=True, slots=True)
class Invalid:
    """A piece of a file that is no record.

    Attributes:
        where: Its place in the file.
        error: What is wrong with it.
    """

    where: str
    error: InvalidEvent


class Reads(Protocol):
    """Makes a record of a dict."""

    def __call__(
        self, fields: dict[str, Any], /, *, timestamp: datetime | None = None, record_id: str | None = None
    ) -> MemoryRecord:
        """Make it; ``timestamp`` and ``record_id`` hold where the dict does not say.

        Raises:
            InvalidEvent: It is no record.
        """


def _own_fields(
    fields: dict[str, Any], /, *, timestamp: datetime | None = None, record_id: str | None = None
) -> MemoryRecord:
    known = {"timestamp": timestamp.isoformat()} if timestamp is not None else {}
    known |= {"record_id": record_id} if record_id is not None else {}
    return _RECORD.validate_json(json.dumps({**known, **fields}, ensure_ascii=False).encode())


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes turns of plain dicts.

    Attributes:
        whose: Whose memory it is where the file does not say.
        ids_from_content: Records without an id get one that is made of their content and place in the file, so that
            publishing the file again doubles nothing. Otherwise they get a UUIDv7.
        now: When a record happened that does not say so.
    """

    whose: Whose
    now: datetime
    ids_from_content: bool = False

    def without(self, *names: str) -> "Maker":
        """The same, without the command line's word on these parts of :class:`Whose`."""
        return replace(self, whose=replace(self.whose, **dict.fromkeys(names, None)))

    def __call__(
        self,
        fields: Mapping[str, Any],
        *,
        where: str,
        ordinal: int,
        agent: str | None = None,
        session: str | None = None,
        user: str | None = None,
        tenant: str | None = None,
        happened: datetime | None = None,
        read: "Reads | None" = None,
    ) -> Turn | Invalid:
        """Make a turn.

        Args:
            fields: Fields of a :class:`MemoryRecord`, JSON values, or what ``read`` takes.
            where: Its place in the file, for messages.
            ordinal: Its number in the file.
            agent: The agent that the file names; None: the command line's, else ``default``.
            session: Likewise; none by default.
            user: Likewise; none (shared) by default.
            tenant: Likewise; ``default`` by default.
            happened: When it happened, unless ``fields`` say so; the maker's ``now`` by default.
            read: What makes a record of ``fields``; by default they are the record's own.
        """
        tenant = tenant or self.whose.tenant or DEFAULT_TENANT
        agent = agent or self.whose.agent or DEFAULT_AGENT
        session = session or self.whose.session
        user = user or self.whose.user
        said = dict(fields)
        record_id: str | None = None
        if self.ids_from_content and "record_id" not in said:
            content = json.dumps([tenant, agent, session, ordinal, said], sort_keys=True)
            record_id = str(uuid.uuid5(_IDS, content))
        try:
            made = (read or _own_fields)(said, timestamp=happened or self.now, record_id=record_id)
            event = RecordWritten.of(made, source=SOURCE, tenant=tenant, agent=agent, sessionid=session, userid=user)
        except InvalidEvent as error:
            return Invalid(where, error)
        except ValidationError as error:
            return Invalid(where, invalid(error))
        except UnicodeEncodeError:
            return Invalid(where, LoneSurrogate(f"a string holds half a character; {WHOLE_TEXT}"))
        except (TypeError, ValueError) as error:
            return Invalid(where, SchemaViolation(str(error)))
        return Turn(event, where)
