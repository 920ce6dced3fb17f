"""Packing: head, core memories, summaries, recalled memories and recent turns into a budget of tokens."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from engramlog.engine.context.blocks import Writer
from engramlog.engine.context.choosing import Chosen, covered, ranked, told_apart
from engramlog.engine.context.labels import labels_in, language_for
from engramlog.engine.context.material import Material, Message, Sizes, standing_core, standing_summaries
from engramlog.engine.context.plan import Plan
from engramlog.engine.context.talk import Talk
from engramlog.engine.context.walking import Walk
from engramlog.engine.texts import content
from engramlog.engine.tokens import encoding_for
from engramlog.schemas.contexts import ContextAnswer, ContextQuery, StoredSummary
from engramlog.schemas.errors import RequestRefused
from engramlog.schemas.recalls import RecallHit


def pack(material: Material, query: ContextQuery, *, now: datetime, tokens: Mapping[str, int]) -> ContextAnswer:
    """The context of a talk under a budget.

    Order: head; core memories, summaries and recalled memories, each in one labelled block in the talk's language (a
    block has the head's role); the recent turns, oldest first. Always in are the head, the core memories that hold, and
    the newest user message. Whatever came after that message is in before anything else, as far as it fits. Of the
    tokens that then are left, summaries may take ``summary_share`` (the newest first), and of what they leave memories
    ``recall.share`` (the best first); all others are the recent turns', the newest first, without holes (see
    :class:`~engramlog.engine.context.walking.Walk`): summaries and memories together never push them out. What turns
    and memories leave over goes to the summaries that were too many for their share. A tool call stands with all its
    results (:mod:`engramlog.engine.context.groups`).

    Nothing is in twice: a record that an included summary covers, or that is a core memory, is not among the recent
    turns; a memory that stands among them (by id or text) is not recalled, and the next best takes its place. A core
    memory that is the newest user message stands there.

    The same arguments give the same bytes.

    Args:
        material: What was read.
        query: What is asked: ``budget_tokens``, ``model``, ``window``, ``recall``, ``summaries``, ``summary_share``,
            ``keep_rate`` and ``as_messages`` are looked at. A window counts records; the newest user message is in
            however old it is.
        now: The instant that the answer states, and at which core memories may have expired.
        tokens: Tokens of records by id (o200k_base), as :func:`~engramlog.engine.tokens.record_tokens` gives them. What
            is missing, or asked for in another encoding, is counted. A wrong number never leads above the budget.

    Raises:
        RequestRefused: ``bad_request``: head, core memories and newest user message alone are above the budget. The
            message names the least budget that would do. Core memories are never left out silently.
        ConfigurationError: ``bpe-openai`` is not installed.
    """
    plan = _planned(material, query, now, Sizes(encoding_for(query.model), tokens))
    minimum = plan.minimum()
    if minimum > query.budget_tokens:
        raise RequestRefused(
            "bad_request",
            f"'budget_tokens' is {query.budget_tokens}, but the least context (head, core memories and the newest user "
            f"message) has {minimum} tokens: ask for at least {minimum}",
        )
    _fill(plan, query, room=query.budget_tokens - minimum)
    plan.trim(query.budget_tokens)
    return plan.answer(now)


def _planned(material: Material, query: ContextQuery, now: datetime, sizes: Sizes) -> Plan:
    """A plan that holds only what is always in."""
    talk = Talk.of(material, query.window)
    head = material.head
    language = language_for(talk.turns, head.record if head is not None else None)
    developer = head is not None and head.record.role == "developer"
    writer = Writer(labels_in(language), language, "developer" if developer else "system")
    newest_id = talk.newest.record.record_id if talk.newest is not None else None

    def summaries(items: Sequence[StoredSummary]) -> list[Message]:
        return [writer.summaries(items)]

    def recalled(hits: Sequence[RecallHit]) -> list[Message]:
        return writer.recalled_each(hits) if query.as_messages else [writer.recalled(hits)]

    return Plan(
        head=head,
        core=[stored for stored in standing_core(material, now) if stored.record.record_id != newest_id],
        talk=talk,
        walk=Walk(talk.units, sizes, talk.newest),
        candidates=ranked(standing_summaries(material)) if query.summaries else [],
        hits=list(material.recalled) if query.recall is not None else [],
        summaries=Chosen(summaries, sizes.encoding),
        recalled=Chosen(recalled, sizes.encoding),
        writer=writer,
        sizes=sizes,
        keep_rate=query.keep_rate,
    )


def _fill(plan: Plan, query: ContextQuery, *, room: int) -> None:
    """Put in what the room, in tokens, is enough for."""
    walk, newest = plan.walk, plan.talk.newest
    core_ids = {stored.record.record_id for stored in plan.core}
    walk.keep_out(core_ids)
    if newest is not None:
        walk.extend(room, after=newest.position, passing=covered(plan.candidates))
    shared = room - walk.spent
    plan.summaries.fill(plan.candidates, int(shared * query.summary_share), limit=len(plan.candidates))
    walk.keep_out(covered(plan.summaries.kept))
    total, room, left = room, room - plan.summaries.spent, shared - plan.summaries.spent
    reserved = int(left * query.recall.share) if query.recall is not None and plan.hits else 0
    walk.extend(room - reserved)
    if query.recall is not None:
        ids = core_ids | walk.ids() | {stored.summary.summary_id for stored in plan.summaries.kept}
        ids |= {plan.head.record.record_id} if plan.head is not None else set()
        texts = {content(stored.record) for stored in plan.core} | walk.texts()
        fresh, plan.again = told_apart(plan.hits, ids=ids, texts=texts)
        plan.over = plan.recalled.fill(fresh, min(reserved, room - walk.spent), limit=query.recall.limit)
    _reach_back(plan, room)
    _fill_up(plan, total)


def _reach_back(plan: Plan, room: int) -> None:
    """Give the recent turns all that is left; memories that they reach are not recalled any more."""
    while True:
        plan.walk.extend(room - plan.recalled.spent)
        _, again = told_apart(plan.recalled.kept, ids=plan.walk.ids(), texts=plan.walk.texts())
        if not again:
            return
        plan.recalled.drop(again)
        plan.again += again


def _fill_up(plan: Plan, room: int) -> None:
    """Give what nobody else needs to more summaries: of a long talk they are all that is left of its beginning."""
    shown = plan.walk.ids() | {hit.stored.record.record_id for hit in plan.recalled.kept}
    kept = {stored.summary.summary_id for stored in plan.summaries.kept}
    more = [
        stored
        for stored in plan.candidates
        if stored.summary.summary_id not in kept | shown and plan.walk.ids().isdisjoint(covered([stored]))
    ]
    plan.summaries.fill(more, room - plan.walk.spent - plan.recalled.spent, limit=len(plan.candidates))
