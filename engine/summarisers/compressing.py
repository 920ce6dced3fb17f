"""A sentence without what carries nothing: greetings, interjections, fillers, tags. English and Chinese."""
# ruff: noqa: RUF001, E501 - Chinese punctuation is meant, and lists of words

import re
from typing import Final

_NAME: Final = r"(?:[ ,]+(?!(?-i:I\b|I'))(?-i:[A-Z])[\w'-]{1,20}(?=[,.!?]))?"
_LEADING: Final = re.compile(
    r"^(?:(?:hey|hi|hello|oh|ah|aw+|wow|whoa|woah|woohoo|yay|yeah|yep|yup|yes|well|ok|okay|so|and|also|hmm+|haha+|lol|"
    r"thanks(?: so much| a lot| a bunch)?|thank you(?: so much| very much)?|cheers|cool|awesome|great|nice|sure(?: thing)?|right|"
    r"absolutely|definitely|totally|exactly|of course|no worries|congrats|congratulations|good (?:morning|afternoon|evening)|"
    r"sounds (?:good|great)|man|dude|anyway|by the way|btw|guess what|you know what|honestly|to be honest|actually|basically|"
    r"i mean|i guess|omg|phew|ugh|long time no (?:see|talk|chat))\b"
    + _NAME
    + r"[\s,.!?;:\u2014\u2013-]+)+(?=[\w\"'\u201c(]|$)",
    re.IGNORECASE,
)
_INNER: Final = re.compile(
    r"(?<!not)(?<!n't)(?<!only),? (?:you know|i mean|kind of|sort of|kinda|sorta|basically|literally|honestly|to be honest|actually|just|really|so much|"
    r"very much|of course|i guess|i suppose|pretty much|for sure|by the way|btw)(?=[ ,.!?;])(?: ?,(?= ))?",
    re.IGNORECASE,
)
_TAG: Final = re.compile(
    r"(?:,\s*|\s-\s)(?:right|you know|ya know|y'know|huh|eh|(?:is|are|do|does|did|was|were|have|has|can|could|would|won)(?:n't)? (?:it|you|they|that|we|he|she)|"
    r"don't you think|though|lol|haha+)\s*[?.!]+$",
    re.IGNORECASE,
)
_ADDRESS: Final = re.compile(r",\s[A-Z][\w'-]{1,20}(?=[!?.]+$)")
_EMOJI: Final = re.compile(r"[\u2600-\u27bf\U0001f000-\U0001faff\ufe0f\u200d]+")
_LIGHT: Final = re.compile(
    r"\b(?:[Tt]he|[Aa]n?) (?=[a-z])|\b(?:so|very|super|totally|absolutely|definitely|truly|quite|pretty) (?=[a-z]+\b)(?!that\b|as\b|i\b|we\b|far\b|many\b|much\b)"
)
"""Articles (those of titles, as in *The Hobbit*, stay) and words that only stress."""
_LEADING_ZH: Final = re.compile(
    r"^(?:(?:嗯+|恩+|呃|哦+|噢|啊|哇+|哎呀?|哈哈+|嘿|嗨|喂|对[了啊呀的]?|是[的啊呀]|好的?[吧呀啊]?|没错|当然[了啦]?|确实|其实|另外|而且|所以|然后|"
    r"那么?|话说|说起来|你好[啊呀]?|您好|早上好|下午好|晚上好|谢谢[你您]?(?:的(?:建议|推荐|分享|帮助|鼓励|关心|夸奖|支持|回答))?|"
    r"非常感谢[你您]?(?:的(?:建议|推荐|分享|帮助))?|感谢[你您]的\w{2}|不客气|不用谢|没关系|朋友|亲爱的|AI伴侣|我的AI伴侣|太好了|太棒了)[，。！,!~～\s]+)+"
)
_INNER_ZH: Final = re.compile(r"(?:其实|就是说|怎么说呢|说实话|老实说|真的|的话|基本上|总之)(?=[\u4e00-\u9fff])")
_TAG_ZH: Final = re.compile(r"[，,](?:对吧|是吧|对不对|是不是|好吗|好不好|你说呢|你呢|哈哈+)[？?！!。]*$")
_PHATIC: Final = re.compile(
    r"^(?:how(?:'s| is| are| have) (?:it|you|things|everything|ya)\b.{0,30}|what(?:'s| is) (?:up|new|going on).{0,20}|"
    r"(?:that|it|this)(?:'s| is| was| sounds| looks| must be| must have been)? (?:so |really |very |super |such |pretty |totally |an? |just )*"
    r"(?:great|awesome|amazing|cool|nice|wonderful|fantastic|incredible|good|inspiring|lovely|beautiful|true|fun|impressive|exciting|perfect|interesting)"
    r"(?: to hear| news| idea| thing| job| point)?|keep (?:it up|going|up the (?:good|great) work|pushing|me posted)|"
    r"(?:talk|see|catch|chat) (?:to |with )?(?:you|ya) (?:soon|later)|take care|bye(?: for now)?|good luck|you(?:'ve)? got this|"
    r"(?:i )?(?:can't wait|cannot wait)|(?:i )?appreciate (?:it|that|you|your support)|you're (?:so |very )?(?:welcome|right|amazing|the best|awesome)|"
    r"no problem|my pleasure|(?:i'm )?(?:so )?(?:glad|happy|sorry|great|good) to (?:hear|see)(?: that| it| you)?|let me know|same here|me too|"
    r"sounds (?:good|great|fun|amazing|awesome|like a plan))$"
    r"|^(?:很高兴(?:认识|见到)你|再见|晚安|加油|谢谢.{0,8}|不客气|没关系|好的|你好.{0,4}|(?:你|最近)?过?得?怎么样|祝你.{1,8}|希望.{0,6}帮助.{0,4}|听起来(?:很|真|非常)?(?:不错|好|棒|有趣)|(?:真是个?)?好主意|(?:我们)?(?:明天|下次)再?[聊见](?:[吧啦天])?|今天先到这里吧|你最近(?:怎么样|好吗)|今天我?又来(?:和|找)你聊天[了啦]?)$",
    re.IGNORECASE,
)
_EDGES: Final = " \t\r\n,，.。!！?？;；~～…"


def compressed(sentence: str) -> str:
    """The sentence, shorter; empty where nothing but courtesy is left. Every word that says something stays."""
    text = _EMOJI.sub("", sentence).strip()
    text = _LEADING_ZH.sub("", _LEADING.sub("", _ADDRESS.sub("", text), count=1), count=1)
    text = _TAG_ZH.sub("。", _TAG.sub(".", text))
    text = _INNER_ZH.sub("", _LIGHT.sub("", _INNER.sub("", text))).strip()
    bare = text.strip(_EDGES)
    if not bare or _PHATIC.match(bare.replace("\u2019", "'")):
        return ""
    return text[:1].upper() + text[1:]
