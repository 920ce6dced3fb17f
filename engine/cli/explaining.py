"""How memories that were found are shown: for people with every part of every score, for programs as JSON."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from engramlog.engine.cli import output

if TYPE_CHECKING:
    from engramlog.engine.client import Recall
    from engramlog.schemas.recalls import RecallHit, ScorePart

CONFLICT = "⚠"
_TIMES = "\N{MULTIPLICATION SIGN}"
_SHOWN_WORDS = 20


def print_hits(title: str, hits: "Sequence[RecallHit]", *, sums: bool = False) -> None:
    """A table of memories, best first.

    Args:
        title: Above the table.
        hits: The memories.
        sums: Whether a column shows what each score is the sum of, in the place of when and where it was said.
    """
    ranks = _ranks(hits)
    names = [part.name for part in hits[0].parts] if hits and sums else []
    rows: list[tuple[Any, ...]] = []
    for rank, hit in enumerate(hits, 1):
        said = hit.stored.record
        name = f"{said.role} ({said.role_name})" if said.role_name else said.role
        text = " · ".join([*_remarks(hit, ranks), output.said(said)])
        where: tuple[Any, ...] = (said.timestamp.isoformat(sep=" ", timespec="minutes"), hit.stored.session)
        if names:
            where = (f"= {' '.join(f'{part.contribution:+.3f}' for part in hit.parts)}",)
        rows.append((rank, f"{hit.score:.3f}", *where, name, hit.topic, text))
    places = (" + ".join(names),) if names else ("happened", "session")
    output.print_table(title, ("#", "score", *places, "role", "topic", "text"), rows, right=("#", "score"))


def print_explanations(hits: "Sequence[RecallHit]", *, first: int | None = None) -> None:
    """For each memory every part of its score: value x weight = contribution, and what the relevance is made of.

    Args:
        hits: The memories.
        first: Only for so many; None: for all.
    """
    ranks = _ranks(hits)
    for rank, hit in enumerate(hits[:first], 1):
        output.print_table(
            f"#{rank} {hit.stored.record.record_id}: {output.said(hit.stored.record)}",
            ("part", "value", "weight", "adds"),
            [*_part_rows(hit), ("score", "", "", f"{hit.score:+.3f}")],
            right=("value", "weight", "adds"),
        )
        for line in _particulars(hit):
            click.echo(f"  {output.one_line(line)}")
        for remark in _remarks(hit, ranks):
            click.echo(f"  {output.one_line(remark)}")
        click.echo()


def as_json(found: "Recall") -> dict[str, Any]:
    """Memories for programs."""
    return {
        "asked": found.asked,
        "hits": [hit_json(hit) for hit in found.hits],
        "unread": found.unread,
        "degraded": list(found.degraded),
        "now": None if found.now is None else found.now.isoformat(),
        "stale": found.seen.stale,
        "positions": [str(position) for position in found.seen.positions],
    }


def hit_json(hit: "RecallHit") -> dict[str, Any]:
    """One memory for programs."""
    return {
        **hit.model_dump(mode="json", exclude={"stored", "parts", "relevance_parts"}),
        "parts": [_part_json(part) for part in hit.parts],
        "relevance_parts": [_part_json(part) for part in hit.relevance_parts],
        "stored": hit.stored.model_dump(mode="json", exclude_defaults=True),
    }


def _part_json(part: "ScorePart") -> dict[str, Any]:
    return {**part.model_dump(mode="json"), "contribution": part.contribution}


def _part_rows(hit: "RecallHit") -> Iterator[tuple[str, ...]]:
    for part in hit.parts:
        yield part.name, f"{part.value:.3f}", f"{_TIMES} {part.weight:g}", f"= {part.contribution:+.3f}"
        if part.name == "semantic":
            for inner in hit.relevance_parts:
                yield (
                    f"└ {inner.name}",
                    f"{inner.value:.3f}",
                    f"{_TIMES} {inner.weight:g}",
                    f"{inner.contribution:+.3f}",
                )


def _particulars(hit: "RecallHit") -> Iterator[str]:
    if hit.words:
        more = f" and {len(hit.words) - _SHOWN_WORDS} more" if len(hit.words) > _SHOWN_WORDS else ""
        yield f"words: {', '.join(hit.words[:_SHOWN_WORDS])}{more}"
    else:
        yield "words: none of the question's"
    similarity = "no vector was compared" if hit.similarity is None else f"cosine similarity {hit.similarity:.3f}"
    yield f"{similarity}; importance {hit.importance:.2f}; topic {hit.topic or '(none)'}"


def _remarks(hit: "RecallHit", ranks: dict[str, int]) -> Iterator[str]:
    if hit.conflicts:
        others = (f"#{ranks[other]}" if other in ranks else other for other in hit.conflicts)
        yield f"{CONFLICT} contradicts {', '.join(others)}"
    if hit.superseded_by is not None:
        yield f"no longer true, replaced by {hit.superseded_by}"
    elif hit.stored.invalidated is not None:
        yield "no longer true"


def _ranks(hits: "Sequence[RecallHit]") -> dict[str, int]:
    return {hit.stored.record.record_id: rank for rank, hit in enumerate(hits, 1)}
