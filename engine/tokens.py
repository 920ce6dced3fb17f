"""How many tokens a text, a message, a list of messages or a record has, counted offline.

The tables come with the wheel ``bpe-openai``. Texts are counted exactly; what a message costs beyond its texts is
documented by OpenAI for messages and names only, so for tool calls and media there are the stated rules of
:func:`count_message` and :mod:`engramlog.engine.tokens_media`.
"""

import importlib.util
import json
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder
from typing import Any, Final, Protocol

from engramlog.engine.tokens_media import media_tokens
from engramlog.schemas.errors import ConfigurationError
from engramlog.schemas.formats.openai import to_openai
from engramlog.schemas.records import MemoryRecord

PER_MESSAGE: Final = 3
"""What each message costs beside its texts (OpenAI's cookbook, "How to count tokens with tiktoken")."""
PER_NAME: Final = 1
"""What a ``name`` costs beside its text (likewise)."""
END_OF_LIST: Final = 3
"""What the beginning of the answer costs, once a request (likewise)."""
PER_CALL: Final = 8
"""What a tool call costs beside its id, name and arguments. Not documented: an estimate from above."""

_CACHED_CHARS: Final = 64  # a shorter text is counted as fast as it is looked up
_CACHE_BYTES: Final = 16 * 2**20

_BINDINGS: Final = "bpe_openai._bindings"
_O200K: Final = "o200k_base"
_CL100K: Final = "cl100k_base"
_ENCODINGS: Final = ((_O200K, _O200K), (_CL100K, _CL100K))
_MODELS: Final = (
    ("gpt-4o", _O200K),
    ("chatgpt-4o", _O200K),
    ("gpt-4.1", _O200K),
    ("gpt-4.5", _O200K),
    ("gpt-5", _O200K),
    ("chat-latest", _O200K),
    ("gpt-oss", _O200K),
    ("codex-mini", _O200K),
    ("o1", _O200K),
    ("o3", _O200K),
    ("o4", _O200K),
    ("gpt-4", _CL100K),
    ("gpt-3.5", _CL100K),
    ("gpt-35", _CL100K),  # as Azure writes it
    ("text-embedding-3", _CL100K),
    ("text-embedding-ada-002", _CL100K),
)
"""Beginnings of models' names, the more special one first."""
_AFTER_NAME: Final = re.compile(r"[-:@_.]|$")


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a model cuts texts into tokens.

    Attributes:
        name: ``o200k_base`` or ``cl100k_base``.
        exact: Whether the model is known to use it. If not, counts are estimates.
    """

    name: str
    exact: bool


O200K: Final = Encoding(_O200K, exact=True)
"""The encoding of every count that is stored."""


def encoding_for(model: str | None) -> Encoding:
    """The encoding of a model, by its name.

    A provider (``openai/gpt-4o``) and fine-tuning (``ft:gpt-4o-mini:acme::x``) are passed over; the name of an encoding
    is taken for itself. None is ``o200k_base``, exact: whoever names no model counts in it.

    Of any other model the tokens are not known here. It gets ``o200k_base``, ``exact=False``. For 100 tokens that are
    counted, the model then has (measured on talks of LoCoMo and MemoryBank, this code, and JSON):

    ==================  =======  =======  ====  ====
    tokenizer           English  Chinese  code  JSON
    ==================  =======  =======  ====  ====
    Qwen 3                  104       80   101   106
    DeepSeek                104       75   106    99
    Llama 3                 104      106   100   100
    Gemma 3                 107       86   115   103
    Mistral (Tekken)        105      120   106   106
    Claude (2023)           106      151   109    96
    ==================  =======  =======  ====  ====

    So a budget 15 % below a model's limit is safe for English and code, one 35 % below it for Chinese; runs of emoji
    can take three times as many. Of newer Claude models there is no table.
    """
    if model is None:
        return O200K
    name = model.strip().lower().rpartition("/")[2]
    name = name.removeprefix("ft:")
    for start, encoding in (*_ENCODINGS, *_MODELS):
        if name.startswith(start) and _AFTER_NAME.match(name, len(start)):
            return Encoding(encoding, exact=True)
    return Encoding(_O200K, exact=False)


def count_text(text: str, encoding: Encoding = O200K) -> int:
    """The tokens of a text; what looks like a special token (``<|endoftext|>``) is text like any other.

    Any length (900 KB take a tenth to a fifth of a second). Half a character, which no event holds, counts as U+FFFD.

    Raises:
        ConfigurationError: ``bpe-openai`` is not installed.
    """
    if len(text) < _CACHED_CHARS:
        return _counted(text, encoding.name)
    known = _counts.get(encoding.name, text)
    if known is None:
        known = _counted(text, encoding.name)
        _counts.put(encoding.name, text, known)
    return known


def count_message(message: Mapping[str, Any], encoding: Encoding = O200K) -> int:
    """The tokens of an OpenAI chat message, without the list's end.

    :data:`PER_MESSAGE`, the texts of ``role``, ``content`` and every other key, :data:`PER_NAME` for a name. A tool
    call (also a legacy ``function_call``) is its id, its name, its arguments and :data:`PER_CALL`. An image, sound or
    file counts by :mod:`engramlog.engine.tokens_media`. What is neither text nor known counts as JSON.
    """
    total = PER_MESSAGE
    for key, value in message.items():
        if key == "content" and isinstance(value, list):
            total += sum(_part(part, encoding) for part in value)
        elif key == "tool_calls" and isinstance(value, list):
            total += sum(_call(call, encoding) for call in value)
        elif key == "function_call" and value is not None:
            total += _call(value, encoding)
        else:
            total += _value(value, encoding) + (PER_NAME if key == "name" and value else 0)
    return total


def count_messages(messages: Iterable[Mapping[str, Any]], encoding: Encoding = O200K) -> int:
    """The tokens of a request: its messages and :data:`END_OF_LIST`."""
    return sum(count_message(message, encoding) for message in messages) + END_OF_LIST


def record_tokens(record: MemoryRecord, encoding: Encoding = O200K) -> int:
    """The tokens of a record as the OpenAI message that a context shows, without the list's end."""
    return count_message(to_openai(record), encoding)


def _value(value: object, encoding: Encoding) -> int:
    if value is None:
        return 0
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return count_text(text, encoding)


def _call(call: object, encoding: Encoding) -> int:
    return PER_CALL + sum(count_text(text, encoding) for text in _texts(call))


def _texts(value: object) -> Iterable[str]:
    """The texts of a call; ``type`` is no text of it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key != "type":
                yield from _texts(item)
    elif value is not None:
        yield json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _part(part: object, encoding: Encoding) -> int:
    if not isinstance(part, Mapping):
        return _value(part, encoding)
    for key in ("text", "refusal"):
        if part.get("type") == key and isinstance(part.get(key), str):
            return count_text(part[key], encoding)
    media = media_tokens(part, count=lambda text: count_text(text, encoding))
    return _value(part, encoding) if media is None else media


# --- counting ---------------------------------------------------------------------------------------------------------


class _Counter(Protocol):
    def count(self, text: str, /) -> int: ...


class _Counts:
    """Counts of texts, the latest used ones, of at most ``limit_bytes`` of text. Safe between threads."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held = 0
        self._found: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, encoding: str, text: str) -> int | None:
        key = (encoding, text)
        with self._lock:
            count = self._found.get(key)
            if count is not None:
                self._found.move_to_end(key)
            return count

    def put(self, encoding: str, text: str, count: int) -> None:
        size = _size(text)
        if size > self._limit // 4:
            return
        with self._lock:
            if (encoding, text) not in self._found:
                self._found[encoding, text] = count
                self._held += size
            while self._held > self._limit:
                (_, oldest), _ = self._found.popitem(last=False)
                self._held -= _size(oldest)

    def held(self) -> int:
        """Bytes of text in it."""
        return self._held


def _size(text: str) -> int:
    return 200 + 4 * len(text)  # from above: Python takes 1 to 4 bytes a character


_counts = _Counts(_CACHE_BYTES)
_counters: dict[str, _Counter] = {}
_loading = threading.Lock()


def _counted(text: str, name: str) -> int:
    counter = _counters.get(name) or _counter(name)
    try:
        return counter.count(text)
    except UnicodeEncodeError:
        return counter.count(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def prepare(encoding: Encoding = O200K) -> None:
    """Load the tables of an encoding (0.3 s, once): at start, so that no request waits for it.

    Raises:
        ConfigurationError: ``bpe-openai`` is not installed.
    """
    _counted("", encoding.name)


def _counter(name: str) -> _Counter:
    """The tables of an encoding.

    Raises:
        ConfigurationError: ``bpe-openai`` is not installed.
    """
    with _loading:
        if name not in _counters:
            _counters[name] = _bindings().tokenizer_for_encoding(name)
        return _counters[name]


def _bindings() -> Any:
    """The compiled part of ``bpe-openai``, without the package around it.

    The package builds tables for decoding when it is imported (1.6 s, 60 MB, and a DeprecationWarning), and refuses
    texts of more than 200,000 tokens. Nobody needs either here.
    """
    if _BINDINGS in sys.modules:  # a compiled module can be initialised once only
        return sys.modules[_BINDINGS]
    package = importlib.util.find_spec(_BINDINGS.partition(".")[0])
    for folder in (package and package.submodule_search_locations) or ():
        finder = FileFinder(folder, (ExtensionFileLoader, EXTENSION_SUFFIXES))
        spec = finder.find_spec(_BINDINGS)
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return sys.modules.setdefault(_BINDINGS, module)
    raise ConfigurationError("bpe-openai, which counts tokens, is missing: pip install engramlog[engine]")
