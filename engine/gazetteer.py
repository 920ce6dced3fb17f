"""Names of places that are often talked about: large cities, Chinese provinces, countries. English and Chinese."""
# ruff: noqa: E501, SIM905 - a word list is read better unbroken

_COUNTRIES = frozenset(
    "china japan korea england britain uk scotland wales ireland france germany spain italy portugal netherlands belgium "
    "switzerland austria sweden norway denmark finland poland russia ukraine turkey india thailand vietnam singapore "
    "malaysia indonesia australia canada usa america mexico brazil argentina egypt greece iceland africa europe asia "
    "philippines israel iran kenya nigeria morocco chile peru colombia cuba nepal hungary romania czechia croatia "
    "中国 日本 韩国 英国 法国 德国 西班牙 意大利 葡萄牙 荷兰 比利时 瑞士 奥地利 瑞典 挪威 丹麦 芬兰 波兰 俄罗斯 乌克兰 土耳其 印度 "
    "泰国 越南 新加坡 马来西亚 印尼 澳大利亚 澳洲 新西兰 加拿大 美国 墨西哥 巴西 阿根廷 埃及 希腊 冰岛 非洲 欧洲 亚洲 菲律宾 "
    "以色列 尼泊尔 匈牙利 捷克 国外 海外 南方 北方".split()
)
_PROVINCES = frozenset(
    "河北 山西 辽宁 吉林 黑龙江 江苏 浙江 安徽 福建 江西 山东 河南 湖北 湖南 广东 海南 四川 贵州 云南 陕西 甘肃 青海 台湾 "
    "内蒙古 广西 西藏 宁夏 新疆 东北 sichuan yunnan guangdong zhejiang liaoning hunan hubei shandong "
    "california texas florida bavaria tuscany andalusia provence scandinavia".split()
)
_CITIES = frozenset(
    "北京 上海 天津 重庆 广州 深圳 香港 澳门 台北 石家庄 太原 沈阳 长春 哈尔滨 南京 杭州 合肥 福州 南昌 济南 郑州 武汉 长沙 海口 "
    "成都 贵阳 昆明 西安 兰州 西宁 呼和浩特 南宁 拉萨 银川 乌鲁木齐 大连 青岛 苏州 无锡 宁波 厦门 珠海 东莞 佛山 温州 烟台 威海 "
    "三亚 丽江 大理 桂林 洛阳 开封 扬州 常州 徐州 泉州 汕头 中山 惠州 嘉兴 绍兴 秦皇岛 唐山 鞍山 丹东 延吉 敦煌 张家界 黄山 九寨沟 "
    "西双版纳 高雄 东京 大阪 京都 首尔 釜山 曼谷 伦敦 巴黎 柏林 慕尼黑 罗马 米兰 威尼斯 马德里 巴塞罗那 里斯本 阿姆斯特丹 维也纳 "
    "布拉格 苏黎世 莫斯科 伊斯坦布尔 迪拜 纽约 洛杉矶 旧金山 西雅图 芝加哥 波士顿 华盛顿 多伦多 温哥华 悉尼 墨尔本 巴厘岛 普吉岛 "
    "beijing shanghai tianjin chongqing guangzhou shenzhen nanjing hangzhou chengdu wuhan xian dalian qingdao suzhou "
    "xiamen harbin kunming taipei tokyo osaka kyoto seoul busan bangkok london paris berlin munich hamburg cologne "
    "frankfurt rome milan venice florence naples madrid barcelona seville valencia lisbon porto amsterdam rotterdam "
    "brussels vienna prague budapest warsaw krakow zurich geneva basel stockholm oslo bergen copenhagen helsinki dublin "
    "edinburgh glasgow manchester liverpool leeds bristol birmingham york oxford cambridge brighton moscow istanbul "
    "ankara athens cairo dubai mumbai delhi bangalore jakarta hanoi manila chicago boston seattle austin dallas houston "
    "denver portland miami atlanta philadelphia detroit toronto montreal vancouver sydney melbourne brisbane perth "
    "auckland lyon marseille nice bordeaux toulouse nairobi lagos lima bogota santiago".split()
)
_TWO_WORDS = frozenset(
    ("new york", "los angeles", "san francisco", "san diego", "las vegas", "hong kong", "new zealand", "south africa",
     "south korea", "cape town", "rio de janeiro", "buenos aires", "mexico city", "tel aviv", "saudi arabia", "new delhi",
     "united states", "united kingdom", "costa rica", "sri lanka", "kuala lumpur", "new orleans")
)  # fmt: skip
PLACES = _COUNTRIES | _PROVINCES | _CITIES | _TWO_WORDS
"""All of them, lower case."""


def is_country(name: str) -> bool:
    """Whether a name (lower case) is that of a country, a province, or larger: a town may lie in it."""
    return name in _COUNTRIES or name in _PROVINCES


def is_place(name: str) -> bool:
    """Whether a name (lower case) is that of a known place."""
    return name in PLACES
