"""The client. Needs Kafka and nothing else: neither SQL nor a vector store."""

from engramlog.engine.client.asking import Seen
from engramlog.engine.client.client import History, MemoryClient
from engramlog.engine.client.connection import KafkaConfig
from engramlog.engine.client.security import Security
from engramlog.engine.client.sync import SyncMemoryClient
from engramlog.schemas.records import MemoryRecord
from engramlog.schemas.scope import Position, Scope

__all__ = [
    "History",
    "KafkaConfig",
    "MemoryClient",
    "MemoryRecord",
    "Position",
    "Scope",
    "Security",
    "Seen",
    "SyncMemoryClient",
]
