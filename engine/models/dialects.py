"""How an endpoint wants a structured answer to be asked for. Pure.

OpenAI-compatible servers differ in what they take; what one refuses with a 400 is asked in the next simpler way.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel

from engramlog.engine.models.json_mode import schema_name, strict_schema

Message = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one endpoint takes.

    Attributes:
        form: Its ``response_format``; ``text``: none at all.
        limit: How the most tokens of an answer are called.
        temperature: Whether it takes a temperature (we ask for 0).
    """

    form: Literal["json_schema", "json_object", "text"] = "json_schema"
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    temperature: bool = True

    def simpler(self, refusal: str) -> "Dialect | None":
        """The next to try, after a 400 that said this; None: it is not the dialect that it minds."""
        if "max_tokens" in refusal and self.limit == "max_tokens":
            return replace(self, limit="max_completion_tokens")
        if "temperature" in refusal and self.temperature:
            return replace(self, temperature=False)
        if self.form == "json_schema":
            return replace(self, form="json_object")
        if self.form == "json_object" and "response_format" in refusal:
            return replace(self, form="text")
        return None

    def body(
        self, messages: Sequence[Message], *, model: str, schema: type[BaseModel], max_tokens: int
    ) -> dict[str, Any]:
        """The request's body. Where the endpoint does not enforce the schema, the system message tells it."""
        shape = strict_schema(schema)
        sent = list(messages)
        if self.form != "json_schema":
            told = f"Answer with one JSON object and nothing else. Its JSON Schema: {json.dumps(shape)}"
            sent[0] = {**sent[0], "content": f"{sent[0]['content']}\n\n{told}"}
        body: dict[str, Any] = {"model": model, "messages": sent, self.limit: max_tokens}
        if self.temperature:
            body["temperature"] = 0
        if self.form == "json_schema":
            named = {"name": schema_name(schema), "schema": shape, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        elif self.form == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body
