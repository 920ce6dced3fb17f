"""One JSON document, read as far as it is needed: the messages of a list, one after the other."""

import codecs
import json
from collections.abc import Iterable, Iterator
from typing import Any

from engramlog.schemas.errors import NotJson, NotUtf8, SchemaViolation, TooDeep
from engramlog.schemas.json_values import SHALLOWER

_SPACE = " \t\r\n"
_LONGEST_TOKEN = 16
"""No token but a string is longer, so that an error further from the end is not for want of text."""

_CUT_NUMBER = 2
"""As many characters may be left over of a number that goes on in the next block: ``1e+`` of ``1e+9`` reads as 1."""


class Document:
    """A JSON document in blocks of bytes.

    Args:
        blocks: The bytes; read one after the other, when they are needed.
    """

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self._decode = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._line = 1
        self._counted = 0
        self._ended = False
        self._bad: NotUtf8 | None = None

    @property
    def line(self) -> int:
        """The line that was reached, from 1."""
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def messages(self) -> Iterator[tuple[int, Any]]:
        """The values of the list, or of the list ``messages`` of the object, each with its line.

        Raises:
            NotJson: From here on it is no JSON, or it ends too early.
            NotUtf8: Nor is it text.
            TooDeep: A value is nested too deep to be read.
            SchemaViolation: It is an object without a list ``messages``.
        """
        if self._next() == "[":
            yield from self._list()
        else:
            yield from self._list_in_object()
        if self._next():
            raise NotJson("something follows the end of the document; JSON lines have a whole value on each line")

    def _list_in_object(self) -> Iterator[tuple[int, Any]]:
        self._take("{")
        found = False
        while self._next() not in {"}", ""}:
            key = self._value()
            self._take(":")
            if key == "messages" and self._next() == "[":
                found = True
                yield from self._list()
            else:
                self._value()
            if not self._took(","):
                break
        self._take("}")
        if not found:
            raise SchemaViolation("an object without a list 'messages'")

    def _list(self) -> Iterator[tuple[int, Any]]:
        self._take("[")
        while self._next() not in {"]", ""}:
            line = self.line
            yield line, self._value()
            if not self._took(","):
                break
        self._take("]")

    def _next(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def _took(self, mark: str) -> bool:
        if self._next() != mark:
            return False
        self._at += 1
        return True

    def _take(self, mark: str) -> None:
        if not self._took(mark):
            found = self._next()
            raise NotJson(
                f"expected {mark!r}, found {found!r}" if found else f"the file ends where {mark!r} is missing"
            )

    def _value(self) -> Any:
        self._next()
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                torn = error.pos > len(self._text) - _LONGEST_TOKEN or error.msg.startswith("Unterminated string")
                if torn and self._more():
                    continue
                where = "the file ends inside of a value" if torn else "the value is not JSON"
                raise NotJson(f"{where}: {error.msg}") from None
            except RecursionError:
                raise TooDeep(f"nested too deep; {SHALLOWER}") from None
            except ValueError as error:  # an integer of more digits than Python reads
                raise NotJson(f"the value is not JSON: {error}") from None
            if isinstance(value, (int, float)) and end + _CUT_NUMBER >= len(self._text) and self._more():
                continue
            self._at = end
            return value

    def _more(self) -> bool:
        """Read on, until there is twice as much; False, and nothing is changed, at the end. What lies behind goes."""
        pieces: list[str] = []
        wanted, got = max(1, len(self._text) - self._at), 0
        while got < wanted and not self._ended:
            pieces.append(self._decoded(next(self._blocks, b"")))
            got += len(pieces[-1])
        if not got and self._bad:
            raise self._bad
        if not got:
            return False
        self._line = self.line  # counted before the text goes
        self._text = "".join([self._text[self._at :], *pieces])
        self._at = self._counted = 0
        return True

    def _decoded(self, block: bytes) -> str:
        """The text of a block; of one that is no text what stands before the bad byte."""
        self._ended = not block
        try:
            return self._decode.decode(block, final=self._ended)
        except UnicodeDecodeError as error:
            self._ended = True
            self._bad = NotUtf8(f"not UTF-8 ({error.reason}); save the file as UTF-8")
            return error.object[: error.start].decode()
