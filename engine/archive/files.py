"""Archive files: written whole or not at all, read within limits."""

import hashlib
import io
import os
import secrets
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO

import zstandard

from engramlog.engine.archive.lines import (
    MAX_LINE_BYTES,
    BadArchive,
    Footer,
    Line,
    Manifest,
    footer_of,
    manifest_of,
    parse_line,
)

_LEVEL = 6
_BLOCK_BYTES = 1 << 20
_WINDOW_BYTES = 1 << 27
"""The largest window that a file may ask for: what an unknown file can make us allocate."""
MAGIC = b"\x28\xb5\x2f\xfd"
"""How a zstd file begins."""


@dataclass(slots=True)
class Writer:
    """Writes lines, counts them, and sums them up.

    Attributes:
        out: Where they go.
        messages: By topic, how many messages were written.
        undecodable: How many of them are no events of ours.
    """

    out: IO[bytes]
    messages: Counter[str] = field(default_factory=Counter)
    undecodable: int = 0
    _sum: "hashlib.blake2b" = field(default_factory=lambda: hashlib.blake2b(digest_size=32))

    def manifest(self, manifest: Manifest) -> None:
        """The first line."""
        self._put(manifest.line())

    def message(self, topic: str, line: bytes, *, decodable: bool) -> None:
        """A line with a message."""
        self._put(line)
        self.messages[topic] += 1
        self.undecodable += not decodable

    def footer(self) -> Footer:
        """The last line."""
        counts = dict(sorted(self.messages.items()))
        footer = Footer(messages=counts, undecodable=self.undecodable, blake2b=self._sum.hexdigest())
        self.out.write(footer.line())
        return footer

    def _put(self, line: bytes) -> None:
        self._sum.update(line)
        self.out.write(line)


@contextmanager
def written(path: str) -> Iterator[Writer]:
    """Write an archive: under another name, until it is whole; ``-``: to standard output.

    Raises:
        OSError: It cannot be written.
    """
    if path == "-":
        with _compressing(sys.stdout.buffer) as out:
            yield Writer(out)
        sys.stdout.buffer.flush()
        return
    final = Path(path)
    part = final.with_name(f".{final.name[:200]}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            with _compressing(file) as out:
                yield Writer(out)
            file.flush()
            os.fsync(file.fileno())
        part.replace(final)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


@contextmanager
def _compressing(file: BinaryIO) -> Iterator[IO[bytes]]:
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    with compressor.stream_writer(file, closefd=False) as stream:
        yield stream


@dataclass(slots=True)
class Reader:
    """Reads an archive once, line by line.

    Attributes:
        lines: Its lines, numbered from 1; the first one is taken by :func:`opened`.
        manifest: The manifest.
        messages: By topic, how many messages were read.
        footer: The footer, once all is read.
    """

    lines: Iterator[tuple[int, bytes]]
    manifest: Manifest
    _sum: "hashlib.blake2b"
    messages: Counter[str] = field(default_factory=Counter)
    footer: Footer | None = None

    def __iter__(self) -> Iterator[Line]:
        """Its messages, topic after topic as the manifest names them.

        Raises:
            BadArchive: It is damaged, or cut off.
        """
        roles = [topic.role for topic in self.manifest.topics]
        reached = 0
        for number, raw in self.lines:
            if (footer := footer_of(raw)) is not None:
                self._check(footer)
                if next(self.lines, None) is not None:
                    raise BadArchive(f"line {number + 1}: something follows the footer")
                self.footer = footer
                return
            self._sum.update(raw)
            line = parse_line(raw, number)
            if line.topic not in roles[reached:]:
                raise BadArchive(f"line {number}: a message of {line.topic!r} is out of its place")
            reached = roles.index(line.topic)
            if line.message.position.partition >= self.manifest.partitions:
                raise BadArchive(f"line {number}: partition {line.message.position.partition} is out of range")
            self.messages[line.topic] += 1
            yield line
        raise BadArchive("the archive has no footer: it is cut off")

    def _check(self, footer: Footer) -> None:
        if footer.blake2b != self._sum.hexdigest():
            raise BadArchive("the checksum does not fit: the archive is damaged")
        if footer.messages != dict(self.messages):
            raise BadArchive(f"the footer counts {footer.messages}, the archive holds {dict(self.messages)}")


@contextmanager
def opened(path: str) -> Iterator[Reader]:
    """Open an archive for reading, and read its manifest.

    Raises:
        BadArchive: It is no archive of a version that we know.
        OSError: It cannot be read.
    """
    with Path(path).open("rb") as file:
        lines = _lines(file)
        _, first = next(lines, (0, b""))
        reader = Reader(lines, manifest_of(first), hashlib.blake2b(first, digest_size=32))
        yield reader


def is_archive(start: bytes) -> bool:
    """Whether a file begins as an archive does."""
    return start.startswith(MAGIC)


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
    number = 0
    try:
        with decompressor.stream_reader(file, read_across_frames=True, closefd=False) as stream:
            buffered = io.BufferedReader(stream, _BLOCK_BYTES)
            while raw := buffered.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(raw) > MAX_LINE_BYTES:
                    raise BadArchive(f"line {number} has more than {MAX_LINE_BYTES:,} bytes")
                yield number, raw
    except zstandard.ZstdError as error:
        raise BadArchive(f"behind line {number} it is no zstd file, or a damaged one: {error}") from None
