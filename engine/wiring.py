"""The one place that chooses backends: from the settings to the models and stores that consumers work with."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Self

from engramlog.engine import tokens
from engramlog.engine.adopting import recorded_vectors
from engramlog.engine.derive import Refiner
from engramlog.engine.derivers import rules
from engramlog.engine.derivers.llm import LlmDeriver
from engramlog.engine.embedders import chosen, embedder_of
from engramlog.engine.expansion_llm import LlmExpansion
from engramlog.engine.history import History
from engramlog.engine.history.generations import Generation
from engramlog.engine.history.versions import VECTORS, Version
from engramlog.engine.models.endpoints import Endpoints
from engramlog.engine.ports import Embedder, VectorEngine
from engramlog.engine.settings import Settings
from engramlog.engine.summarisers import Summariser, summariser_by_name
from engramlog.engine.vectors.opening import collection_of, vector_engine_of
from engramlog.engine.vectors.vectors import Vectors
from engramlog.schemas.errors import ConfigurationError

_log = logging.getLogger(__name__)

DEFAULT_LLM = "gpt-4o-mini"
NEEDS_MODEL = frozenset({"derive", "index"})
NEEDS_VECTORS = frozenset({"index"})
DRAIN_S = 15.0
"""How long what was taken over from stays open, for the requests that are under way, in seconds."""


@dataclass(slots=True)
class Backends:
    """The models and stores of one process, as far as its consumers need them.

    Attributes:
        history: The history.
        embedder: What makes vectors; None: nobody here needs one.
        refiner: A language model that derives; None: the rules do.
        expansion: A language model that expands questions; None: the rules do.
        summariser: What makes summaries; None: nobody here does.
        vectors: The vectors; None: nobody here needs them, or another process holds the embedded store.
        version: The version of the vectors that is in use.
    """

    history: History
    version: Version
    embedder: Embedder | None = None
    refiner: Refiner | None = None
    expansion: LlmExpansion | None = None
    summariser: Summariser | None = None
    vectors: Vectors | None = None
    _engine: VectorEngine | None = None
    _endpoints: Endpoints | None = None
    _deriving_endpoints: Endpoints | None = None
    _ahead: tuple[int, Embedder] | None = None
    _retired: dict[asyncio.Task[None], Callable[[], Awaitable[None]]] = field(default_factory=dict)

    @classmethod
    async def open(cls, settings: Settings, history: History, names: Collection[str]) -> Self:
        """Open what some consumers need. The history must have been started.

        Raises:
            ConfigurationError: Model and collection do not fit together, or a package is missing.
            ModelUnavailable: The embedding endpoint does not answer, and its dimension is not known.
            StoreUnavailable: A store does not answer.
        """
        found = cls(history, (await history.versions.active())[VECTORS])
        wanted = set(names)
        searching = "answer" in wanted and (settings.vectors_are_served() or bool(wanted & NEEDS_VECTORS))
        try:
            if settings.deriver == "llm" or settings.summariser == "llm":
                found._open_endpoints(settings)
            if "summarise" in wanted:
                found._open_summariser(settings)
            if wanted & {"answer", "summarise"}:
                await asyncio.to_thread(tokens.prepare)
            if "derive" in wanted:
                await asyncio.to_thread(rules.prepare)
            if wanted & NEEDS_MODEL or searching:
                await found._open_models(settings)
            if searching or wanted & NEEDS_VECTORS:
                await found._open_vectors(settings)
        except BaseException:
            await found.close()
            raise
        return found

    async def close(self) -> None:
        """Close everything but the history."""
        for task, stop in list(self._retired.items()):
            if task.cancel():
                await stop()
        ahead = None if self._ahead is None else self._ahead[1]
        for used in (self._engine, self.embedder, ahead, self._endpoints, self._deriving_endpoints):
            if used is not None:
                await used.stop()

    async def follow(self, settings: Settings) -> "Backends | None":
        """Go over to the vectors that are active now, if they are others. What was used before is closed a while later.

        Returns:
            What is to be used from now on; None: nothing has changed.

        Raises:
            ConfigurationError: They cannot be opened as configured.
            ModelUnavailable: Their model cannot be reached now.
            StoreUnavailable: They cannot be opened now; what was used goes on being used.
        """
        active = (await self.history.versions.active())[VECTORS]
        if active.number == self.version.number:
            return None
        found = replace(self, version=active, _retired={}, _ahead=None)
        another = self.embedder is not None and active.generation != self.version.generation
        if another:
            found.embedder = await self._loaded_ahead(settings, active)
        if self.vectors is not None:
            await found._open_vectors(settings)  # noqa: SLF001 - one of us
        if another:
            await found._open_refiner(settings)  # noqa: SLF001 - one of us
            self._ahead = None
        _log.info("%s takes over from %s", active, self.version)
        found._retired = self._retired  # noqa: SLF001 - one of us
        found._retire(self)  # noqa: SLF001 - one of us
        return found

    async def _loaded_ahead(self, settings: Settings, version: Version) -> Embedder:
        """The model of another version. It stays loaded until that can be opened: this is tried again and again."""
        if self._ahead is not None and self._ahead[0] != version.generation:
            await self._ahead[1].stop()
            self._ahead = None
        if self._ahead is None:
            loading = Backends(self.history, version)
            await loading._open_embedder(settings)
            assert loading.embedder is not None
            self._ahead = version.generation, loading.embedder
        return self._ahead[1]

    def _retire(self, before: "Backends") -> None:
        """Close what is used no more, when nobody can still be using it."""

        async def stop() -> None:
            if before._engine is not None and before._engine is not self._engine:  # noqa: SLF001 - one of us
                await before._engine.stop()  # noqa: SLF001 - one of us
            if before.embedder is not None and before.embedder is not self.embedder:
                await before.embedder.stop()
            endpoints = before._deriving_endpoints  # noqa: SLF001 - one of us
            if endpoints is not None and endpoints is not self._deriving_endpoints:
                await endpoints.stop()

        async def later() -> None:
            await asyncio.sleep(DRAIN_S)
            await stop()

        task = asyncio.create_task(later(), name="engramlog-retire")
        self._retired[task] = stop
        task.add_done_callback(lambda done: self._retired.pop(done, None))

    async def _open_embedder(self, settings: Settings) -> None:
        """The model that the active generation is made with; of a new log, the one that the settings name."""
        number = self.version.generation
        known = await self.history.generations.all()
        wanted = embedder_of(settings)
        await wanted.start()
        here = Generation(number, wanted.model, wanted.dimension, settings_of(settings))
        made = known.get(number) or await self._entered(settings, here)
        if not made.holds(wanted.model, wanted.dimension):
            await wanted.stop()
            if not any(one.holds(wanted.model, wanted.dimension) for one in known.values()):
                raise ConfigurationError(_another_model(made, here))
            _log.warning("the vectors are of %s: it is used, not the configured %s", made.model, here.model)
            wanted = embedder_of(settings.model_copy(update=dict(made.settings)))
            await wanted.start()
            if not made.holds(wanted.model, wanted.dimension):
                await wanted.stop()
                raise ConfigurationError(_another_model(made, Generation(number, wanted.model, wanted.dimension)))
        self.embedder = wanted
        _log.info("vectors by %s, %d components", made.model, made.dimension)

    async def _entered(self, settings: Settings, here: Generation) -> Generation:
        """Enter a generation that this database does not know; where the log has vectors of it, as it has them."""
        vectors = await recorded_vectors(settings, here.number)
        if vectors is None:
            return await self.history.generations.enter(here)
        made = replace(here, model=vectors.model, dimension=vectors.dimension)
        return await self.history.generations.enter(made) if made == here else made

    async def _open_models(self, settings: Settings) -> None:
        await self._open_embedder(settings)
        await self._open_refiner(settings)
        if settings.deriver == "llm" and self._endpoints is not None:
            self.expansion = LlmExpansion(self._endpoints, model=settings.llm_model or DEFAULT_LLM)

    async def _open_refiner(self, settings: Settings) -> None:
        """What derives: in the first generation as the settings say now, in a later one as it was made."""
        number = self.version.generation
        made = (await self.history.generations.all()).get(number) if number > 1 else None
        chosen_here = settings if made is None else settings.model_copy(update=dict(made.settings))
        if chosen_here.deriver != settings.deriver:
            _log.warning(
                "generation %d is derived by %s: so are further records, whatever ENGRAMLOG_DERIVER=%s says",
                *(number, chosen_here.deriver, settings.deriver),
            )
        if made is None and self._endpoints is not None:
            self.refiner, self._deriving_endpoints = _refiner_of(settings, self._endpoints), None
        else:
            self.refiner, self._deriving_endpoints = opened_refiner(chosen_here)

    def _open_endpoints(self, settings: Settings) -> None:
        self._endpoints = _endpoints_of(settings)

    def _open_summariser(self, settings: Settings) -> None:
        self.summariser = summariser_by_name(
            settings.summariser,
            endpoints=self._endpoints,
            model=settings.llm_model or DEFAULT_LLM,
            timeout_s=settings.summary_timeout_s,
        )

    async def _open_vectors(self, settings: Settings) -> None:
        assert self.embedder is not None
        model, dimension = self.embedder.model, self.embedder.dimension
        spec = collection_of(settings, model=model, dimension=dimension, version=self.version)
        engine = vector_engine_of(settings)
        created = await engine.start(spec)
        if created and await self.history.vectors(self.version.checkpoints).restart():
            _log.warning("the collection %s is new: it is filled from the log again", spec.name)
        self._engine = engine
        self.vectors = Vectors(engine, metadata_keys=settings.filter_keys())


def opened_refiner(settings: Settings) -> tuple[Refiner | None, Endpoints | None]:
    """The language model that derives, if the settings choose one, and what is to be stopped after it."""
    if settings.deriver != "llm":
        return None, None
    endpoints = _endpoints_of(settings)
    return _refiner_of(settings, endpoints), endpoints


def _refiner_of(settings: Settings, endpoints: Endpoints) -> Refiner | None:
    if settings.deriver != "llm":
        return None
    return LlmDeriver(endpoints, model=settings.llm_model or DEFAULT_LLM, timeout_s=settings.llm_timeout_s)


def _endpoints_of(settings: Settings) -> Endpoints:
    return Endpoints(
        settings.urls_of(settings.llm_urls),
        api_key=settings.secret(settings.llm_api_key),
        timeout_s=settings.llm_timeout_s,
        concurrency=settings.llm_concurrency,
        key_setting="ENGRAMLOG_LLM_API_KEY",
    )


async def opened_version(
    settings: Settings, history: History, version: Version, stack: AsyncExitStack
) -> tuple[Vectors, Embedder]:
    """Open another version of the vectors than the active one, with the model that it was made with.

    Args:
        settings: Where it lies.
        history: The database that knows it.
        version: Which.
        stack: What is to be closed goes onto it.

    Raises:
        ConfigurationError: Another process has it open, or its model is not at hand.
        StoreUnavailable: It cannot be opened now.
    """
    made = (await history.generations.all())[version.generation]
    embedder = embedder_of(settings.model_copy(update=dict(made.settings)))
    await embedder.start()
    stack.push_async_callback(embedder.stop)
    if not made.holds(embedder.model, embedder.dimension):
        raise ConfigurationError(_another_model(made, Generation(made.number, embedder.model, embedder.dimension)))
    engine = vector_engine_of(settings)
    await engine.start(collection_of(settings, model=made.model, dimension=made.dimension, version=version))
    stack.push_async_callback(engine.stop)
    return Vectors(engine, metadata_keys=settings.filter_keys()), embedder


def configured_model(settings: Settings, names: Collection[str]) -> str | None:
    """The embedding model that the settings name, if some of these consumers need one."""
    return embedder_of(settings).model if set(names) & NEEDS_MODEL else None


def settings_of(settings: Settings) -> dict[str, Any]:
    """The settings that choose the models of a generation; no secrets."""
    names = ("embedding_model", "embedding_dimensions", "embedding_urls", "deriver", "llm_model", "llm_urls")
    return {"embedder": chosen(settings)} | {name: getattr(settings, name) for name in names}


def _another_model(made: Generation, here: Generation) -> str:
    return (
        f"generation {made.number} of derivations holds vectors of {made.model!r} with {made.dimension} components, "
        f"the configured embedder is {here.model!r} with {here.dimension}: set ENGRAMLOG_EMBEDDER and "
        "ENGRAMLOG_EMBEDDING_MODEL as they were, or derive everything anew: engramlog rederive --embedder NAME"
    )
