"""What a deriver and a summariser need of a language model."""

from typing import Protocol, TypeVar

from pydantic import BaseModel

Answer = TypeVar("Answer", bound=BaseModel)


class StructuredModel(Protocol):
    """What is needed of :class:`engramlog.engine.models.endpoints.Endpoints`."""

    async def structured(
        self,
        *,
        model: str,
        system: str,
        user: str,
        schema: type[Answer],
        max_tokens: int = 800,
        timeout_s: float | None = None,
    ) -> Answer:
        """A chat answer of a given shape."""
