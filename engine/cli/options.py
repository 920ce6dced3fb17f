"""Options that commands share, and what becomes of them."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import logs

if TYPE_CHECKING:
    from engramlog.engine.settings import Settings
    from engramlog.schemas.asking import AsOf
    from engramlog.schemas.scope import Scope

Function = Callable[..., Any]

DEFAULT_TENANT = "default"
DEFAULT_AGENT = "default"
_SESSION = "One session; without it, all of the agent's."
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


@dataclass(frozen=True, slots=True)
class Flags:
    """What was said before the command.

    Attributes:
        log_level: Level of the logs; None: as the settings say for what runs on and on, WARNING for everything else.
        debug: Whether a failure shows its traceback.
    """

    log_level: str | None = None
    debug: bool = False


def load_settings(*, serves: bool = False, **overrides: Any) -> "Settings":
    """The settings: options over ``ENGRAMLOG_*`` over defaults. Sets up logging, too.

    Args:
        serves: The command runs until it is stopped, and logs as such.
        overrides: Fields of the settings; None: not given.

    Raises:
        ConfigurationError: A value is out of range; the message names the setting.
    """
    from pydantic import ValidationError

    from engramlog.engine.settings import Settings
    from engramlog.schemas.errors import ConfigurationError
    from engramlog.schemas.topics import Topics

    try:
        settings = Settings(**{name: value for name, value in overrides.items() if value is not None})
        Topics(settings.prefix, settings.partitions)  # raises
        level = _level(settings, serves=serves)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        message = f"{name}={first['input']!r}: {first['msg']} (option, or environment ENGRAMLOG_{name.upper()})"
        raise ConfigurationError(message) from None
    if level not in LEVELS:
        raise ConfigurationError(f"log_level={level!r}: one of {', '.join(LEVELS)} (ENGRAMLOG_LOG_LEVEL)")
    logs.set_up(level, brief=not serves and level != "DEBUG")
    return settings


def _level(settings: "Settings", *, serves: bool) -> str:
    flags = click.get_current_context().find_object(Flags) or Flags()
    if flags.log_level:
        return flags.log_level.upper()
    return settings.log_level.upper() if serves or "log_level" in settings.model_fields_set else "WARNING"


def settings_options(
    *, serves: bool = False, timeout: bool = True, reads: bool = False
) -> Callable[[Function], Function]:
    """Give a command ``--bootstrap-servers``, ``--prefix`` and ``--timeout``; it is called with ``settings``.

    One that reads memory gets ``--projection``, too.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def command(*, bootstrap_servers: str | None, prefix: str | None, **rest: Any) -> Any:
            settings = load_settings(
                serves=serves,
                bootstrap_servers=bootstrap_servers,
                prefix=prefix,
                timeout_s=rest.pop("timeout_s", None),
                projection=rest.pop("projection", None),
            )
            return function(settings=settings, **rest)

        options = [
            click.option(
                "--bootstrap-servers",
                metavar="HOST:PORT",
                help="The Kafka cluster. [env: ENGRAMLOG_BOOTSTRAP_SERVERS; default: localhost:9092]",
            ),
            click.option(
                "--prefix", metavar="NAME", help="What topic names begin with. [env: ENGRAMLOG_PREFIX; default: memory]"
            ),
        ]
        if timeout:
            options.append(
                click.option(
                    "--timeout",
                    "timeout_s",
                    type=click.FloatRange(min=0, min_open=True),
                    metavar="SECONDS",
                    help="Limit of each call. [env: ENGRAMLOG_TIMEOUT_S; default: 10]",
                )
            )
        if reads:
            options.append(
                click.option(
                    "--projection",
                    metavar="NAME",
                    help="Ask a read-only projection ('engramlog replay --until … --name NAME'). "
                    "[env: ENGRAMLOG_PROJECTION]",
                )
            )
        return with_options(options, command)

    return decorate


def scope_options(function: Function) -> Function:
    """Give a command ``--tenant --agent --session --user --all-users``; it is called with ``scope``."""
    return _scoped(function, _SESSION)


def talk_scope_options(function: Function) -> Function:
    """The same for a command that looks at all sessions, where the session is the one that asks."""
    return _scoped(function, "The session that asks: its talk says what 'it' and 'there' mean. It restricts nothing.")


def _scoped(function: Function, session_help: str) -> Function:
    @functools.wraps(function)
    def command(*, tenant: str, agent: str, session: str | None, user: str | None, all_users: bool, **rest: Any) -> Any:
        return function(scope=make_scope(tenant, agent, session, user, all_users=all_users), **rest)

    return with_options([*_whose(DEFAULT_TENANT, DEFAULT_AGENT, session_help), _ALL_USERS], command)


def default_scope_options(function: Function) -> Function:
    """Give a command ``--tenant --agent --session --user``: whose memory it is where a file does not say."""
    return with_options(_whose(None, None, _SESSION), function)


def make_scope(tenant: str, agent: str, session: str | None, user: str | None, *, all_users: bool) -> "Scope":
    """A scope of options.

    Raises:
        click.UsageError: An id is not valid.
    """
    from pydantic import ValidationError

    from engramlog.schemas.scope import Scope

    try:
        return Scope(tenant=tenant, agent=agent, session=session, user=user, users="all" if all_users else "own")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise click.UsageError(f"--{first['loc'][0]} {first['input']!r}: {first['msg']}") from None


def health_option(function: Function) -> Function:
    """Give a command that takes settings ``--health-port``."""

    @functools.wraps(function)
    def command(*, settings: "Settings", health_port: int | None, **rest: Any) -> Any:
        if health_port is not None:
            settings = settings.model_copy(update={"health_port": health_port})
        return function(settings=settings, **rest)

    option = click.option(
        "--health-port",
        type=click.IntRange(0, 65535),
        metavar="PORT",
        help="Serve /live, /ready and /metrics there; 0: any free port. [env: ENGRAMLOG_HEALTH_PORT; default: off]",
    )
    return with_options([option], command)


json_option = click.option("--json", "as_json", is_flag=True, help="JSON on standard output, and nothing else there.")


def instant(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Callback of an option that takes an instant, ``2026-03-01T00:00:00Z``; a time without an offset is refused."""
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no time; write 2026-03-01T00:00:00Z", ctx, param) from None
    if time.tzinfo is None:
        message = f"{value!r} has no offset, so it names no instant; write {value}Z or {value}+08:00"
        raise click.BadParameter(message, ctx, param)
    return time


def as_of_options(function: Function) -> Function:
    """Give a command ``--as-of`` and ``--as-of-happened``; it is called with ``as_of``, an ``AsOf`` or None."""

    @functools.wraps(function)
    def command(*, as_of: "AsOf | None", as_of_happened: datetime | None, **rest: Any) -> Any:
        return function(as_of=happened_until(as_of, as_of_happened), **rest)

    return with_options([as_of_option, as_of_happened_option], command)


def happened_until(as_of: "AsOf | None", happened: datetime | None) -> "AsOf | None":
    """A point in the past of two options.

    Raises:
        click.UsageError: Both were given.
    """
    from engramlog.schemas.asking import AsOf

    if happened is None:
        return as_of
    if as_of is not None:
        raise click.UsageError("give one point in the past: --as-of or --as-of-happened")
    return AsOf(happened=happened)


def _point(ctx: click.Context, param: click.Parameter, value: str | None) -> "AsOf | None":
    """Callback of an option that takes a point in the past."""
    from engramlog.schemas.asking import point_of
    from engramlog.schemas.errors import RequestRefused

    try:
        return point_of(value)
    except RequestRefused as error:
        raise click.BadParameter(error.message, ctx, param) from None


as_of_option = click.option(
    "--as-of",
    callback=_point,
    metavar="TIME|TOKEN|OFFSET",
    help="Memory as it was then: at a log time, a token of 'engramlog status --token', or an offset of the partition.",
)
as_of_happened_option = click.option(
    "--as-of-happened", callback=instant, metavar="TIME", help="Only what had happened until then."
)


def with_options(options: Sequence[Callable[[Any], Any]], function: Function) -> Function:
    """Give a command options, in the order in which its help shows them."""
    for option in reversed(options):
        function = option(function)
    return function


def _whose(tenant: str | None, agent: str | None, session_help: str) -> list[Callable[[Any], Any]]:
    shown = tenant is not None
    return [
        click.option("--tenant", default=tenant, show_default=shown, metavar="ID", help="The tenant."),
        click.option("--agent", default=agent, show_default=shown, metavar="ID", help="The agent."),
        click.option("--session", metavar="ID", help=session_help),
        click.option("--user", metavar="ID", help="The user; without it, what is shared by all users."),
    ]


_ALL_USERS = click.option("--all-users", is_flag=True, help="See every user's records, not only --user's and shared.")
