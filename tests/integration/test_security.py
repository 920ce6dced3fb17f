"""TLS, SASL and ACLs on a real Apache Kafka: what works, and one clear error for each way of being wrong."""

import pytest

from engramlog.engine.client import KafkaConfig
from engramlog.engine.client.admin import inspect_topics
from engramlog.engine.settings import Settings
from engramlog.schemas.errors import ConfigurationError
from tests.secure import SecureKafka

pytestmark = pytest.mark.kafka


async def test_smoke(secure_kafka: SecureKafka) -> None:
    for user in ("root", "engine", "stranger"):
        settings = Settings(**secure_kafka.settings(user), prefix="smoke")
        print(await inspect_topics(settings.kafka()))
