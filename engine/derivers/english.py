"""English words and phrases that may name a subject."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from engramlog.engine.derivers.phrases import Phrase
from engramlog.engine.derivers.texts import word_set

_GRAMMAR: Final = word_set(
    "a an the and or but nor so yet if then than that this these those there here it its it's he she they them his "
    "her their theirs him we us our ours you your yours i me my mine myself yourself himself herself themselves "
    "ourselves who whom whose which what when where why how all any both each few more most other others another some "
    "such no not only own same too very can could will would shall should may might must ought do does did done doing "
    "don't doesn't didn't be am is are was were been being have has had having to of in on at by for from with about "
    "against between into through during before after above below up down out off over under again further once as "
    "until while because since although though whether either neither per via upon within without toward towards "
    "among across along around behind beside besides beyond near despite except like unlike plus i'm i've i'd i'll "
    "you're you've you'd you'll he's she's they're they've we're we've we'd we'll that's what's who's where's how's "
    "there's here's let's isn't aren't wasn't weren't won't wouldn't can't couldn't shouldn't haven't hasn't hadn't "
    "ain't gonna wanna gotta kinda sorta one ones two three four five six seven eight nine ten first second third "
    "last next also just even still already ever never always often sometimes usually really quite rather pretty "
    "almost maybe perhaps probably definitely absolutely certainly totally actually basically literally especially "
    "recently lately finally currently soon later now today tonight tomorrow yesterday ago back away together apart "
    "else instead anyway though however therefore otherwise"
)
_WEAK: Final = word_set(
    # talk itself
    "hi hey hello yo bye goodbye thanks thank thankful cheers please sorry congrats congratulations wow woah whoa "
    "woohoo yay yeah yep yup yes nope nah ok okay oh ah aw aww hmm huh haha lol omg phew cool nice good great awesome "
    "amazing wonderful fantastic incredible excellent perfect lovely beautiful gorgeous stunning fun funny super "
    "sweet happy glad excited exciting sad sure right wrong true false real fine bad worse worst better best big "
    "bigger small little long short new old young high low hard easy tough difficult different similar important "
    "special favorite favourite main whole full many much lot lots bunch tons ton bit couple several enough less "
    "least various certain possible able proud grateful inspiring inspired impressive impressed interesting "
    "interested rewarding fulfilling motivated motivating encouraging empowering meaningful valuable priceless tasty "
    "delicious yummy cute insightful refreshing relaxing peaceful calming challenging thrilling unreal insane hyped "
    "stoked pumped keen fond cozy huge tiny hot cold nearby own busy free ready close far late early recent upcoming "
    "past future latest current daily weekly "
    # thin nouns
    "thing things stuff something anything everything nothing someone anyone everyone somebody anybody everybody "
    "people person folks folk guy guys man woman men women kind kinds sort sorts type types way ways part parts piece "
    "pieces time times day days week weeks month months year years hour hours minute minutes moment moments while "
    "morning afternoon evening night weekend place places area lot point points fact idea ideas thought thoughts "
    "feeling feelings reason reasons example case difference sense mind heart life lives world experience experiences "
    "journey adventure progress support help advice tip tips suggestion suggestions recommendation recommendations "
    "question questions answer answers problem problems issue issues news update updates info information detail "
    "details photo photos pic pics picture pictures image snapshot screenshot quote end start beginning rest side top "
    "number pair group spirit vibe vibes joy love luck blast treat shot deal matter goal goals dream dreams passion "
    "passions effort efforts chance chances opportunity opportunities impact memory memories step steps turn chat "
    "talk words word hope wish plan plans friend friends buddy pal mate dude hobby hobbies activity activities "
    "interest interests success strength courage happiness kindness gift boost appreciation encouragement inspiration "
    "motivation perspective perspectives lives "
    # common verbs
    "go goes going went gone come comes coming came get gets getting got gotten make makes making made take takes "
    "taking took taken give gives giving gave given see sees seeing saw seen look looks looking looked know knows "
    "knowing knew known think thinks thinking find finds finding found feel feels feeling felt want wants wanted "
    "wanting need needs needed needing try tries trying tried use uses using used keep keeps keeping kept let lets "
    "put puts putting say says saying said tell tells telling told ask asks asking asked hear hears hearing heard "
    "show shows showing showed shown share shares sharing shared bring brings bringing brought meet meets meeting met "
    "mean means meant seem seems seemed become becomes became happen happens happened happening work works worked "
    "working start starts started starting begin begins began begun stop stops stopped stopping leave leaves left "
    "live lives lived loved loves loving liked likes enjoy enjoys enjoyed enjoying appreciate appreciated miss missed "
    "missing check checked checking hang hanging catch catching caught spend spends spent spending help helps helped "
    "helping learn learns learned learning teach play plays played believe believes agree agreed guess wonder "
    "wondering wondered remember reminds remind reminded forget forgot imagine consider considering decide decided "
    "deciding choose chose chosen picking pick picked create creates created creating build built building grow grows "
    "growing grew grown change changes changed move moved moving run runs ran win wins won lose lost set sets setting "
    "plan planned planning hoping hoped wishing wait waiting talking talked chatting chatted speaking spoke call "
    "called calling buy bought buying sell sold pay paid send sent sending received receive reach reached reaching "
    "reconnect connect connected connecting join joined joining attend attended attending visit visited visiting "
    "travel pass passed passing finish finished finishing complete completed achieve achieving achieved improve "
    "improving improved focus focused focusing stay stays stayed staying stick sticking deal dealing handle enter "
    "chase chasing push pushing fire fired feed hold holds holding turned turns follow following follows add adds "
    "added adding includes include including involve involved related based sound sounds sounded looks seems care "
    "worth mind matters making cheer cheers rock rocks drop host hosted hosting try recommend recommended suggest "
    "suggested explore exploring explored discover discovered experience experienced bond bonding bonded inspire "
    "inspires motivates motivate admire wish wished watch watched watching read write wrote written eat ate cook "
    "cooked drive drove walk walked sit stand open close wear wore bet doing been lead leads led hit hits snapped "
    "snap swap cherish cherishing deserve deserves allow allows refurbished bummer wishing congrats prefer prefers "
    "preferred allergic answer works "
    # numbers, days, months
    "hundred thousand million monday tuesday wednesday thursday friday saturday sunday january february march april "
    "may june july august september october november december btw way fyi etc dear mr mrs ms dr sir madam hopefully "
    "user assistant ai bot anymore everywhere somewhere anywhere forever tonight meantime due lucky truly deeply ya "
    "input story stories figure figures comfort connection connections event events practice practices enthusiasm "
    "emotion emotions ride crazy possession someone lot's target targets setup deficit input hearing ordering "
    "importance gratitude positivity optimism positive negative alive specific particular lasting fellow atmosphere "
    "vision platform power heads unfortunately luckily additionally generally simply easily quickly slowly well"
)
_STOP: Final = _GRAMMAR | _WEAK
_TOKEN: Final = re.compile(
    r"[A-Za-z\u00c0-\u024f][A-Za-z\u00c0-\u024f0-9+#]*(?:['\u2019:&/.-](?=[A-Za-z0-9])[A-Za-z\u00c0-\u024f0-9+#]+)*|[.,;:!?()\"]+"
)
_CLITIC: Final = re.compile(r"(?:'s|'ve|'d|'ll|'re|'m|n't)$")
_SUFFIXES: Final = (("ies", "y", 5), ("sses", "ss", 6), ("ing", "", 6), ("es", "e", 5), ("s", "", 4))
_SHORTEST_FOLDED: Final = 5
_SHORTEST_WORD: Final = 2
_LONGEST_WORD: Final = 40
_LONGEST_PHRASE: Final = 3
_LEADS: Final = word_set(
    "a an the my our your his her their this that these those some any new about of for into at with in on from"
)
_DOERS: Final = word_set("love like enjoy hate prefer learn learning start started try into about doing of")
_CALLS: Final = word_set(
    "hey hi hello thanks thank wow yeah yep yes no nah ok okay sure bye congrats congratulations cool nice great "
    "awesome absolutely definitely morning evening dear sorry well done mr mrs ms dr aw aww oh woohoo phew"
)
_ADJECTIVE: Final = re.compile(r"(?:ful|ous|ive|able|ible|less|ish|ical|ant|ent|struck|er|est|ic|al|y)$")
_NOUNS_LIKE_ADJECTIVES: Final = word_set(
    "festival hospital journal animal animals meal proposal capital rehearsal approval festival recital musical music "
    "comic clinic fabric topic mechanic garlic picnic magic logic traffic medic olive archive drive detective motive "
    "restaurant giant plant assistant ant elephant accountant parent event accident talent student apartment "
    "environment document investment equipment tournament treatment entertainment content client agent present "
    "president moment garment cable table vegetable vegetables water weather computer laptop paper dinner summer "
    "winter mother father brother sister daughter career teacher writer painter player printer camera poster soccer "
    "number officer server router docker family seed speed breed feed weed bed shed hundred breed wedding harvest "
    "forest test guest nest quest interest contest protest city family story party history company country body baby "
    "energy army study charity community therapy technology university pottery photography bakery battery gallery "
    "library factory delivery grocery jewelry surgery recovery poetry comedy fantasy pastry candy cherry berry injury "
    "anxiety diversity identity equality security economy geography biology psychology philosophy memory diary dairy "
    "activity pregnancy allergy birthday holiday money monkey turkey hockey jersey key day play essay survey recipe "
    "beer flower shower tower power finger tiger spider cancer fever freezer theater center cover order trailer "
    "sweater leather feather letter butter chapter shelter volunteer engineer charger burger hamster rooster"
)
_VERBISH: Final = re.compile(r"(?:ed|ly)$")
_ING: Final = re.compile(r"ing$")
_TOKENS_LOOKED_AT: Final = 2_000


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """A word folded for comparison: lower case, without plural and ``-ing``. Cruder than a stemmer, and quicker."""
    word = word.lower().replace("\u2019", "'").removesuffix("'s")
    if not word.endswith(("ss", "us", "is")):
        for suffix, put, shortest in _SUFFIXES:
            if word.endswith(suffix) and len(word) >= shortest:
                word = word.removesuffix(suffix) + put
                break
    if len(word) < _SHORTEST_FOLDED:
        return word
    if word[-1] == word[-2] and word[-1] in "gmnprt":
        return word[:-1]
    return word.removesuffix("e")


@lru_cache(maxsize=65_536)
def is_weak(word: str) -> bool:
    """Whether a word names nothing by itself: grammar, praise, thin nouns, common verbs."""
    plain = word.lower().replace("\u2019", "'")
    return len(word) < _SHORTEST_WORD or plain in _STOP or _CLITIC.sub("", plain) in _STOP


def content_words(text: str, ignored: frozenset[str] = frozenset()) -> list[str]:
    """The folded words of a text that say what it is about, in order, with repetitions."""
    tokens = _TOKEN.findall(text)[:_TOKENS_LOOKED_AT]
    return [stem(token) for token in tokens if _counts(token, ignored)]


def phrases(text: str, ignored: frozenset[str] = frozenset()) -> list[Phrase]:
    """The phrases of a text that may name a subject, in order; words in ``ignored`` (names of speakers) are none."""
    tokens = _TOKEN.findall(text)[:_TOKENS_LOOKED_AT]
    counts = Counter(stem(token) for token in tokens if token[0].isalpha())
    found = []
    for start, run in _runs(tokens, ignored):
        lead = tokens[start - 1].lower() if start else "."
        if _addresses(tokens, start, run):
            continue
        found.append(_phrase(run, lead, counts, start / len(tokens)))
    return found


def _runs(tokens: list[str], ignored: frozenset[str]) -> Iterator[tuple[int, list[str]]]:
    """Longest runs of words that are not weak, at most three words long (the last three: the noun comes last)."""
    run: list[str] = []
    for at, token in enumerate([*tokens, "."]):
        names = _counts(token, ignored)
        if run and (not names or _is_verbish(token)):
            yield at - len(run), run[-_LONGEST_PHRASE:]
            run = []
        if names:
            run.append(token)


def _counts(token: str, ignored: frozenset[str]) -> bool:
    return token[0].isalpha() and len(token) <= _LONGEST_WORD and not is_weak(token) and token.lower() not in ignored


def _addresses(tokens: list[str], start: int, run: list[str]) -> bool:
    """Whether a name is only called: "Thanks, Maria!", "Hey John", "Maria, look"."""
    if len(run) != 1 or not run[0][0].isupper() or run[0].isupper():
        return False
    before = tokens[start - 1] if start else "."
    after = tokens[start + 1] if start + 1 < len(tokens) else "."
    return before.lower() in _CALLS or (not before[0].isalpha() and not after[0].isalpha())


def _phrase(run: list[str], lead: str, counts: Counter[str], place: float) -> Phrase:
    if len(run) > 1 and _is_verbish(run[0]):
        run = run[1:]
    stems = tuple(stem(word) for word in run)
    names = [word[0].isupper() or any(map(str.isupper, word)) for word in run]
    weight = 0.8 + 0.25 * (len(run) - 1)
    weight += 0.45 if lead in _LEADS else 0.35 if lead in _DOERS else 0.0
    weight += 0.3 * max(0, max(counts[word] for word in stems) - 1)
    if len(run) == 1:
        weight -= _doubts(run[0], lead, is_name=names[0])
    words = [word if name else word.lower() for word, name in zip(run, names, strict=True)]
    return Phrase(" ".join(words), stems, weight, place)


def _doubts(word: str, lead: str, *, is_name: bool) -> float:
    """What speaks against a single word as a label: it may be a verb or an adjective."""
    doubts = 0.0
    if _is_verbish(word):
        doubts += 0.6
    elif _ADJECTIVE.search(word) and not is_name and word.lower() not in _NOUNS_LIKE_ADJECTIVES:
        doubts += 0.35
    if _ING.search(word) and lead not in _DOERS:
        doubts += 0.2
    return doubts + (0.2 if len(word) <= _LONGEST_PHRASE else 0.0)


def _is_verbish(word: str) -> bool:
    return _VERBISH.search(word) is not None and word.lower() not in _NOUNS_LIKE_ADJECTIVES
