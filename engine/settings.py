"""All settings of the engine. The environment is read here and nowhere else."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from engramlog.engine.client import KafkaConfig
from engramlog.schemas.topics import DEFAULT_PARTITIONS, DEFAULT_PREFIX


def default_data_dir() -> Path:
    """``engramlog`` under the user's data directory (``XDG_DATA_HOME``, else ``~/.local/share``)."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "engramlog"


class Settings(BaseSettings):
    """Each field is set by the environment variable ``ENGRAMLOG_`` + its name in capitals.

    Attributes:
        bootstrap_servers: The Kafka cluster, ``host:port`` separated by commas. None: ``engramlog up`` starts one,
            every other command looks at ``localhost:9092``.
        prefix: What the topic names begin with.
        partitions: Partitions of topics that are created. Agent topics can never change it.
        idempotent: Whether producers are idempotent; False only for the demo broker.
        fetch_max_wait_ms: How long the broker may hold an empty fetch of queries and replies, in milliseconds.
        session_timeout_ms: When the group takes a silent consumer for dead, in milliseconds.
        max_poll_records: How many messages a projection takes at once.
        data_dir: Where ``up`` keeps Kafka and the embedded stores.
        history_url: The history store: ``sqlite:///PATH`` or ``postgresql://USER:PASSWORD@HOST/DB``. None: a SQLite
            file under ``data_dir``.
        answer_concurrency: How many queries one ``answer`` works on at once.
        timeout_s: Limit of a call of the command line, in seconds.
        log_level: Level of the logs on standard error.
    """

    model_config = SettingsConfigDict(env_prefix="ENGRAMLOG_", frozen=True, extra="ignore")

    bootstrap_servers: str | None = None
    prefix: str = DEFAULT_PREFIX
    partitions: Annotated[int, Field(ge=1, le=10_000)] = DEFAULT_PARTITIONS
    idempotent: bool = True
    fetch_max_wait_ms: Annotated[int, Field(ge=1)] = 500
    session_timeout_ms: Annotated[int, Field(ge=1000)] = 10_000
    max_poll_records: Annotated[int, Field(ge=1)] = 2_000
    data_dir: Path = Field(default_factory=default_data_dir)
    history_url: str | None = None
    answer_concurrency: Annotated[int, Field(ge=1)] = 64
    timeout_s: Annotated[float, Field(gt=0)] = 10.0
    log_level: str = "INFO"

    def kafka(self, *, client_id: str = "engramlog") -> KafkaConfig:
        """How to reach Kafka."""
        return KafkaConfig(
            bootstrap_servers=self.bootstrap_servers or "localhost:9092",
            prefix=self.prefix,
            idempotent=self.idempotent,
            fetch_max_wait_ms=self.fetch_max_wait_ms,
            client_id=client_id,
        )

    def effective_history_url(self) -> str:
        """The history store in use."""
        return self.history_url or f"sqlite:///{self.data_dir / 'history.db'}"
