"""Contradictions between memories, in English and Chinese."""
# ruff: noqa: E501 - Chinese, whose characters count double

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engramlog.engine.conflicts import claims_of, conflicts
from engramlog.engine.conflicts.reading import MAX_CLAIMS
from engramlog.schemas.records import MemoryRecord, Role
from engramlog.schemas.stored import Invalidation, StoredRecord
from tests.unit import conflict_pairs

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def stored(
    text: str,
    *,
    user: str | None = "u",
    role: Role = "user",
    name: str | None = None,
    record_id: str = "r",
    replaced_by: str | None = None,
) -> StoredRecord:
    gone = Invalidation(offset=9, replaced_by=replaced_by) if replaced_by else None
    record = MemoryRecord(record_id=record_id, role=role, role_name=name, content=text, timestamp=AT)
    return StoredRecord(record=record, user=user, offset=1, recorded=AT, invalidated=gone)


def contradict(one: str, other: str) -> bool:
    found = conflicts([stored(one), stored(other)])
    assert found == conflicts([stored(other), stored(one)])
    return bool(found)


OPPOSITE = [
    ("I'm allergic to cats", "I keep a cat at home"),
    ("I have a cat allergy.", "My cat Momo knocked over the vase again."),
    ("我对猫过敏", "我家养了一只猫"),
    ("我对猫毛严重过敏。", "我养了两只猫。"),
    ("I love coffee.", "I can't stand coffee anymore."),
    ("I really enjoy running.", "I hate running."),
    ("I like jazz.", "I don't like jazz music at all."),
    ("我喜欢吃辣。", "我不喜欢吃辣。"),
    ("我很喜欢跑步。", "我最讨厌跑步了。"),
    ("我爱喝咖啡", "我现在一点都不爱喝咖啡了"),
    ("I eat fish.", "I don't eat fish."),
    ("I'm a vegetarian.", "I had a burger for lunch and it was amazing."),
    ("I am vegan now.", "I eat cheese every morning."),
    ("我吃素。", "我昨天吃了一大盘红烧肉。"),
    ("我是素食主义者", "中午我点了牛排"),
    ("I'm lactose intolerant.", "I drink a glass of milk every night."),
    ("I don't drink.", "I had three beers yesterday."),
    ("我不吃香菜。", "我每顿都要吃香菜。"),
    ("我戒烟了。", "我每天抽一包烟。"),
    ("I quit smoking last year.", "I smoke ten cigarettes a day."),
    ("I want a dog.", "I no longer want a dog."),
    ("我要买特斯拉。", "我不要买特斯拉了。"),
    ("我再也不去健身房了。", "我每周三都去健身房锻炼。"),
    ("我不会游泳。", "我每天早上游泳一千米。"),
    ("I can't drive.", "I drive to work every day."),
    ("I never fly.", "I flew to Rome in May for the conference."),
    ("My office is on the third floor.", "My office is not on the third floor."),
    ("I'm allergic to peanuts.", "I love peanut butter and eat it daily."),
    ("我对海鲜过敏。", "我昨晚吃了大闸蟹。"),
    ("我对花生不过敏。", "我对花生过敏。"),
]

EXCLUSIVE = [
    ("I live in Paris.", "I live in Lyon, near the river."),
    ("I moved to Berlin in March.", "I live in Hamburg."),
    ("我住在上海。", "我已经搬到深圳了。"),
    ("I work at Siemens.", "I work for Bosch as a tester."),
    ("我在腾讯上班。", "我在阿里工作。"),
    ("My name is Anna.", "My name is Lisa."),
    ("我叫王伟。", "我叫李强。"),
    ("My favourite colour is blue.", "My favourite colour is green."),
    ("My favorite movie is Alien.", "Inception is my favorite movie."),
    ("我最喜欢的颜色是蓝色。", "我最喜欢的颜色是红色。"),
    ("I prefer dark mode.", "I prefer light mode."),
    ("I prefer tea over coffee.", "I prefer coffee over tea."),
    ("我喜欢深色模式。", "我更喜欢浅色模式。"),
    ("My birthday is May 3.", "My birthday is June 12."),
    ("我的生日是5月3号。", "我生日是6月12日。"),
    ("My phone number is 555-123-4567.", "My phone number is 555-987-6543."),
    ("我的手机号是13800001111。", "我的手机号是13922223333。"),
    ("The deadline is Friday.", "The deadline moved to Monday."),
    ("The launch is on March 3.", "The launch was postponed to April 7."),
    ("截止日期是周五。", "截止日期改到下周一了。"),
    ("发布会定在3月5日。", "发布会推迟到4月2日。"),
    ("The API uses version 2.1.", "The API is now on version 3.0."),
    ("The ticket costs $40.", "The ticket costs $55."),
    ("房租是3000元。", "房租涨到3500元了。"),
    ("I'm single.", "I got married last year."),
    ("I'm an only child.", "My sister visited me at the weekend."),
    ("我单身。", "我老公昨天出差了。"),
    ("I don't have a car.", "My car broke down this morning."),
    ("我没有孩子。", "我女儿上小学三年级。"),
    ("I have two cats.", "I have three cats."),
    ("I am 34 years old.", "I am 36 years old."),
    ("我今年三十四岁。", "我今年36岁。"),
    ("The meeting is at 3pm.", "The meeting is at 4:30pm."),
    ("会议是下午三点。", "会议改成下午四点半了。"),
    ("Please call me Tom.", "Call me Thomas from now on."),
    ("Always answer in English.", "Please reply in Chinese from now on."),
    ("以后用中文回答我。", "请用英文回答。"),
    ("The server runs on Ubuntu.", "The server runs on Debian."),
    ("数据库用的是MySQL。", "数据库换成PostgreSQL了。"),
    ("Use tabs for indentation.", "Use spaces for indentation."),
    ("我是老师。", "我是一名程序员。"),
    ("I'm a nurse.", "I work as a plumber."),
    ("My wifi password is hunter22.", "My wifi password is Sunshine7."),
    ("My sister lives in Oslo.", "My sister lives in Bergen."),
    ("我姐住在北京。", "我姐搬到广州了。"),
]

CHANGED = [
    ("I use Vim.", "I switched from Vim to Emacs."),
    ("I drink coffee every morning.", "I used to drink coffee, now only tea."),
    ("I work at Siemens.", "I no longer work at Siemens."),
    ("We use Jenkins for builds.", "We replaced Jenkins with GitHub Actions."),
    ("我用安卓手机。", "我不再用安卓手机了。"),
    ("我们用Jenkins部署。", "我们把Jenkins换成了GitLab。"),
    ("I play tennis on Sundays.", "I stopped playing tennis."),
    ("I have a Toyota.", "I sold my Toyota."),
    ("我住在杭州。", "我从杭州搬到了成都。"),
    ("我每周去上瑜伽课。", "我不去上瑜伽课了。"),
]

COMPATIBLE = [
    ("I'm allergic to cats.", "I'm allergic to cats, so no cat cafés for me."),
    ("I live in Paris.", "I live in Paris and love it."),
    ("我住在上海。", "我住在上海浦东。"),
    ("I love hiking.", "I love cycling."),
    ("我喜欢吃苹果。", "我不喜欢吃香蕉。"),
    ("I'm allergic to cats.", "My neighbour has a cat."),
    ("我对猫过敏。", "我邻居养了一只猫。"),
    ("我对猫过敏。", "我养了一只狗。"),
    ("I'm allergic to cats.", "Do I have a cat?"),
    ("I'm allergic to cats.", "If I had a cat, I would call it Momo."),
    ("我对猫过敏。", "如果我养了一只猫，我就叫它年糕。"),
    ("我对猫过敏。", "你觉得我养一只猫怎么样？"),
    ("I don't eat meat.", 'Tom said "I eat meat every day".'),
    ("我不吃肉。", "小李说：「我天天吃肉。」"),
    ("我不吃肉。", "我同事天天吃肉。"),
    ("I hate Mondays.", "She said she loves Mondays."),
    ("I work at Siemens.", "My wife works at Bosch."),
    ("我在腾讯上班。", "我老婆在阿里上班。"),
    ("I don't eat meat.", "I had a mushroom soup."),
    ("我不吃肉。", "我吃了一大盘青菜。"),
    ("I don't like tea.", "I like coffee."),
    ("I like tea.", "I don't like green tea."),
    ("I don't eat shrimp.", "I ate salmon yesterday."),
    ("我不吃虾。", "我昨天吃了三文鱼。"),
    ("The deadline is Friday.", "The deadline is on Friday at 5pm."),
    ("The backend deadline is Friday.", "The frontend deadline is Monday."),
    ("前端的截止日期是周五。", "后端的截止日期是周一。"),
    ("会议定在周五。", "聚餐定在周六。"),
    ("The meeting is on Friday.", "The party is on Saturday."),
    ("My favourite colour is blue.", "My favourite food is pizza."),
    ("我最喜欢的颜色是蓝色。", "我最喜欢的水果是芒果。"),
    ("My birthday is May 3.", "My mother's birthday is June 12."),
    ("我的生日是5月3号。", "我妈的生日是6月12号。"),
    ("I live in France.", "I live in Lyon."),
    ("I'm not sure if I like jazz.", "I like jazz."),
    ("I can't drive.", "My brother drives to work every day."),
    ("我不会游泳。", "我女儿每天去游泳。"),
    ("I have two cats.", "I have three dogs."),
    ("I smoked in college.", "I don't smoke."),
    ("I don't drink alcohol.", "I drink a lot of water."),
    ("我不喝酒。", "我们住的酒店很安静。"),
    ("我不抽烟。", "我去烟台玩了三天。"),
    ("The car is red.", "The car is old."),
    ("Our database is PostgreSQL.", "Our cache is Redis."),
    ("我们后端用的是Go。", "我们前端用的是React。"),
    ("I prefer dark mode in the editor.", "I prefer light mode for printing."),
    ("I prefer tea.", "I prefer aisle seats."),
    ("I don't work on weekends.", "I work from home on Tuesdays."),
    ("I'm a teacher.", "I love teaching children."),
    ("我喜欢爬山。", "我周末去爬山了。"),
    ("I love you all!", "I hate that it rains."),
    ("I didn't eat breakfast today.", "I eat breakfast at seven."),
    ("今天天气真好！", "今天天气不错，我们去散步吧。"),
    ("你喜欢什么运动？", "我不喜欢运动。"),
    ("He doesn't like fish.", "I like fish."),
    ("I would love a dog.", "I don't have a dog."),
    ("我想养一只猫。", "我没有猫。"),
    ("I moved the lamp to the bedroom.", "I live in Leeds."),
    ("I went to Paris last week.", "I live in Leeds."),
    ("我上周去了巴黎。", "我住在大连。"),
    ("Thanks, that's great!", "That's not great."),
    ("The train leaves at 9:15.", "The bus leaves at 10:30."),
    ("I bought three apples.", "I bought five pears."),
    ("我妈妈喜欢京剧。", "我不喜欢京剧。"),
    ("My brother is married.", "I'm single."),
    ("I'm learning Spanish.", "I speak English and German."),
    ("I use Python for scripts.", "I use Go for services."),
]


@pytest.mark.parametrize(("one", "other"), OPPOSITE)
def test_opposite_statements_conflict(one: str, other: str) -> None:
    assert contradict(one, other)


@pytest.mark.parametrize(("one", "other"), EXCLUSIVE)
def test_what_there_is_one_of_cannot_be_two(one: str, other: str) -> None:
    assert contradict(one, other)


@pytest.mark.parametrize(("one", "other"), CHANGED)
def test_a_change_conflicts_with_what_it_replaces(one: str, other: str) -> None:
    assert contradict(one, other)


@pytest.mark.parametrize(("one", "other"), conflict_pairs.CONTRADICTING)
def test_contradictions_are_found_in_many_words(one: str, other: str) -> None:
    assert contradict(one, other)


@pytest.mark.parametrize(("one", "other"), [*COMPATIBLE, *conflict_pairs.COMPATIBLE])
def test_what_can_both_be_true_is_no_conflict(one: str, other: str) -> None:
    assert not contradict(one, other)


@pytest.mark.parametrize(
    "text",
    sorted(
        {text for pair in OPPOSITE + EXCLUSIVE + CHANGED + COMPATIBLE + conflict_pairs.CONTRADICTING for text in pair}
    ),
)
def test_nothing_contradicts_its_own_repetition(text: str) -> None:
    assert not contradict(text, text)


def pairs(*records: StoredRecord) -> list[tuple[int, int]]:
    return conflicts(records)


def test_a_record_and_the_one_that_replaced_it_conflict_whatever_they_say() -> None:
    old, new = stored("The sky.", record_id="a", replaced_by="b"), stored("The sea.", record_id="b")
    assert pairs(old, stored("Hm.", record_id="c"), new) == [(0, 2)]
    assert pairs(new, old) == [(0, 1)]


def test_a_replacement_that_is_not_there_or_is_the_record_itself_is_no_pair() -> None:
    assert pairs(stored("x", record_id="a", replaced_by="zz"), stored("y", record_id="b")) == []
    assert pairs(stored("x", record_id="a", replaced_by="a"), stored("y", record_id="b")) == []


@pytest.mark.parametrize(("one", "other"), [("I love tea.", "I hate tea."), ("我住在大连。", "我住在北京。")])
def test_different_people_do_not_contradict_each_other(one: str, other: str) -> None:
    assert pairs(stored(one, user="u1"), stored(other, user="u2")) == []
    assert pairs(stored(one, name="Anna"), stored(other, name="Ben")) == []
    assert pairs(stored(one, user=None, name="Anna"), stored(other, user=None, name="Ben")) == []
    assert pairs(stored(one, role="user"), stored(other, role="assistant")) == []
    assert pairs(stored(one, user="u1", name="Anna"), stored(other, user="u1", name="Anna")) == [(0, 1)]
    assert pairs(stored(one, user=None), stored(other, user=None)) == [(0, 1)]


def test_a_thing_is_the_same_whoever_speaks_of_it() -> None:
    one, other = "The deadline is Friday.", "The deadline is Monday."
    assert pairs(stored(one, name="Anna"), stored(other, name="Ben")) == [(0, 1)]
    assert pairs(stored(one, user=None), stored(other, user="u")) == [(0, 1)]
    assert pairs(stored(one, user="u1"), stored(other, user="u2")) == []


def test_what_is_mine_is_not_what_is_yours() -> None:
    one, other = "My car is red.", "My car is blue."
    assert pairs(stored(one, name="Anna"), stored(other, name="Ben")) == []
    assert pairs(stored(one, name="Anna"), stored(other, name="Anna")) == [(0, 1)]


def test_a_fact_about_a_named_speaker_is_compared_with_what_they_say() -> None:
    assert pairs(stored("I live in York.", name="Anna"), stored("Anna lives in Leeds.", name="Ben")) == [(0, 1)]
    assert pairs(stored("我住在大连。"), stored("用户住在北京。", role="assistant")) == [(0, 1)]
    assert pairs(stored("I'm allergic to cats."), stored("The user keeps a cat at home.", role="assistant")) == [(0, 1)]


def test_all_pairs_come_once_and_in_order() -> None:
    texts = ["I hate tea.", "I love tea.", "我很好。", "I love tea and I love it hot.", "I hate tea so much."]
    assert pairs(*map(stored, texts)) == [(0, 1), (0, 3), (1, 4), (3, 4)]


def test_no_records_have_no_conflicts() -> None:
    assert pairs() == []
    assert pairs(stored("")) == []
    assert pairs(stored(""), stored("👋"), stored(" ")) == []


PIECES = st.sampled_from(
    ["I ", "my ", "cat ", "am allergic to ", "don't ", "keep a ", "is ", "Friday ", "我", "对", "猫", "过敏", "养了", "不",
     "住在", "北京", "是", "，", "。", ". ", "?", "3pm ", "一百", "$5,000 ", "👋", "\0", "“", "from ", "to ", "instead of ", "换成"]
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.one_of(st.text(), st.lists(PIECES, max_size=30).map("".join)), max_size=6))
def test_any_texts_are_compared_without_an_error(texts: list[str]) -> None:
    records = [stored(text) for text in texts]
    found = conflicts(records)
    assert found == sorted(set(found))
    assert all(0 <= i < j < len(texts) for i, j in found)
    assert all(len(claims_of(text)) <= MAX_CLAIMS for text in texts)
    assert {(texts[i], texts[j]) for i, j in found}.isdisjoint((text, text) for text in texts)


LONG = ["a", "I ", "my my ", "a b ", "I love ", "is ", "从", "对", "我不", "一", "1,", "1 ", "“", "' ", "not ", "我有", "把", "A ",
        "from ", "in to ", "the a ", "点", "👋", "I eat a, ", "我吃，", "月", "- ", "1-", "的", "现在", "是", "favourite a "]  # fmt: skip


@pytest.mark.parametrize("piece", LONG)
def test_long_texts_take_no_long_time(piece: str) -> None:
    text = (piece * 20_000)[:20_000]
    begin = time.process_time()
    claims_of(text)
    assert time.process_time() - begin < 0.5


def test_forty_records_that_all_speak_of_one_thing_are_compared_at_once() -> None:
    records = [
        stored(f"The deadline is on May {n % 28 + 1}. I eat fish. I never eat meat. I live in Paris.")
        for n in range(40)
    ]
    conflicts(records)
    begin = time.process_time()
    assert len(conflicts(records)) > 700
    assert time.process_time() - begin < 0.5
