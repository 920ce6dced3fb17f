"""Facts, preferences, decisions and open tasks of some passages, as a summary lists them."""
# ruff: noqa: RUF001, E501 - lists of words

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engramlog.engine.facts import facts
from engramlog.engine.facts.sentences import sentences_of
from engramlog.engine.summarisers.passages import Passage
from engramlog.schemas.records import MemoryRecord

MAX_LINES: Final = 50
MAX_TASKS: Final = 10
_LINE_CHARS: Final = 300
_NAME_CHARS: Final = 256
_TASK: Final = re.compile(
    r"(?<![\w'])(?:I|[Ww]e)(?:'ve| have)? (?:still )?(?:need to|have to|has to|must|got to|gotta)\s(?!say|admit|go\b|keep|stay|remember to be|be\b|"
    r"believe|appreciate|agree|run\b)\w+"
    r"|\b(?:remind me to|don't (?:let me )?forget to|to-?do:|still (?:open|to do):)"
    r"|我们?(?:还)?(?:需要|必须|得)(?=[^，。]{0,3}(?:去|做|写|完成|准备|提交|买|交|联系|处理|解决|修|打电话|预约|申请))|别忘了|不要忘了|提醒我|待办"
)


@dataclass(frozen=True, slots=True)
class Stated:
    """What users stated, in the order of the talk, each once."""

    facts: tuple[str, ...]
    preferences: tuple[str, ...]
    decisions: tuple[str, ...]


def statements_of(passages: Sequence[Passage]) -> Stated:
    """What the users of the talk state. Standing instructions are among the preferences."""
    found: dict[str, dict[str, None]] = {"fact": {}, "preference": {}, "decision": {}}
    for passage in passages:
        if passage.role != "user":
            continue
        named = passage.speaker if passage.speaker and passage.speaker != passage.role else None
        record = MemoryRecord.model_construct(role="user", role_name=named and named[:_NAME_CHARS])
        for fact in facts(record, passage.text):
            kind = "preference" if fact.kind == "rule" else fact.kind
            found[kind][fact.text[:_LINE_CHARS]] = None
    lists = (tuple(found[kind])[-MAX_LINES:] for kind in ("fact", "preference", "decision"))
    return Stated(*lists)


def tasks_of(passages: Sequence[Passage]) -> tuple[str, ...]:
    """What speakers say is still to be done, the newest ten: ``"Caroline: I need to send the form."``."""
    found: dict[str, None] = {}
    for passage in passages:
        if passage.role not in {"user", "assistant"}:
            continue
        for sentence in sentences_of(passage.text):
            asks = sentence.text.endswith(("?", "\uff1f"))
            if not asks and len(sentence.text) <= _LINE_CHARS and _TASK.search(sentence.text):
                found[f"{passage.speaker}: {sentence.text}"[:_LINE_CHARS]] = None
    return tuple(found)[-MAX_TASKS:]
