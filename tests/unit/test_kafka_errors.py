"""Every error of aiokafka has one of our names."""

import aiokafka.errors as foreign
import pytest

from engramlog.engine.client import KafkaConfig
from engramlog.engine.client.connection import kafka_errors
from engramlog.schemas.errors import BrokerUnavailable, ConfigurationError, TooLarge

CLASSES = [
    kind
    for kind in vars(foreign).values()
    if isinstance(kind, type) and issubclass(kind, foreign.KafkaError) and kind is not foreign.BrokerResponseError
]
KINDS = [*CLASSES, OSError, ConnectionResetError, TimeoutError]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_map_is_complete(kind: type[Exception]) -> None:
    with pytest.raises((BrokerUnavailable, ConfigurationError, TooLarge)), kafka_errors(KafkaConfig(), "testing"):
        raise kind(*(["detail"] if kind is not foreign.CommitFailedError else []))


def test_the_message_names_the_broker_and_what_was_done() -> None:
    says = r"localhost:9092 does not answer while testing: .*gone"
    with pytest.raises(BrokerUnavailable, match=says), kafka_errors(KafkaConfig(), "testing"):
        raise foreign.KafkaConnectionError("gone")
    with pytest.raises(ConfigurationError, match="topics create"), kafka_errors(KafkaConfig(), "testing"):
        raise foreign.UnknownTopicOrPartitionError


REFUSED = [
    kind for kind in CLASSES if "Authoriz" in kind.__name__ or "Sasl" in kind.__name__ or "Authent" in kind.__name__
]


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.__name__)
def test_a_refusal_is_never_tried_again(kind: type[Exception]) -> None:
    with pytest.raises(ConfigurationError), kafka_errors(KafkaConfig(), "testing"):
        raise kind("detail")
    with pytest.raises(ConfigurationError), kafka_errors(KafkaConfig(), "testing"):
        raise foreign.KafkaConnectionError("closed") from kind("detail")
