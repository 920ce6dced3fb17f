# ruff: noqa: RUF001 - Chinese punctuation
"""What a text names: people, places, organisations, dates, numbers, links, files, code. By patterns and small lists."""

import re
from collections.abc import Iterator
from typing import Final

from engramlog.engine.derivers.chinese import Word
from engramlog.engine.derivers.english import is_weak
from engramlog.engine.derivers.texts import URL, Reading, word_set
from engramlog.schemas.derived import Entity

MAX_ENTITIES: Final = 64
_LONGEST: Final = 120
_SHORTEST: Final = 2

_MONTH: Final = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)"
)
_DAY: Final = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_DATE: Final = re.compile(
    rf"""\b\d{{4}}-\d{{1,2}}-\d{{1,2}}(?:[T ]\d{{2}}:\d{{2}}(?::\d{{2}})?)?\b
    |\b\d{{1,2}}/\d{{1,2}}/\d{{2,4}}\b
    |\b(?:\d{{1,2}}(?:st|nd|rd|th)?\ (?:of\ )?{_MONTH}\b|{_MONTH}\ \d{{1,2}}(?:st|nd|rd|th)?\b)(?:,?\ \d{{4}}\b)?
    |\b{_MONTH}\ \d{{4}}\b
    |\b(?:last|next|this|on|every)\ (?:{_DAY}|week(?:end)?|month|year|summer|winter|spring|autumn|fall)\b
    |\b(?:{_DAY}|yesterday|tomorrow|tonight|today)\b
    |\b(?:a\ few|a\ couple\ of|two|three|four|five|six|\d{{1,3}})\ (?:days?|weeks?|months?|years?)\ ago\b
    |\d{{2,4}}年(?:\d{{1,2}}月(?:\d{{1,2}}[日号])?)?|\d{{1,2}}月\d{{1,2}}[日号]
    |(?:上个?|下个?|这个?|本)(?:周|星期|礼拜)[一二三四五六日天末]?|(?:周|星期|礼拜)[一二三四五六日天末]
    |(?:今|明|昨|前|后)(?:天|晚|年)|(?:上|下)个?月(?:\d{{1,2}}[日号])?|(?:去|今|明)年
    """,
    re.IGNORECASE | re.VERBOSE | re.ASCII,
)
_TIME: Final = re.compile(
    r"\b\d{1,2}:\d{2}(?:\s?[ap]\.?m\.?)?\b|\b\d{1,2}\s?[ap]\.?m\b|(?:上午|下午|早上|晚上|中午)?\d{1,2}点(?:半|\d{1,2}分?)?",
    re.IGNORECASE | re.ASCII,
)
_FILE: Final = re.compile(
    r"(?<![\w/@])(?:[\w.~-]{0,60}/){0,12}[\w-][\w.-]{0,80}\.(?:py|js|ts|tsx|jsx|java|go|rs|c|h|cpp|cs|rb|php|sh|sql|html|css"
    r"|json|ya?ml|toml|ini|cfg|xml|csv|tsv|txt|md|rst|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|mp[34]|zip|gz|tar|log|ipynb|lock)\b",
    re.ASCII,
)
_CODE: Final = re.compile(
    r"`[^`\n]{1,80}`|\b[A-Za-z_]\w{0,40}(?:\.[A-Za-z_]\w{0,40}){0,6}\(\)|\b[a-z][a-z0-9]{0,30}(?:_[a-z0-9]{1,30}){1,6}\b"
    r"|\b[A-Z][A-Z0-9]{0,30}(?:_[A-Z0-9]{1,30}){1,6}\b|\b[a-z]{1,30}[a-z0-9]{0,30}(?:[A-Z][a-z0-9]{1,30}){1,6}\b"
    r"|\b[A-Z]\w{1,40}(?:Error|Exception)\b|(?<![\w-])--[a-z][a-z-]{1,40}\b",
    re.ASCII,
)
_NUMBER: Final = re.compile(
    r"(?<![\w.])[$€£¥￥]?\d[\d,]{0,20}(?:\.\d{1,10})?\s?(?:%|℃|°C?|(?:kg|km|cm|mm|mb|gb|tb|ms|g|m|k|usd|eur|rmb|dollars?|euros?"
    r"|years?|months?|weeks?|days?|hours?|minutes?|miles?|pounds?|people|times)\b|(?:万|亿)?(?:元|块|岁|个|人|斤|公斤|公里|米|小时"
    r"|分钟|天|年|月|次|本|只|台|层|楼|平方米)?)",
    re.IGNORECASE | re.ASCII,
)
_MAIL: Final = re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}\b", re.ASCII)
_CAPITALS: Final = re.compile(
    r"(?<![\w'\u2019])[A-Z][\w'\u2019&:-]{0,30}(?:\ (?:of\ |the\ |de\ )?[A-Z][\w'\u2019&:-]{0,30}){0,4}"
)
_TITLE: Final = re.compile(r"《[^《》\n]{1,60}》")
_CHINESE_NAME: Final = re.compile(
    r"(?:我叫|名叫|我是|叫做|同事|老师|医生|朋友|老板|经理|同学)(?P<name>[赵钱孙李周吴郑王冯陈褚卫蒋沈韩杨朱秦许何吕张孔曹严华金魏陶姜谢邹苏潘葛范彭鲁马方任袁柳史唐薛雷贺"
    r"罗毕安常于傅顾孟黄穆萧尹姚邵汪毛戴宋庞熊纪舒董梁杜阮贾江郭林钟徐邱骆高夏蔡田胡凌霍万卢莫丁邓石崔程陆翁段侯武刘龙叶白温庄曾][\u4e00-\u9fff]{1,2}?)(?=[，。！？、,.!?\s和跟在说是的住去来]|$)"
)
_PLACES: Final = word_set(
    "africa america asia europe australia argentina austria belgium brazil canada chile china colombia denmark egypt "
    "england finland france germany greece iceland india indonesia ireland israel italy japan kenya korea malaysia "
    "mexico morocco netherlands norway peru poland portugal russia scotland singapore spain sweden switzerland taiwan "
    "thailand turkey ukraine vietnam wales amsterdam athens bangkok barcelona beijing berlin boston brussels chicago "
    "copenhagen dalian delhi dublin edinburgh florence geneva guangzhou hamburg hangzhou helsinki istanbul jakarta "
    "lisbon london madrid manchester melbourne miami milan montreal moscow mumbai munich nairobi oslo paris "
    "philadelphia prague rome seattle seoul shanghai shenzhen stockholm sydney tokyo toronto vancouver venice vienna "
    "warsaw washington wuhan zurich california florida texas hawaii alaska nevada oregon michigan ohio virginia "
    "minnesota colorado nyc la uk usa us"
)
_FIRST_NAMES: Final = word_set(
    "adam alex alice amy andrew angela anna anne anthony barbara ben bob brian carlos caroline catherine charles "
    "charlie chris christine cindy claire daniel dave david deborah diana donald dorothy edward elena elizabeth ellen "
    "emily emma eric ethan evan eva frank fred gary george grace hannah harry helen henry ian isabella jack jacob "
    "james jane jason jean jeff jennifer jenny jessica jill jim joan joe john jose joseph joshua julia julie "
    "karen kate katherine kelly kevin kim kyle laura lauren lena leo lily linda lisa louis lucas lucy luke maria "
    "marie mark martha martin mary matt matthew megan melanie michael michelle mike monica nancy natalie nate nathan "
    "nick nicole noah oliver olivia oscar pamela patricia patrick paul peter philip rachel ralph rebecca richard "
    "robert rose ruth ryan sam samantha samuel sandra sara sarah scott sharon simon sophia sophie stephanie stephen "
    "steve steven susan tanya thomas tim tom tony vera victor victoria vincent walter wendy william zoe mr mrs dr"
)
_PLACE_ENDS: Final = word_set(
    "park street road avenue lake river mountain mountains beach island city bay valley bridge airport station square "
    "canyon"
)
_ORGANISATION_ENDS: Final = word_set(
    "inc ltd gmbh corp corporation company university college school institute hospital bank foundation museum "
    "association club team agency group department ministry city united fc"
)
_NOT_NAMES: Final = word_set(
    "i i'm i've i'd i'll monday tuesday wednesday thursday friday saturday sunday january february march april may "
    "june july august september october november december english chinese french german spanish italian portuguese "
    "japanese korean"
)
_CHINESE_PLACES: Final = word_set(
    "大连 北京 上海 广州 深圳 杭州 南京 苏州 成都 重庆 武汉 西安 天津 青岛 厦门 长沙 沈阳 哈尔滨 昆明 三亚 丽江 大理 "
    "桂林 香港 澳门 台北 东京 大阪 京都 首尔 曼谷 新加坡 伦敦 巴黎 纽约 洛杉矶 罗马 柏林 悉尼 莫斯科 欧洲 美国 英国 "
    "法国 德国 日本 韩国 泰国 意大利 西班牙 新西兰 澳大利亚 加拿大"
)
_CHINESE_ORGANISATIONS: Final = word_set(
    "阿里巴巴 腾讯 百度 华为 小米 京东 字节跳动 网易 美团 微软 谷歌 苹果公司 清华大学 北京大学 复旦大学"
)
_FLAGS: Final = {"ns": "place", "nt": "organisation", "nr": "person", "nrt": "person", "nrfg": "person"}
_NOT_PEOPLE: Final = word_set(
    "谢谢 过敏 感谢 拜拜 晚安 阳台 明星 小鸟 小狗 小猫 小孩 安心 安慰 安排 温暖 欢乐 和睦 康复 明亮 宁静 常青 常规 "
    "时光 金黄 温泉 高兴 安静 小心 明白 平安 和平 阳光 温馨 文静 开朗 安全 白天 高峰 高手 黄金 马上 小时 周末 向往 "
    "美丽 明天 明年 明确"
)


def entities_of(reading: Reading, words: list[Word]) -> tuple[Entity, ...]:
    """The entities of a text in their order, each once, at most 64; of overlapping ones the first kind stands."""
    taken: list[tuple[int, int, str, str]] = []
    for start, end, kind in _matches(reading.text, words):
        text = reading.text[start:end].strip(" `《》,.;:'\u2019")
        if text and len(text) <= _LONGEST and not any(start < to and begin < end for begin, to, _, _ in taken):
            taken.append((start, end, text, kind))
            if len(taken) >= 2 * MAX_ENTITIES:
                break
    found = {(text, kind): None for _, _, text, kind in sorted(taken)}
    return tuple(Entity.model_validate({"text": text, "type": kind}) for text, kind in list(found)[:MAX_ENTITIES])


def _matches(text: str, words: list[Word]) -> Iterator[tuple[int, int, str]]:
    for pattern, kind in (
        (URL, "url"), (_MAIL, "other"), (_FILE, "file"), (_CODE, "code"), (_DATE, "date"), (_TIME, "date"),
        (_TITLE, "product"), (_NUMBER, "number"),
    ):  # fmt: skip
        yield from ((match.start(), match.end(), kind) for match in pattern.finditer(text))
    yield from ((match.start("name"), match.end("name"), "person") for match in _CHINESE_NAME.finditer(text))
    yield from _chinese(text, words)
    yield from _capitalised(text)


def _chinese(text: str, words: list[Word]) -> Iterator[tuple[int, int, str]]:
    at = 0
    for word in words:
        kind = _chinese_kind(word)
        if kind is None or len(word.text) < _SHORTEST or word.text in _NOT_PEOPLE or word.text.isascii():
            continue
        start = text.find(word.text, at)
        if start >= 0:
            at = start + len(word.text)
            yield start, at, kind


def _chinese_kind(word: Word) -> str | None:
    if word.text in _CHINESE_PLACES:
        return "place"
    return "organisation" if word.text in _CHINESE_ORGANISATIONS else _FLAGS.get(word.flag)


def _capitalised(text: str) -> Iterator[tuple[int, int, str]]:
    """Names of Latin script. The first word of a sentence is a name only where a list, or its company, says so."""
    for match in _CAPITALS.finditer(text):
        start, name = match.start(), match.group().rstrip("'\u2019:-&")
        while name and (is_weak(name.split()[0]) or name.split()[0].lower() in _NOT_NAMES):
            _, _, rest = name.partition(" ")
            start, name = start + len(name) - len(rest), rest
        parts = name.lower().replace("\u2019", "'").removesuffix("'s").split()
        kind = _kind(parts, first=start == match.start() and _begins_sentence(text, start))
        if kind:
            yield start, start + len(name.removesuffix("'s").removesuffix("\u2019s")), kind


def _kind(parts: list[str], *, first: bool) -> str | None:
    if not parts or len("".join(parts)) < _SHORTEST:
        return None
    if parts[-1] in _ORGANISATION_ENDS and len(parts) > 1:
        return "organisation"
    if " ".join(parts) in _PLACES or parts[-1] in _PLACES or (parts[-1] in _PLACE_ENDS and len(parts) > 1):
        return "place"
    if parts[0] in _FIRST_NAMES:
        return "person"
    if first and len(parts) == 1:
        return None
    return "other"


def _begins_sentence(text: str, at: int) -> bool:
    before = text[max(0, at - 8) : at].rstrip(" \t\"'(*-\u201c")
    return not before or before[-1] in ".!?\n:;\u3002\uff01\uff1f\u2026"
