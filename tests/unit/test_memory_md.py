"""MEMORY.md: whatever is remembered comes out of the file as it went in; what people write comes in once."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from engramlog.schemas.formats import read_memory_md, write_memory_md
from engramlog.schemas.formats.memory_md import Memory, Owner
from engramlog.schemas.records import MemoryRecord

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CHARACTERS = st.one_of(st.sampled_from("\n\\<>-*+#`[]() \r\t\u2028谢👋!1."), st.characters(exclude_categories=["Cs"]))
OWNER = Owner(tenant="a-->b", agent="小\n助手<x")


def memory(text: str, number: int = 0, importance: float | None = None) -> Memory:
    record = MemoryRecord(
        record_id=f"r{number}",
        role="user",
        content=text,
        timestamp=NOW,
        kind="fact",
        importance=importance,
        origin="import",
    )
    return Memory(record=record, section="fact", session="s/1", user="ada")


@given(st.lists(st.text(CHARACTERS, max_size=40), max_size=4), st.none() | st.floats(0, 1))
def test_any_text_comes_back_with_its_id(texts: list[str], importance: float | None) -> None:
    memories = [memory(text, n, importance) for n, text in enumerate(texts)]
    read = read_memory_md(write_memory_md(OWNER, memories).encode(), now=NOW)
    assert (read.owner, read.bad, read.passed_over) == (OWNER, [], 0)
    assert [(m.record, m.session, m.user) for m in read.memories] == [(m.record, "s/1", "ada") for m in memories]


@given(st.binary(max_size=200) | st.text(CHARACTERS, max_size=200).map(lambda text: f"# a\n- {text}".encode()))
def test_no_file_of_text_is_an_accident(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        return
    first, second = read_memory_md(data, now=NOW), read_memory_md(data, now=NOW)
    assert [m.record for m in first.memories] == [m.record for m in second.memories]


def test_a_file_by_hand_is_read_by_bullets_and_headings() -> None:
    text = "# Notes\n\n## 偏好\n- 2026-02-03: 喜欢茶\n  绿茶\n## Food\n* tea\nprose\n```\n- code\n```\n".replace(
        "\n", "\r\n"
    )
    read = read_memory_md(text.encode(), now=NOW)
    tea, food = (m.record for m in read.memories)
    assert (tea.content, tea.kind, tea.timestamp.day) == ("喜欢茶\n绿茶", "preference", 3)
    assert (food.content, food.kind, food.topic, food.tags) == ("tea", "fact", "Food", ("Food",))
    assert read.passed_over == 4


def test_an_edited_bullet_keeps_its_id() -> None:
    text = write_memory_md(OWNER, [memory("I like tea.")]).replace("I like tea.", "I like coffee.")
    (found,) = read_memory_md(text.encode(), now=NOW).memories
    assert (found.record.record_id, found.record.content) == ("r0", "I like coffee.")
