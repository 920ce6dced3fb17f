"""Publishing dead letters: the raw bytes, and why."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiokafka import ConsumerRecord
from faststream.kafka import KafkaBroker

from engramlog.consumers.observing import Observer
from engramlog.schemas.dead_letters import HEADER, DeadLetter, letter_of, messages
from engramlog.schemas.errors import InvalidEvent, Unprocessable


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Where a consumer sends what it cannot process.

    Attributes:
        broker: The broker to publish with.
        topic: The dead-letter topic.
        consumer: Who sends.
        observer: Who is told.
    """

    broker: KafkaBroker
    topic: str
    consumer: str
    observer: Observer

    async def publish(self, message: ConsumerRecord[Any, Any], error: InvalidEvent | Unprocessable) -> None:
        """Publish a message as it came, and wait until the broker has it.

        Raises:
            KafkaError: The broker does not take it.
        """
        letter = letter_of(message, error, consumer=self.consumer, died=datetime.now(UTC))
        await self._publish(letter, message.value)
        self.observer.dead_letter(error.reason)

    async def _publish(self, letter: DeadLetter, value: bytes | None) -> None:
        for chunk, part in messages(letter, value):
            await self.broker.publish(
                chunk or b"",
                topic=self.topic,
                key=letter.origin(),
                headers={"reason": letter.reason, HEADER: part.model_dump_json(exclude_none=True)},
            )
