"""Words with known relations: what is a kind of what, and which states exclude each other. English and Chinese."""
# ruff: noqa: E501, SIM905 - a word list is read better unbroken

import re
from functools import cache

KINDS: dict[str, tuple[str, ...]] = {
    "meat": (
        "meat 肉 肉类 荤 荤菜 荤腥",
        "beef steak burger hamburger brisket 牛肉 牛排 牛腩 肥牛 汉堡",
        "pork bacon ham sausage prosciutto 猪肉 排骨 红烧肉 培根 火腿 香肠 腊肉 五花肉 猪蹄",
        "lamb mutton 羊肉 羊排 烤羊 羊肉串 烤串",
        "chicken 鸡肉 炸鸡 鸡腿 鸡翅 烤鸡",
        "duck 烤鸭 鸭肉 鸭脖",
        "turkey barbecue ribs kebab meatball 肉丸 烤肉 火锅羊肉 涮肉",
    ),
    "seafood": (
        "seafood shellfish 海鲜 水产",
        "fish salmon tuna cod trout sushi sashimi 鱼 三文鱼 生鱼片 寿司 酸菜鱼 烤鱼",
        "shrimp prawn 虾 小龙虾 龙虾 虾仁 大虾",
        "crab lobster 螃蟹 大闸蟹 蟹",
        "oyster mussel clam scallop 生蚝 扇贝 贝类 蛤蜊",
    ),
    "dairy": (
        "dairy lactose 乳制品 奶制品 乳糖",
        "milk latte cappuccino milkshake 牛奶 鲜奶 拿铁 奶昔",
        "cheese yogurt yoghurt butter cream 奶酪 芝士 酸奶 黄油 奶油 冰淇淋",
    ),
    "egg": ("egg omelette omelet 鸡蛋 蛋 煎蛋 炒蛋",),
    "alcohol": (
        "alcohol booze liquor 酒 酒精 喝酒",
        "beer ale lager 啤酒 扎啤",
        "wine champagne prosecco 红酒 葡萄酒 香槟",
        "whisky whiskey vodka gin rum tequila cocktail 白酒 威士忌 伏特加 鸡尾酒 茅台 黄酒 二锅头",
    ),
    "coffee": ("coffee caffeine 咖啡 咖啡因", "espresso latte cappuccino americano 拿铁 美式 浓缩 卡布奇诺"),
    "tea": ("tea 茶", "matcha 抹茶 绿茶 红茶 普洱 龙井 乌龙茶"),
    "gluten": ("gluten wheat 麸质 小麦", "bread baguette pasta pizza noodles 面包 面条 意面 披萨 馒头 饺子"),
    "nut": (
        "nut 坚果",
        "peanut 花生 花生酱 花生米",
        "almond cashew walnut hazelnut pistachio 杏仁 腰果 核桃 榛子 开心果",
    ),
    "sugar": (
        "sugar sweets sweet dessert 糖 甜食 甜品 甜点",
        "cake chocolate candy cookie donut 蛋糕 巧克力 糖果 饼干 奶茶 冰淇淋",
    ),
    "spice": ("spicy chili chilli 辣 辣椒 辣的", "hotpot 麻辣 川菜 麻辣烫 水煮鱼 湘菜 麻辣火锅"),
    "tobacco": ("tobacco cigarette cigar smoke vape 烟 香烟 抽烟 吸烟",),
    "pet": (
        "pet 宠物",
        "cat kitten kitty 猫 小猫 猫咪 橘猫 布偶猫",
        "dog puppy retriever poodle corgi labrador 狗 小狗 狗狗 金毛 柯基 泰迪 拉布拉多",
        "hamster rabbit parrot goldfish 仓鼠 兔子 鹦鹉 金鱼",
    ),
    "sibling": (
        "sibling 兄弟姐妹 兄弟 姐妹",
        "brother 哥哥 弟弟 哥 弟 大哥 二哥",
        "sister 姐姐 妹妹 姐 妹 大姐 二姐",
    ),
    "child": (
        "child kid children 孩子 小孩 娃",
        "son 儿子",
        "daughter 女儿 闺女",
    ),
    "spouse": ("spouse 配偶 对象", "wife 老婆 妻子 太太 媳妇", "husband 老公 丈夫 先生"),
    "car": ("car vehicle 车 汽车 私家车", "tesla bmw toyota audi volvo 特斯拉 宝马 奥迪 比亚迪"),
}
"""Kind: the words that name it, then one line a member; a member's first word is its name."""

EDIBLE = frozenset({"meat", "seafood", "dairy", "egg", "alcohol", "coffee", "tea", "gluten", "nut", "sugar", "spice"})
CONSUMED = EDIBLE | {"tobacco"}

DIETS: dict[str, tuple[str, ...]] = {
    "vegetarian": ("meat", "seafood"),
    "veggie": ("meat", "seafood"),
    "pescatarian": ("meat",),
    "vegan": ("meat", "seafood", "dairy", "egg"),
    "teetotal": ("alcohol",),
    "teetotaler": ("alcohol",),
    "teetotaller": ("alcohol",),
    "sober": ("alcohol",),
    "lactose": ("dairy",),
    "celiac": ("gluten",),
    "coeliac": ("gluten",),
    "diabetic": ("sugar",),
    "糖尿病": ("sugar",),
    "纯素": ("meat", "seafood", "dairy", "egg"),
    "素食": ("meat", "seafood"),
    "吃素": ("meat", "seafood"),
    "滴酒不沾": ("alcohol",),
    "戒酒": ("alcohol",),
    "酒戒": ("alcohol",),
    "酒精过敏": ("alcohol",),
    "戒烟": ("tobacco",),
    "烟戒": ("tobacco",),
    "乳糖不耐": ("dairy",),
    "戒糖": ("sugar",),
    "戒咖啡": ("coffee",),
    "咖啡戒": ("coffee",),
}
"""A way of life and what it leaves out."""

STATES: dict[str, tuple[str, ...]] = {
    "married": ("single unmarried|未婚|单身", "married|已婚|结婚了", "divorced|离婚", "engaged|订婚"),
    "siblings": ("only child|独生子|独生女",),
    "theme": ("dark|深色|暗色|黑色主题|夜间", "light|浅色|亮色|白色主题|日间"),
    "indent": ("tabs tab|制表符", "spaces|空格"),
    "seat": ("aisle|靠过道|过道", "window seat|靠窗"),
    "channel": ("email|邮件|邮箱", "phone call calls|电话", "sms text|短信", "wechat|微信", "slack|slack"),
    "daytime": ("morning early|早上|早起|早晨", "evening night late|晚上|夜里|熬夜|夜猫子"),
    "length": ("short brief concise|简短|简洁|简单", "long detailed verbose|详细|长篇"),
    "tone": ("formal|正式", "casual informal|随意|口语"),
    "units": ("metric|公制", "imperial|英制"),
    "place": ("remote|远程|居家|在家办公", "onsite office|坐班|到岗"),
    "hand": ("left-handed|左撇子", "right-handed|右撇子"),
    "open": ("open|开放|营业", "closed|关闭|关门|停业"),
    "on": ("enabled|启用|开启|打开", "disabled|禁用|关闭|停用"),
    "sharing": ("public|公开", "private|私有|不公开"),
    "cost": ("free|免费", "paid|收费|付费"),
    "verdict": ("approved accepted|批准|通过", "rejected denied|驳回|拒绝|否决"),
    "mind": ("introvert introverted|内向", "extrovert extroverted|外向"),
    "weather": ("summer|夏天", "winter|冬天"),
    "hot_drink": ("tea|茶", "coffee|咖啡"),
    "temperature": ("hot|热的|热饮", "iced cold|冰的|冷饮"),
    "land": ("beach sea seaside|海边", "mountain mountains|山里|爬山"),
    "living": ("alone|独居|一个人住", "roommate flatmate roommates|室友|合租"),
    "job": ("unemployed jobless|失业|待业", "employed|在职", "retired|退休"),
    "hours": ("full-time|全职", "part-time|兼职"),
    "language": (
        "english|英文|英语",
        "chinese mandarin|中文|汉语|普通话",
        "french|法语|法文",
        "german|德语|德文",
        "spanish|西班牙语",
        "japanese|日语|日文",
    ),
}
"""Sets of states of which one excludes the others: ``english words|中文|…`` for each."""

JOBS_EN = frozenset(
    "teacher nurse doctor engineer developer programmer lawyer accountant designer architect chef cook driver pilot "
    "dentist vet journalist writer editor manager consultant analyst scientist researcher electrician plumber carpenter "
    "barista waiter waitress student professor librarian photographer translator pharmacist firefighter farmer banker "
    "freelancer paramedic surgeon therapist psychologist salesman salesperson recruiter".split()
)
JOBS_ZH = (
    "老师|教师|医生|护士|工程师|程序员|律师|会计|设计师|建筑师|厨师|司机|飞行员|牙医|记者|作家|编辑|经理|顾问|"
    "分析师|科学家|研究员|电工|木匠|学生|教授|摄影师|翻译|药剂师|消防员|农民|公务员|警察|销售|自由职业者|产品经理|"
    "快递员|军人|运营|收银员|保安"
)


@cache
def _known() -> dict[str, tuple[str, frozenset[str]]]:
    """Word → (its one name, the kinds that it belongs to)."""
    known: dict[str, tuple[str, frozenset[str]]] = {}
    for kind, (names, *members) in KINDS.items():
        for word in names.split():
            known[word] = (kind, frozenset({kind}))
        for member in members:
            first = member.split()[0]
            for word in member.split():
                earlier = known.get(word, ("", frozenset()))[1]
                known[word] = (first, earlier | {kind})
    return known


@cache
def _chinese_words() -> re.Pattern[str]:
    words = sorted((word for word in _known() if not word.isascii()), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, words)))


_LOOKALIKES = re.compile(
    r"酒店|酒吧|酒席|肌肉|牛油果|奶奶|火车|汽车站|自行车|公交车|电动车|车站|车票|堵车|出租车|网约车|打车|坐车|停车|"
    r"烟花|烟台|鱼缸|茶几|糖尿病|对象是|猫眼|天猫|热狗|小弟|弟子|妹子|蛋糕店"
)


def kinds_in(text: str) -> list[tuple[str, frozenset[str]]]:
    """The known things that a Chinese text names: one name and the kinds of each, in order."""
    return [_known()[found] for found in _chinese_words().findall(_LOOKALIKES.sub("", text))]


def kind_of(word: str) -> tuple[str, frozenset[str]] | None:
    """The one name and the kinds of an English word (lower case), None where it is not known."""
    known = _known()
    for form in (word, word.removesuffix("s"), word.removesuffix("es")):
        if form in known:
            return known[form]
    return None


@cache
def _states() -> tuple[re.Pattern[str], dict[str, list[tuple[str, str]]]]:
    owners: dict[str, list[tuple[str, str]]] = {}
    for group, members in STATES.items():
        for member in members:
            english, *chinese = member.split("|")
            for word in [*((english,) if english in {"only child", "window seat"} else english.split()), *chinese]:
                owners.setdefault(word, []).append((f"state:{group}", member))
    words = sorted(owners, key=len, reverse=True)
    return re.compile("|".join(rf"\b{re.escape(w)}\b" if w.isascii() else re.escape(w) for w in words)), owners


def states_in(text: str) -> list[tuple[str, str]]:
    """The states that a text (lower case) names: (``state:<set>``, member), in order."""
    pattern, owners = _states()
    return [owner for found in pattern.findall(text) for owner in owners[found]]
