"""Carrying out ``engramlog rederive``: the estimate, the consent, the lane's progress, the switch."""

import asyncio
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

import click

from engramlog.engine.cli import output
from engramlog.engine.cli.consent import agree
from engramlog.engine.cli.failures import FOUND, OK
from engramlog.engine.cli.replay_planning import require_history
from engramlog.engine.cli.replay_showing import Showing
from engramlog.engine.cli.replay_watched import probing_of, shown, telling
from engramlog.engine.history.generations import Generation
from engramlog.engine.replay.opening import Building, Workshop, workshop
from engramlog.engine.replay.rederiving import Chosen, active_generation, choose, rederive
from engramlog.engine.replay.rederiving_estimate import Estimate, degraded_in, estimate, remote_models
from engramlog.engine.replay.rederiving_lane import BATCH
from engramlog.engine.settings import Settings

NICENESS: Final = 10
"""The engine beside us goes first: its readers wait for the same processors."""
_EMBEDDING: Final = ("embedder", "embedding_model", "embedding_dimensions", "embedding_urls")
_DERIVING: Final = ("deriver", "llm_model", "llm_urls")


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for.

    Attributes:
        settings: The settings of the command.
        named: The options that choose models, those that were given.
        as_json: JSON lines instead of tables.
        yes: Do not ask.
        again: See :func:`~engramlog.engine.replay.rederiving.choose`.
        degraded_only: Only what was derived in a simpler way than configured; the rest stands as it is.
        switch: Whether it takes over.
        keep: How many older versions stay.
        batch: Records at once; None: as usual.
        dead_letter_new: See :class:`~engramlog.engine.replay.opening.Building`.
        accept_differences: See :func:`~engramlog.engine.replay.rederiving.rederive`.
    """

    settings: Settings
    named: Mapping[str, Any]
    as_json: bool
    yes: bool
    again: bool
    degraded_only: bool
    switch: bool
    keep: int
    batch: int | None
    dead_letter_new: bool
    accept_differences: bool

    @classmethod
    def of(cls, settings: Settings, options: dict[str, Any], *, as_json: bool) -> Self:
        """From a command's options.

        Raises:
            click.UsageError: None of them chooses a model; or some do, and only what is degraded was asked for.
        """
        named = {name: value for name in (*_EMBEDDING, *_DERIVING) if (value := options.pop(name)) is not None}
        if named and options["degraded_only"]:
            raise click.UsageError("--degraded-only is by the models in use: name none with it")
        if not named and not options["again"] and not options["degraded_only"]:
            raise click.UsageError(
                "say by what: --embedder NAME or --deriver rules|llm (by the same: --again, or --degraded-only)"
            )
        return cls(settings, named, as_json, **options)

    def applied(self, made: Generation) -> Settings:
        """The settings of the new generation: what is not named is as in the one in use.

        Who names an embedder names all about it: the rest is as the command's own settings say, and likewise of the
        deriver.
        """
        changes = dict(made.settings)
        for names in (_EMBEDDING, _DERIVING):
            if names[0] in self.named:
                changes |= {name: getattr(self.settings, name) for name in names}
            changes |= {name: self.named[name] for name in names if name in self.named}
        return Settings.model_validate(self.settings.model_dump() | changes)


async def tell_estimate(asked: Asked) -> None:
    """Say what it would take; nothing is written, and no remote model is asked."""
    require_history(asked.settings)
    async with workshop(asked.settings) as place:
        active = await active_generation(place)
        found = await estimate(place, asked.applied(active), only=await _only(asked, place, active))
    show_estimate(found, as_json=asked.as_json)


async def _only(asked: Asked, place: Workshop, active: Generation) -> set[tuple[int, int]] | None:
    """Where the records lie that are to be derived; None: all are."""
    return await degraded_in(place, active.number) if asked.degraded_only else None


def show_estimate(found: Estimate, *, as_json: bool) -> None:
    """Print an estimate."""
    if as_json:
        output.print_json({"event": "plan", **asdict(found)})
        return
    seconds = "not timed: that would be paid for" if found.seconds is None else f"about {found.seconds:,.0f}"
    rows: list[tuple[str, Any]] = [
        ("events in the log", f"{found.events:,}"),
        ("records with a text", f"{found.records:,}"),
        ("characters", f"{found.chars:,}"),
        ("tokens to embed (o200k, counted exactly, without context)", f"{found.tokens:,}"),
        ("seconds", f"{seconds} (from {found.sampled:,} records)" if found.seconds is not None else seconds),
        ("bytes of the new topic, about", f"{found.topic_bytes:,}"),
    ]
    if found.llm_tokens is not None:
        rows.insert(4, ("tokens that the language model reads, about", f"{found.llm_tokens:,}"))
    if found.paid:
        rows.append(("remote", ", ".join(f"{what} by {model}" for what, model in found.paid.items())))
    output.print_table("Rederive: nothing was done", ("what", "value"), rows, last_wraps=True)


async def carry_out(asked: Asked) -> int:
    """Derive anew. Returns the exit code."""
    require_history(asked.settings)
    async with workshop(asked.settings) as place:
        active = await active_generation(place)
        only = await _only(asked, place, active)
        if only is not None and not only:
            _tell_none(active, as_json=asked.as_json)
            return OK
        settings = asked.applied(active)
        await _consented(asked, place, settings, only)
        os.nice(max(0, NICENESS - os.nice(0)))
        chosen = await choose(place, settings, again=asked.again or asked.degraded_only)
        with Showing(as_json=asked.as_json) as showing:
            keep_of = active.number if asked.degraded_only else None
            return await _shown(asked, place, chosen, showing, keep_of=keep_of)


def _tell_none(active: Generation, *, as_json: bool) -> None:
    if as_json:
        output.print_json({"event": "done", "generation": active.number, "switched": False, "degraded": 0})
    else:
        output.say(f"nothing to do: generation {active.number} was derived by the models that it names, all of it")


async def _consented(
    asked: Asked, place: Workshop, settings: Settings, only: Collection[tuple[int, int]] | None
) -> None:
    """Ask before a remote model is asked, with what there is to be embedded.

    Raises:
        click.Abort: No.
        click.UsageError: There is nobody to ask.
    """
    paid = remote_models(settings)
    if not paid or asked.yes:
        return
    found = await estimate(place, settings, only=only)
    models = " and ".join(f"{model} ({what})" for what, model in paid.items())
    reads = f", {found.llm_tokens:,} for the language model" if found.llm_tokens is not None else ""
    question = f"{found.records:,} records, {found.tokens:,} tokens{reads}, go to {models}. Go on?"
    await asyncio.to_thread(agree, question, yes=False)


async def _shown(asked: Asked, place: Workshop, chosen: Chosen, showing: Showing, *, keep_of: int | None) -> int:
    async with probing_of(asked.settings, place, command="rederive") as probing:

        async def on_deriving(made: Generation) -> None:
            how = "goes on with" if chosen.resumed else "begins"
            if asked.as_json:
                told = {"generation": made.number, "model": made.model, "dimension": made.dimension}
                output.print_json({"event": "deriving", **told, "resumed": chosen.resumed})
            else:
                output.say(f"{how} generation {made.number}: {made.model}, {made.dimension} components")

        doing = rederive(
            place,
            chosen,
            Building.beside(asked.settings, dead_letter_new=asked.dead_letter_new, report=showing.progress),
            batch=asked.batch or BATCH,
            switch=asked.switch,
            accept_differences=asked.accept_differences,
            keep=asked.keep,
            keep_of=keep_of,
            on_deriving=on_deriving,
            on_phase=telling(showing, probing),
        )
        if (done := await shown(doing, showing)) is None:
            return FOUND
        await probing.finish()
    if done.outcome.switched_s is None:
        _tell_built(done.made, as_json=asked.as_json)
    else:
        showing.done(done.outcome, probing)
    return OK


def _tell_built(made: Generation, *, as_json: bool) -> None:
    if as_json:
        output.print_json({"event": "done", "generation": made.number, "switched": False})
    else:
        output.say(f"generation {made.number} is built; the same command without --no-switch lets it take over")
