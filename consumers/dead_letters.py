"""Publishing dead letters: the raw bytes, and why."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiokafka import ConsumerRecord
from faststream.kafka import KafkaBroker

from engramlog.consumers.observing import Observer
from engramlog.schemas.dead_letters import HEADER, DeadLetter, messages, packed_headers, packed_key, shown
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
        key, key_bytes_left_out = packed_key(message.key)
        headers, left_out = packed_headers(message.headers)
        await self._publish(
            DeadLetter(
                reason=error.reason,
                error=shown(error),
                consumer=self.consumer,
                died=datetime.now(UTC),
                topic=message.topic,
                partition=message.partition,
                offset=message.offset,
                recorded_ms=message.timestamp,
                key=key,
                key_bytes_left_out=key_bytes_left_out,
                headers=headers,
                headers_left_out=left_out,
            ),
            message.value,
        )
        self.observer.dead_letter(error.reason)

    async def _publish(self, letter: DeadLetter, value: bytes | None) -> None:
        for chunk, part in messages(letter, value):
            await self.broker.publish(
                chunk or b"",
                topic=self.topic,
                key=letter.origin(),
                headers={"reason": letter.reason, HEADER: part.model_dump_json(exclude_none=True)},
            )
