"""Chinese words that may name a subject, by jieba's dictionary, word classes and document frequencies."""

import logging
import math
import warnings
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from engramlog.engine.derivers.phrases import Phrase
from engramlog.engine.derivers.texts import word_set
from engramlog.schemas.errors import ConfigurationError

_WEAK: Final = word_set(
    "太棒了 太好了 难以完成 无从下手 有空 怎么办 有没有 今天天气 下着雨 挺好吃 会儿 太好了 是不是 好不好 起来 还有 "
    "没有 感到 想到 看到 见到 告诉 助手 问问 解决问题 缺点 确定 无法 好像 不准 想来 请教 请问 办好 认为 哪些地方 特殊 "
    "太太 不太好 聊聊天 感人 好吃 会不会 能不能 明白 处理 出来 下来 回来 过来 进去 出去 我会 我要 朋友 建议 感觉 感受 "
    "时候 时间 东西 事情 事儿 问题 情况 方面 人们 生活 今天 明天 昨天 昨晚 今晚 最近 周末 星期天 周日 周六 伴侣 "
    "人工智能 AI ai 方法 方式 办法 机会 能力 影响 作用 意义 价值 过程 经历 体验 话题 内容 想法 看法 观点 意见 推荐 "
    "帮助 支持 鼓励 陪伴 理解 交流 分享 聊天 谈谈 聊聊 喜欢 觉得 知道 希望 需要 可以 能够 应该 开始 继续 尝试 选择 "
    "考虑 准备 打算 计划 决定 想要 学到 享受 放松 一下 一些 一点 有些 有点 很多 非常 特别 比较 确实 真的 其实 当然 "
    "可能 一定 自己 大家 别人 他人 人 人类 事 心 心情 情绪 你好 您好 谢谢 感谢 不客气 再见 晚安 早上好 下午好 晚上好 "
    "加油 哈哈 好的 没问题 没关系 对不起 抱歉 棒 不错 好 新 大 小 多 少 开心 高兴 快乐 愉快 美好 美丽 漂亮 有趣 "
    "有意思 舒服 舒适 重要 困难 简单 容易 不同 主要 很棒 优秀 精彩 好处 坏处 风格 特点 程度 状态 关系 原因 结果 目标 "
    "目的 作品 一部 一个 一种 一次 一场 一家 一份 一段 一本 一首 一道 一名 一位 一座 一张 两个 几个 这个 那个 这些 "
    "那些 这种 那种 这样 那样 这里 那里 什么 怎么 怎样 如何 为什么 哪里 哪些 哪个 多少 几 每天 每次 每个 平时 通常 "
    "经常 总是 有时 有时候 偶尔 以前 之前 以后 之后 现在 目前 未来 将来 过去 刚才 小时 分钟 早上 上午 中午 下午 晚上 "
    "深夜 日子 年 月 日 地方 部分 地点 世界 社会 实体 身边 身上 心里 内心 心灵 角度 层面 基础 具体 对方 程序 概念 "
    "本人 声音 样子 类型 种类 名字 重点 有助于 有帮助 收获 表现 成功 积极 乐观 勇气 信心 力量 动力 技巧 技能 难度 "
    "遗憾 祝福 真心 关心 责任 期待 回忆 存在 存在之本 事物 反馈 解释 发展 提高 提升 改善 保持 增加 减少 进行 参加 "
    "参与 了解 学习 认识 发现 遇到 发生 带来 给予 获得 得到 使用 利用 通过 寻找 寻求 追求 无限 乐趣 真实 自然 好友 "
    "热情 灵感 创造力 想象力 兴趣 爱好 兴趣爱好 活动 经验 知识 精神 思想 深度 内涵 知名度 影响力 个人 具有 拥有"
)
_CLASS_WEIGHTS: Final = {
    "n": 1.0, "vn": 1.0, "nz": 1.0, "ns": 0.9, "nt": 1.0, "nr": 0.25, "nrt": 0.3, "nrfg": 0.3, "ng": 0.3, "eng": 0.8,
    "j": 0.7, "l": 0.45, "i": 0.35, "v": 0.3, "a": 0.3, "an": 0.5, "s": 0.4, "x": 0.0,
}  # fmt: skip
_WORDS_LOOKED_AT: Final = 3_000
MAX_LABEL: Final = 8
_LONGEST_ASCII: Final = 24
_SHORTEST: Final = 2
_CARRIES: Final = 0.3
_IDF_WITHIN: Final = (4.6, 11.0)
"""Rare words are not so much better labels than common ones as their document frequencies say."""
_TYPICAL_IDF: Final = 7.5
_OFTEN: Final = 0.4
_TOGETHER: Final = 0.65
"""Of the weights of two nouns: as a pair they name more than either, and less than both."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a Chinese text and its class, as jieba names it (``n``, ``v``, ``ns`` ...)."""

    text: str
    flag: str


@dataclass(frozen=True, slots=True)
class _Jieba:
    tagger: Any
    idf: dict[str, float]


def load() -> None:
    """Load jieba's dictionary and frequencies: about two seconds, once a process.

    Raises:
        ConfigurationError: jieba is not installed.
    """
    _jieba()


@lru_cache(maxsize=1)
def _jieba() -> _Jieba:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # jieba's sources hold escapes that newer Pythons warn of
            import jieba
            import jieba.analyse
            import jieba.posseg
    except ImportError as error:
        raise ConfigurationError("Chinese texts need jieba: pip install engramlog[offline]") from error
    logging.getLogger("jieba").setLevel(logging.WARNING)
    tokenizer = jieba.dt
    if not tokenizer.initialized:
        # Its own way keeps a cache in the shared temporary directory, which anybody could have put there.
        tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
        tokenizer.initialized = True
    frequencies, _ = jieba.analyse.default_tfidf.idf_loader.get_idf()
    return _Jieba(jieba.posseg.POSTokenizer(tokenizer), frequencies)


def words_of(text: str) -> list[Word]:
    """Cut a text into words with their classes.

    Unknown names stay in pieces: to guess them costs seven times as much.
    """
    cut = _jieba().tagger.cut(text, HMM=False)
    return [Word(pair.word, pair.flag) for pair, _ in zip(cut, range(_WORDS_LOOKED_AT), strict=False)]


def is_weak(word: str) -> bool:
    """Whether a word names nothing by itself."""
    return word in _WEAK or len(word) < _SHORTEST or (word.isascii() and word.lower() in _WEAK)


def content_words(words: list[Word]) -> list[str]:
    """The words that say what a text is about, in order, with repetitions."""
    return [word.text for word in words if _weight(word) >= _CARRIES and not is_weak(word.text)]


def phrases(words: list[Word]) -> list[Phrase]:
    """The words, and pairs of neighbouring nouns up to eight characters, that may name a subject, in order."""
    counts = Counter(word.text for word in words)
    found: list[Phrase] = []
    for at, word in enumerate(words):
        if (
            is_weak(word.text)
            or len(word.text) > (_LONGEST_ASCII if word.text.isascii() else MAX_LABEL)
            or _weight(word) == 0.0
        ):
            continue
        place = at / len(words)
        found.append(Phrase(word.text, (word.text,), _score(word, counts), place))
        after = words[at + 1] if at + 1 < len(words) else None
        if after and _compound(word, after):
            weight = _TOGETHER * (_score(word, counts) + _score(after, counts))
            found.append(Phrase(word.text + after.text, (word.text, after.text), weight, place))
    return found


def _compound(word: Word, after: Word) -> bool:
    return (
        word.flag in ("n", "vn", "nz", "ns", "an", "eng")
        and after.flag in ("n", "vn", "nz")
        and not is_weak(after.text)
        and word.text != after.text
        and len(word.text) + len(after.text) <= MAX_LABEL
    )


def _weight(word: Word) -> float:
    return _CLASS_WEIGHTS.get(word.flag, 0.0)


def _score(word: Word, counts: Counter[str]) -> float:
    least, most = _IDF_WITHIN
    idf = max(least, min(most, _jieba().idf.get(word.text, most))) / _TYPICAL_IDF
    return _weight(word) * idf * (1.0 + _OFTEN * math.log(counts[word.text]))
