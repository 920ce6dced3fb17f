"""The client. Needs Kafka and nothing else: neither SQL nor a vector store."""

from engramlog.engine.client.asking import Seen
from engramlog.engine.client.client import MemoryClient
from engramlog.engine.client.connection import KafkaConfig
from engramlog.engine.client.context import Context, ContextOptions, SummaryList
from engramlog.engine.client.reading import History
from engramlog.engine.client.recalling import Recall, TopicList
from engramlog.engine.client.security import Security
from engramlog.engine.client.subscribing import SummaryReceived, SummaryStream
from engramlog.engine.client.sync import SyncMemoryClient
from engramlog.engine.client.tools import MemoryTools
from engramlog.schemas.asking import AsOf
from engramlog.schemas.contexts import RecallPart
from engramlog.schemas.recalls import RecallFilter
from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.scope import Position, Scope

__all__ = [
    "AsOf",
    "Context",
    "ContextOptions",
    "History",
    "KafkaConfig",
    "MemoryClient",
    "MemoryRecord",
    "MemoryTools",
    "Position",
    "Recall",
    "RecallFilter",
    "RecallPart",
    "Scope",
    "Security",
    "Seen",
    "SummaryList",
    "SummaryReceived",
    "SummaryStream",
    "SyncMemoryClient",
    "TopicList",
]
