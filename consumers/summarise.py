"""``summarise``: compresses the oldest part of a talk into ``memory.summaries``."""

from engramlog.consumers.delivery import Delivery
from engramlog.consumers.ownership import Ownership
from engramlog.consumers.summary_log import KafkaSummaryLog
from engramlog.consumers.wire import Wiring, subscribe
from engramlog.engine.cutting import CutPolicy
from engramlog.engine.idling import Ticker
from engramlog.engine.settings import Settings
from engramlog.engine.summarise import Summarising
from engramlog.schemas.codec import records_codec

NAME = "summarise"
AT_ONCE = 500


def register(wiring: Wiring) -> Delivery:
    """Subscribe the summaries to the records."""
    topics, cluster, settings = wiring.topics, wiring.cluster, wiring.settings
    assert wiring.backends.summariser is not None, "opened for this consumer"
    log = KafkaSummaryLog(wiring.broker, topics.summaries, topics.records, settings.kafka())
    summarising = Summarising(
        wiring.history,
        wiring.backends.summariser,
        log,
        policy_of(settings),
        records=topics.records,
        timeout_s=settings.summary_timeout_s,
        before=log,
    )
    wiring.on_stop(summarising.stop)
    if settings.session_idle_minutes is not None:
        idle_s = settings.session_idle_minutes * 60
        ticker = Ticker(wiring.history.summarising(), log, summarising.owned, idle_s=idle_s)
        wiring.on_start(ticker.start)
        wiring.on_stop(ticker.stop)
    ownership = Ownership(summarising, cluster.cluster_id)
    delivery = Delivery(
        ownership,
        {topics.records: records_codec()},
        cluster.partitions,
        wiring.dead_letters(NAME),
        wiring.observer(NAME),
        reports_invalid=False,
    )
    subscribe(
        wiring, NAME, [topics.records], delivery, max_records=AT_ONCE, ownership=ownership, projection="summarise"
    )
    return delivery


def policy_of(settings: Settings) -> CutPolicy:
    """When summaries are due, as the settings say. What is cut leaves half of the threshold in the window."""
    threshold = round(settings.summary_budget_tokens * settings.summary_threshold)
    return CutPolicy(
        threshold_tokens=threshold,
        keep_tokens=threshold // 2,
        messages=settings.summary_messages,
        batch=settings.summary_batch,
        budget_tokens=settings.summary_budget_tokens,
        window_ratio=settings.summary_window_ratio,
    )
