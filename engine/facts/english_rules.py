# ruff: noqa: E501 - a rule is one line
"""By which words English speakers state preferences, decisions, facts about themselves, and standing instructions."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from engramlog.engine.conflicts.lexicon import JOBS_EN
from engramlog.engine.facts.english_wording import agreed, asked, planned
from engramlog.engine.facts.fact import FactKind

_ADV: Final = (
    r"(?:\s(?:really|also|still|just|absolutely|totally|always|now|currently|actually|truly|simply|mostly|usually|"
    r"especially|definitely|particularly|generally|personally|kinda|much|recently|finally|both|all|already|even|"
    r"honestly|strongly|officially|so|normally|typically|often|sometimes|only|never)){0,3}"
)
_I: Final = r"(?<![\w'])(?P<from>(?:I|[Ww]e))" + _ADV + r"\s"
_AM: Final = r"(?<![\w'])(?P<from>(?:I(?:'m|\sam)|[Ww]e(?:'re|\sare)))" + _ADV + r"\s"
_HAVE: Final = r"(?<![\w'])(?P<from>(?:I|[Ww]e)(?:'ve|\shave)?)" + _ADV + r"\s"
_WILL: Final = r"(?<![\w'])(?P<from>(?:I|[Ww]e)(?:'ll|\swill))" + _ADV + r"\s"
_MY: Final = r"(?<![\w'])(?P<from>(?:[Mm]y|[Oo]ur))\s"

_PRAISE: Final = re.compile(
    r"\b(?:the (?:way|idea|thought|colou?rs?|vibes?|design|look|photo|pic|picture|message|details?|composition|sound of|"
    r"(?:\w+ and )?\w+ in (?:this|that))|this|that (?:quote|photo|pic|painting|idea|one|you)|to (?:hear|know|see|help|chat|say|think|"
    r"talk|join|check|try|come|learn more|read (?:it|more))|hearing|how|what|when|it when|seeing (?:it|them|that|how)|all the|making (?:him|her|it|them)|their|his|her|"
    r"chatting|talking (?:to|with)|catching up)\b|\b(?:getting into|doing) (?:it|that)$|^(?:i|we) (?:\w+ )?\w+ (?:was|is|were|are)\b|\bthat \w+$|\bit \w+$|\b(?:these|those|this|that)$|\b(?:him|her|them|it)(?:\s(?:so|too|both|all|a lot|to bits|very))*$",
    re.IGNORECASE,
)
_POLITE: Final = re.compile(
    r"\b(?:check(?:ing)? (?:\w+ )?(?:it|that|them|this|these|those|you|\w+ )?\s?out|give (?:it|that|them|this) a|keep (?:you|that|it|this|going|"
    r"pushing|on|up|at|believing|trying|fighting|in touch|working hard|looking|spreading|supporting|posted|growing)\b|"
    r"let you|look into (?:it|that|them)|in mind|do (?:my|our) best|do (?:it|this|that)\b|be (?:there|fine|ok|okay|great|able|"
    r"awesome|so|a|the|amazing|interesting|fun|like|honest|here|back|in touch)\b|support|help|think about|miss|see you|talk (?:to|soon)|add (?:it|that|them)|"
    r"have to (?:say|go|check|try|run)|try (?:it|that|them|this|those|harder|something|some of)|need|get (?:there|through|it)|make it|find out|"
    r"stay (?:positive|strong|focused|motivated|in touch)|never give up|take (?:it|your|that|things|the time)|have (?:an? |some |so much )*(?:great|good|amazing|blast|fun|awesome)|remember|never forget|"
    r"make (?:a difference|sure|this|things)|show you|tell you|say|ask|be\b$|enjoy (?:it|this|that|every|the (?:moment|ride))|"
    r"appreciate|go now|run$|go$|chat|share|believe|cheer|love (?:it|that|this))\b|\b(?:an?|a few|some|more|it|them)$",
    re.IGNORECASE,
)
_NO_PLAN: Final = re.compile(
    _POLITE.pattern + r"|\b(?:great|good|well|crazy|wild|nuts|through|on here|back and forth|strong|to the point)\b$",
    re.IGNORECASE,
)
_NOTHING_OWNED: Final = re.compile(
    r"\b(?:question|problem|lot|lots|feeling|look|idea|blast|bit|few|couple|ton|tons|bunch|chance|great|good|hard|"
    r"tough|rough|time|moment|day|week|hunch|crush|point|guess|favor|favour|surprise|confession|update|news|story|pic|photo|picture)\b",
    re.IGNORECASE,
)
_NOT_WHERE: Final = re.compile(
    r"\b(?:moment|now|dream|life|world|fear|peace|hope|way|present|thing|this|it|past)\b", re.IGNORECASE
)
_KIN: Final = (
    r"(?:wife|husband|partner|fiance|fianc\u00e9e?|girlfriend|boyfriend|spouse|son|daughter|kid|kids|child|children|baby|"
    r"brother|sister|siblings?|mother|mom|mum|father|dad|parents|grandmother|grandma|grandfather|grandpa|granny|uncle|aunt|"
    r"cousin|niece|nephew|twins?|in-laws|family)"
)
_PET: Final = (
    r"(?:dogs?|pup|pups|puppy|puppies|cats?|kitten|kittens|kitty|parrots?|hamsters?|rabbits?|turtles?|goldfish|horses?|"
    r"ponies|snakes?|lizards?|guinea pigs?|birds?|fish|pets?|labrador|retriever|poodle|husky|beagle|shepherd|corgi)"
)
_ILL: Final = (
    r"(?:asthma|diabetes|adhd|celiac(?: disease)?|coeliac(?: disease)?|migraines?|arthritis|epilepsy|anemia|anaemia|gastritis|insomnia|"
    r"hypertension|high blood pressure|depression|anxiety|(?:\w+ ){1,2}(?:allerg(?:y|ies)|intolerance|disease|condition|syndrome|"
    r"disorder|infection|injury|pain))"
)
_JOB: Final = "|".join(sorted(JOBS_EN, key=len, reverse=True))
_INSTRUCT: Final = (
    r"(?:use|answer|reply|respond|write|speak|call|send|show|give|add|put|format|include|run|address|translate|round|"
    r"commit|deploy|suggest|recommend|mention|assume|ask|indent|talk|explain|keep|remind|start|end|book|cite|test|push|"
    r"sign|address|order|schedule|contact|interrupt|apologi[sz]e|summari[sz]e|name|document|log|delete)"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to state something.

    Attributes:
        kind: What it states.
        confidence: For a user's own statement.
        pattern: Finds it; the statement begins at the group ``from``, or where the match does, and goes on to the end
            of the clause.
        refused: Not where this is found in the statement.
        whole: The match is the whole statement.
        wording: How it is told; None: in the third person.
    """

    kind: FactKind
    confidence: float
    pattern: re.Pattern[str]
    refused: re.Pattern[str] | None = None
    whole: bool = False
    wording: Callable[[str, str], str] | None = None


def _rule(
    kind: FactKind,
    confidence: float,
    pattern: str,
    *,
    refused: re.Pattern[str] | None = None,
    whole: bool = False,
    wording: Callable[[str, str], str] | None = None,
) -> Rule:
    return Rule(
        kind, confidence, re.compile(pattern, re.IGNORECASE if "(?i:" not in pattern else 0), refused, whole, wording
    )


_THING: Final = r"[^,;:.!?]{2,60}?"
_FAVOURITE: Final = r"(?:fav(?:ou?rites?|es?|s)?)"

_INSTRUCTIONS: Final = (
    _rule("rule", 0.9, r"(?:^|[,;]\s|\band\s|\bbut\s|\bso\s)(?P<from>(?:please |pls )?(?:just )?call me (?!back|when|if|later|at|on|tomorrow|today|crazy|old|a\b|an\b|maybe|the\b|out\b))", wording=asked),
    _rule("rule", 0.9, rf"(?:^|[,;:]\s|\b(?:and|but|so|ok|okay|well|also)\s)(?P<from>(?:please |pls )(?:always |never |don't ever |do not ever |from now on,? |only |in future,? |stop |don't |do not |avoid )(?:{_INSTRUCT}\w*)?)", wording=asked),
    _rule("rule", 0.9, rf"^(?P<from>(?:always|never|don't ever|do not ever) {_INSTRUCT})\b", wording=asked),
    _rule("rule", 0.9, r"(?:^|[,;]\s|\band\s|\bbut\s|\bso\s|\bplease\s)(?P<from>(?:from now on|in (?:the )?future|going forward),? (?:please |always |never |don't |do not |only |you (?:should|must) )?(?!i\b|we\b|i'm|we're|i'll|we'll|it\b|he\b|she\b|they\b|there\b|the\b|my\b|our\b))", wording=asked),
    _rule("rule", 0.85, r"(?:^|[,;]\s)(?P<from>(?:i want|i need|i'd like|i would like) (?P<you>you) to (?:always|never)|make sure (?:you |to )(?:always |never )|remember to always )(?=\w| )", wording=asked),
)  # fmt: skip
_PREFERENCES: Final = (
    _rule("preference", 0.85, _I + r"(?:love|like|enjoy|adore|prefer|dislike|hate|detest|loathe|can't stand|cannot stand|can't bear|don't (?:really )?(?:like|enjoy|care for)|do not (?:really )?(?:like|enjoy|care for))\s(?!that\b|it\b|this\b|these\b|those\b|them\b|how\b)", refused=_PRAISE),
    _rule("preference", 0.85, _I + r"(?:would|'d)\srather\s"),
    _rule("preference", 0.85, r"(?<![\w'])(?P<from>(?:I|[Ww]e)'d)\s(?:much )?(?:rather|prefer)\s(?!not to say)"),
    _rule("preference", 0.85, _AM + r"(?:(?:a )?(?:bit |big |huge |massive )?(?:fond of|fan of|into|crazy about|passionate about|keen on|hooked on|obsessed with|addicted to|partial to|more of a|more into|not (?:a (?:big |huge )?fan of|into|big on|keen on|fond of)|afraid of|scared of|terrified of|sick of|interested in))\s(?!that\b|it\b|this\b|these\b|those\b|them\b)", refused=re.compile(r"\b(?:doing it|what|how|hearing|seeing|the (?:idea|direction|results?))\b|\b(?:into it|fan|it|that|them)$", re.IGNORECASE)),
    _rule("preference", 0.85, _AM + r"(?:a|an|such an?|quite an?|definitely an?|not an?) (?:[\w-]+ ){1,3}(?:person|lover|fan|buff|geek|nerd|enthusiast|addict|junkie|owl|bird)\b(?! of\b)", whole=True),
    _rule("preference", 0.85, _MY + rf"(?:\w+ ){{0,2}}{_FAVOURITE}\b[^,;.!?]{{0,40}}?\s(?:is|are|has been|would be|have to be|has to be|will always be)\s(?!that\b|it\b|when\b|so\b|the same|great\b)(?!.{0,40}\b(?:that|it) (?:i|we)\b)"),
    _rule("preference", 0.85, rf"(?P<from>(?:[A-Z\"]|\b(?:the|a)\s)?[^,;:.!?]{{2,60}}?\s(?:is|are|was|were|has become|became)\s(?:still |definitely |also |always |probably |by far |easily |just )?(?:one of |some of |two of |among )?(?:my|our)\s(?:all-time |absolute |new |personal |biggest |real |main |other |go-to )*(?:{_FAVOURITE}|passions?|hobby|hobbies|comfort food|guilty pleasure|happy place|go-to|obsession)\b(?: \w[\w-]*){{0,3}})", refused=re.compile(r"^(?:it|that|this|these|those|they|he|she|here|there|which|what|who)\b|\b(?:moments?|memor(?:y|ies)|photos?|pics?|shots?)\b", re.IGNORECASE), whole=True),
    _rule("preference", 0.85, rf"(?P<from>\b(?:my|our) (?:absolute |all-time |new )?{_FAVOURITE} \w+(?: \w+)?, )(?=(?-i:[A-Z])|\")"),
    _rule("preference", 0.85, rf"(?:^|(?<=[,.;] )|\b(?:and|but|so|yeah|yes|well) )(?P<from>(?:(?:one|two|three|some|a few|many) of )?(?:my|our) (?:absolute |all-time |real |biggest |main |new )*(?:{_FAVOURITE}|muses?|passions?|hobb(?:y|ies)|go-to)\b(?: [\w']+){{0,3}}(?:\s(?:is|are|include)\s|: ))(?!that\b|it\b|when\b|so\b)"),
    _rule("preference", 0.85, rf"(?P<from>(?:\b(?:I|we)(?:'ve| have)? (?:finally |really |just )?)?(?:found|find) (?:my|our) (?:real |true |new )*(?:{_FAVOURITE}|muses?|passions?|calling)s?(?: in|:)\s)"),
    _rule("preference", 0.8, _HAVE + r"(?:loved|enjoyed|liked|(?:started|begun|come|learned|grown|learnt) to (?:love|enjoy|like|appreciate|hate|prefer)|developed a (?:love|taste|passion) for|fallen in love with|fell in love with|(?:gotten|been getting|got really) into|been (?:really |super |so |totally )?(?:into|obsessed with|enjoying|loving|hooked on))\s(?!that\b|it\b|this\b|these\b|those\b|them\b|him\b|her\b)", refused=re.compile(r"\b(?:loved|enjoyed|liked) (?:the|our|chatting|talking|hearing|seeing|being|my)\b|^(?:i|we) (?:\w+ )?(?:loved|enjoyed|liked)\b", re.IGNORECASE)),
    _rule("preference", 0.8, r"^(?P<from>[A-Z\"][^;:.!?]{3,90}?\s(?:is|are)\s[^;:.!?]{3,60}?\s(?:I|we)\s(?:really |especially |most |always |truly )?(?:enjoy|love|like|prefer|hate))(?=[.!,]|$)", refused=re.compile(r"^(?:I|We|It|That|This|These|Those|They|There|What|How|He|She|Here|The way|But|And|So|Yeah|Yes|Hey|Wow)\b|\byou|\b(?:not|n't|never|no|a movie|a song)\b", re.IGNORECASE), whole=True),
    _rule("preference", 0.8, r"(?P<from>(?:^|(?<=, )|(?<=\. ))(?!(?:(?:and|but|so|yeah|yes|oh|also|hey) )?(?:it|that|this|they|these|those|which|he|she|you|i|we|and|there|what|who|how)(?:\b|'))[^,;:.!?]{2,50}?\s(?:(?:always |really |just )?(?:helps?|makes?|lets?) (?:me|us) (?:relax|unwind|de-stress|happy|feel (?:calm|alive|at peace|better|relaxed|free)|chill|calm)|(?:calms?|relaxes|relax|fascinates?|amazes?|delights?|excites?|bores?|annoys?|impress(?:es)?|thrills?|terrif(?:y|ies)) me|(?:is|are) (?:so |very |really |such a |a |super )*(?:important|stress[- ]?buster|stress[- ]?reliever|calming|relaxing|therapeutic) (?:to|for) (?:me|us))\b[^,;:.!?]{0,140}(?!\w))", refused=re.compile(r"^(?:your|you)\b|\byou", re.IGNORECASE), whole=True),
    _rule("preference", 0.85, _I + r"(?:don't|do not|never|only|no longer) (?:eat|drink|smoke|wear|watch|drive|read|use|listen to|fly|cook with|buy|take)\s(?!that\b|it\b|this\b|them\b|care\b)"),
    _rule("preference", 0.85, _AM + r"(?:an? )?(?:strict |lifelong |devout )?(?:vegetarian|vegan|pescatarian|teetotal(?:er)?|early riser|introvert(?:ed)?|extrovert(?:ed)?)\b", whole=True),
    _rule("preference", 0.8, _I + r"find\s(?!that\b|it\b|this\b|out\b|them\b|myself\b)[^,;.!?]{2,40}\s(?:so |really |very |too |quite )?(?:boring|relaxing|fascinating|calming|annoying|soothing|therapeutic|comforting|overrated|stressful|scary|gross|disgusting)\b", whole=True),
)  # fmt: skip
_DECISIONS: Final = (
    _rule("decision", 0.85, _HAVE + r"(?:decided (?:to|on|that|against|not to)|chose(?: to)?|chosen(?: to)?|picked|opted (?:for|to)|settled on|committed to|resolved to|agreed (?:to|on|that)|made up my mind to|switched (?:to|from)|signed up (?:for|to)|enrolled in|booked|registered for|subscribed to|made (?:the|a) decision to|quit|gave up|given up|cut out)\s(?!that$|it$|my mom|this$)", refused=re.compile(r"\b(?:picked (?:up|out)|quit on|never (?:quit|gave up)|gave up on|picked (?:it|them|this|that)$)\b|\bchose (?:it|that|this|them)$", re.IGNORECASE)),
    _rule("decision", 0.8, _AM + r"(?:going to|gonna|planning to|planning on|planning an?|about to|set on|determined to|committed to|aiming to|fixing to|looking to|intending to)\s", refused=_NO_PLAN),
    _rule("decision", 0.8, _I + r"(?:plan to|plan on|intend to|aim to|am off to (?=(?-i:[A-Z])))\s", refused=_NO_PLAN),
    _rule("decision", 0.8, r"(?P<from>^(?:Gonna|Planning to|Planning on|Decided to|Moving to)\s)", refused=_NO_PLAN, wording=planned),
    _rule("decision", 0.8, _WILL + r"(?:take (?:the|an?|up)|have the|go (?:with|for)|stick (?:to|with)|have to stick to|use|switch to|choose|order|be (?:moving|visiting|starting|joining|attending|taking|going to|travell?ing|performing|hosting|running))\s", refused=re.compile(r"\b(?:use (?:it|that|this|them|your)|look|for it|with it|to it|a (?:look|break|bit|second|minute)|(?:the )?(?:time|chance))\b", re.IGNORECASE)),
    _rule("decision", 0.85, _AM + r"(?:going with|sticking (?:with|to)|switching (?:to|from)|choosing|opting for|moving (?:to|out|in|into|back)|starting (?:an?|my|at|on)|joining (?:an?|the)|leaving (?:for|my|the)|quitting|getting married|taking (?:a trip|an?|up)|signing up for|off to (?=(?-i:[A-Z])|the\b|my\b)|heading to|flying to|travell?ing to|visiting)\s", refused=re.compile(r"\b(?:break|look|to (?:see|feel|get|realize|understand|think|work|chat|bed)|it|that|peek|moment|point|good care)\b", re.IGNORECASE)),
    _rule("decision", 0.85, r"(?:^|[,;]\s|\b(?:ok|okay|so|then|well|yes|and|right|fine|alright|great)\s)(?P<from>(?:let's|let us) (?:just )?(?:go (?:with|for)|use|pick|choose|switch to|stick (?:with|to)|settle on|take the|meet (?:at|on|in)|book|deploy|do the|order)\s)(?!it\b|that\b|this\b)", refused=re.compile(r"\b(?:make a difference|our|the moment|the time)\b", re.IGNORECASE), wording=agreed),
    _rule("decision", 0.85, _MY + r"(?:(?:new )?(?:decision|plan|choice|goal|resolution) (?:is|was|for \w+ \w+ is))\s(?:to |that )?(?!that$|it$|this$)", refused=_POLITE),
)  # fmt: skip
_FACTS: Final = (
    _rule("fact", 0.9, _AM + r"(?:very |severely |deathly |mildly |slightly |highly |not )?(?:allergic to|intolerant (?:to|of))\s"),
    _rule("fact", 0.9, _AM + r"(?:lactose|gluten)[ -]intolerant\b", whole=True),
    _rule("fact", 0.85, _AM + r"(?:diabetic|celiac|coeliac|asthmatic|colou?r[- ]?blind|dyslexic|autistic|left-handed|right-handed|pregnant|married|single|divorced|engaged|widowed|retired|unemployed|self-employed|transgender|bisexual|gay|lesbian|a single (?:parent|mom|mother|dad|father))\b", whole=True),
    _rule("fact", 0.85, _HAVE + rf"(?:got |had |been (?:dealing with|struggling with|suffering from|diagnosed with) |suffer(?:ed)? from |was diagnosed with )?(?:an? |some |severe |bad |chronic |serious |a bad |a severe )*{_ILL}\b", refused=re.compile(r"\bno \w+|\b(?:our|their|his|her) ", re.IGNORECASE), whole=True),
    _rule("fact", 0.85, r"(?<![\w'])(?P<from>I)\s(?:was|got|have been|just got) (?:recently |just |finally )?(?:diagnosed with|born (?:in|on)|raised in|promoted|hired|laid off|fired|accepted (?:to|into|by|for)|engaged to|married (?:in|on|to|last))\b", refused=_NOT_WHERE),
    _rule("fact", 0.9, r"(?<![\w'])(?P<from>[Mm]y (?:full |first |last |real )?(?:name|nickname|surname)(?:\sis|'s))\s"),
    _rule("fact", 0.85, r"(?<![\w'])(?P<from>I(?:'m| am) (?:called|named)|I go by)\s"),
    _rule("fact", 0.85, _I + r"(?:live|lived|grew up|reside)\s(?:in|near|at|on|by|with|alone|downtown|abroad)\s", refused=_NOT_WHERE),
    _rule("fact", 0.85, _HAVE + r"(?:moved|relocated)\s(?:back |over |away |out )?(?:to|from|in with|into|here from)\s", refused=re.compile(r"\b(?:tears|on|forward)\b", re.IGNORECASE)),
    _rule("fact", 0.85, _AM + r"(?:originally )?(?:from|based in|living in|living with|staying in)\s(?!my heart|the (?:heart|bottom))", refused=_NOT_WHERE),
    _rule("fact", 0.85, _I + r"(?:work|worked|freelance)\s(?:as|at|for|in)\s(?!it|that|this|progress|a while|the moment)", refused=re.compile(r"\bworke?d? (?:for|in) (?:a (?:while|better)|me|us|my favor|years|everyone|hours|the (?:past|last))", re.IGNORECASE)),
    _rule("fact", 0.85, _AM + rf"(?:an? |the )(?:\w+ ){{0,2}}(?:{_JOB}|freelancer|ceo|founder|musician|artist|dancer|athlete|coach|streamer|gamer|actor|producer|director|veteran|volunteer|beginner|mom|dad|parent)\b(?: (?:at|for|in|by) [\w' ]{{2,40}})?", whole=True),
    _rule("fact", 0.85, _HAVE + r"(?:got|found|landed|started|took|lost|left|quit)\s(?:an? |my |the )?(?:new |old |full-time |part-time |first |dream |current )*(?:job|position|promotion|internship|role)\b"),
    _rule("fact", 0.85, _I + r"(?:own|run|founded|opened|manage)\s(?:an? |my |our )(?:\w+ ){0,3}(?:business|company|store|shop|restaurant|cafe|caf\u00e9|studio|farm|blog|startup|agency|gym|channel|bakery|clinic|house|apartment|flat|condo|car|bike|boat)\b", whole=True),
    _rule("fact", 0.85, _I + r"(?:study|studied|major(?:ed)? in|teach|graduated (?:from|in|with|last))\s(?!it|that|this|hard|a lot|me|us|them)", refused=re.compile(r"\bteach (?:us|me|you)", re.IGNORECASE)),
    _rule("fact", 0.85, _I + rf"(?:have|adopted|got|rescued|own|bought|raise)\s(?:an? |two |three |four |five |\d+ |another |one |no )(?:(?!(?:with|for|of|from|to|in|on|at|the|and|that|who)\b)[\w-]+ ){{0,3}}(?:{_KIN}|{_PET})\b(?:,? (?:named|called) [A-Z]\w+(?:(?:,| and|, and) [A-Z]\w+)*)?", refused=re.compile(r"\bhad (?:a|the) (?:chat|blast|great|good)\b|\bmy (?:family|kids|mom|dad|parents)", re.IGNORECASE), whole=True),
    _rule("fact", 0.85, _I + r"have\s(?:an? |two |three |four )(?:[\w-]+ ){0,2}(?:degree|car|motorcycle|bike|house|apartment|piano|guitar|appointment|interview|exam|tattoo|collection)\b", refused=_NOTHING_OWNED),
    _rule("fact", 0.85, _MY + rf"(?:\w+ )?(?:{_KIN}|{_PET}|boss|best friend|dentist|doctor|teacher|therapist)(?: [A-Z]\w+)?(?:'s name is|'s names are|, \w+, is| is (?:called|named|an? \w+|pregnant|(?:now |already )?\w+ years old|from)| are (?:called|named)|'s (?:called|named))(?:\s[^,;:.!?]{{0,60}}(?!\w))?", refused=re.compile(r"\bis an? (?:great|good|nice|amazing|huge|big|real|blessing|lot|constant|source|motivation|true|wonderful|treasure|must)", re.IGNORECASE), whole=True),
    _rule("fact", 0.9, r"(?<![\w'])(?P<from>(?:[Mm]y|[Oo]ur) (?:(?:wedding )?anniversary|birthday|email|phone number|address|flight|appointment|wedding|deadline|exam|interview|due date|surgery) (?:is|falls|was|will be))\s(?:on |in |at |scheduled |set )?(?!coming|so |going|great|amazing|awesome|the best)"),
    _rule("fact", 0.85, r"(?<![\w'])(?P<from>I(?:'m| am| just turned| turned| turn))\s(?:\d{1,2}|twenty|thirty|forty|fifty)(?:[ -]\w+)?(?: years old| next \w+| this \w+| in \w+| on \w+|(?=[.,!]|$| and))", whole=True),
    _rule("fact", 0.8, r"(?<![\w'])(?P<from>(?:I|[Ww]e)(?:'ve| have) been)\s(?:\w+ing|together|married|vegan|vegetarian|sober|a \w+)\b[^.!?;]{0,60}?\b(?:for|since)\s(?:\w+ ){0,3}(?:years?|months?|weeks?|(?:19|20)\d\d|childhood|college|high school)", refused=re.compile(r"\b(?:waiting|meaning|wanting|dying|missing)\b|\bbeen \w+ (?:on |at )?(?:it|this|that)\b|\b(?:on|at|to|with|about) for\b", re.IGNORECASE), whole=True),
    _rule("fact", 0.85, _I + r"(?:play|speak|can(?:'t|not)? (?:speak|play|swim|drive|cook|dance|ride|read)|don't (?:drive|speak|drink|smoke|swim))\b\s?(?:the |a |an )?(?=guitar|piano|violin|drums|cello|flute|bass|saxophone|trumpet|ukulele|clarinet|english|french|german|spanish|chinese|mandarin|japanese|korean|italian|portuguese|russian|arabic|basketball|soccer|football|tennis|chess|volleyball|hockey|golf|baseball|badminton|swim|drive|$|[.,!])", refused=re.compile(r"\bplay$|\bspeak$", re.IGNORECASE)),
    _rule("fact", 0.8, r"(?<![\w'])(?P<from>I|[Ww]e)" + _ADV + r"\s(?!(?:can|could|would|will|might|hope|wish|think|guess|know|see|feel|say|mean)\b)(?:go|run|jog|swim|volunteer|train|practi[cs]e|meditate|walk|work out|exercise|hike|cook|read|paint|write|meet|visit|play|do|take|wake up|get up|watch|attend|study|bike|surf|camp)\b[^.!?;,]{0,50}?\b(?:every (?:\w+ )?(?:day|morning|night|evening|week|weekend|month|year|summer|winter|monday|tuesday|wednesday|thursday|friday|saturday|sunday)|(?:once|twice|\w+ times) a (?:day|week|month|year)|daily|weekly|on (?:week(?:ends|days)|mon|tues|wednes|thurs|fri|satur|sun)\w*)\b", refused=re.compile(r"^(?:I|We) (?:\w+ )?(?:go|do|meet|play|take|read|watch|visit|make|attend|surf|get up) (?:there |it |that )?(?:a few|a couple|once|twice|every|\w+ times|on|daily|weekly|together|this)\b", re.IGNORECASE), whole=True),
    _rule("fact", 0.85, r"(?:^|[,;]\s)(?P<from>(?:correction|sorry, i mean|i meant|i mean to say)[:,]?\s)(?!to\b)", refused=re.compile(r"\bit$", re.IGNORECASE)),
    _rule("fact", 0.85, r"(?:^)(?P<from>(?:actually|no),? (?:it's|it is|my \w+ is|that's|i'm)\s[^.!?]{2,60}?(?:,? not\s[^.!?]{2,40}))", whole=True),
)  # fmt: skip

RULES: Final = (*_INSTRUCTIONS, *_FACTS[:2], *_PREFERENCES, *_DECISIONS, *_FACTS[2:])
"""In the order in which they are believed where two find the same words."""
