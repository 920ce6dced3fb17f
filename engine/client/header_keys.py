r"""Header keys that are not UTF-8.

aiokafka raises where it meets one, in the middle of a batch, and then at every new attempt: one such message, which
any producer can send, would stop a topic for good, and what stood before it in the batch would be lost on the way. Here
such a key is read with its bytes written out (``\xff``); all else is aiokafka's own reading.
"""

from collections.abc import Iterator
from typing import Any, SupportsIndex

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatch, _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy
from aiokafka.record.util import decode_varint_py

_MAGIC_OFFSET = 16
_FIRST_WITH_HEADERS = 2


def tolerate() -> None:
    """From now on, consumers of this process read such keys. May be called any number of times."""
    fetcher.MemoryRecords = _MemoryRecords


class _Buffer(bytearray):
    """Bytes whose slices decode anything."""

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        found = super().__getitem__(at)
        return _Slice(found) if isinstance(at, slice) else found


class _Slice(bytearray):
    def decode(self, encoding: str = "utf-8", _errors: str = "strict") -> str:
        return super().decode(encoding, "backslashreplace")


class _LenientBatch(_DefaultRecordBatchPy):  # type: ignore[misc]  # final for type checkers, untyped for us
    """aiokafka's reading in Python, over a buffer that decodes anything."""

    _buffer: bytearray

    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        self._buffer = _Buffer(self._buffer)

    def _read_msg(self) -> Any:
        return super()._read_msg(decode_varint_py)


class _Batch:
    """A batch that is read by aiokafka's fast reader, and from a bad header key on by the lenient one."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        self._strict = DefaultRecordBatch(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._strict, name)

    def __next__(self) -> Any:
        return next(self._strict)

    def __iter__(self) -> Iterator[Any]:
        given = 0
        try:
            for record in self._strict:
                given += 1
                yield record
        except UnicodeDecodeError:
            for n, record in enumerate(_LenientBatch(self._content)):
                if n >= given:
                    yield record


class _MemoryRecords(_MemoryRecordsPy):  # type: ignore[misc]  # final for type checkers, untyped for us
    """The batches of a fetch."""

    def next_batch(self, *sizes: int) -> Any:
        content = self._next_slice
        if content is None or content[_MAGIC_OFFSET] < _FIRST_WITH_HEADERS:
            return super().next_batch(*sizes)
        self._cache_next()
        return _Batch(content)
