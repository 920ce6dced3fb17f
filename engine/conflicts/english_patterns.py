"""How English says it: the patterns of :mod:`engramlog.engine.conflicts.english`."""
# ruff: noqa: E501, SIM905 - word lists and patterns are read better unbroken

import re

OPENING = re.compile(
    r"^(?:(?:and|but|so|well|actually|also|now|then|today|yesterday|tonight|last (?:night|week|month|year)|lately|recently|"
    r"these days|nowadays|honestly|oh|yes|no|ok|okay|hi|hello|sorry|correction|update|from now on|as of \w+|currently|"
    r"at the moment|this (?:week|month|year)|in (?:19|20)\d\d|turns out|in fact|remember that|remember|note that|note|"
    r"please|just so you know|by the way|btw|fyi|of course|since then|apparently|unfortunately|luckily)\b[\s,:]*)+",
    re.IGNORECASE,
)
SUBJECT = re.compile(
    r"^(?P<me>i|we|me)\b|^(?P<user>(?:the )?user(?!'s))\b|^(?P<other>you|he|she|they|it|there|this|that|these|those|"
    r"his|her|their|your|what|who|which|everyone|someone|people|some|many)\b|^(?P<owner>my|our|the user's) |^(?P<the>the) ",
    re.IGNORECASE,
)
FINITE = re.compile(
    r"\b(?:is|are|was|were|am|has|have|had|will|can|does|do|did|lives?|lived|works?|worked|likes?|loves?|hates?|enjoys?|"
    r"prefers?|eats?|ate|drinks?|drank|keeps?|kept|uses?|used|runs?|ran|moved|moves|switched|changed|starts?|started|"
    r"ends?|owns?|never|no longer|costs?|weighs?|opens?|closes?|got|gets|became|stopped|quit|plays?|takes?|needs?|wants?|"
    r"migrated|joined|smokes?|drives?|speaks?|stands?|sits?|slipped|leaves?|departs?|arrives?|begins?|falls|meets?|is called|goes|went|adopted|dislikes?|stays?|stayed)\b",
    re.IGNORECASE,
)
ADVERB = (
    r"(?:(?:really|always|still|just|also|actually|usually|often|now|currently|absolutely|totally|generally|mostly|"
    r"both|only|even|simply|finally|recently|already|definitely|truly|sometimes|since|strictly|personally|honestly|"
    r"completely|normally|officially|rather|much|so|very|quite|pretty|a bit|kind of|happily) )*"
)
AUXILIARY = re.compile(
    rf"^{ADVERB}(?:(?:do|does|did|can|will|have|has|had|am|is|are|be|been|being)\b ?{ADVERB})*", re.IGNORECASE
)
NOT = re.compile(
    r"\b(?:not|never|no longer|cannot|stopped|quit|quitting|given up|gave up|hardly ever|nor|without|used to|done with|"
    r"anymore|any longer|avoid|avoids)\b",
    re.IGNORECASE,
)
PASSING = re.compile(
    r"\b(?:yet|today|tomorrow|tonight|yesterday|this (?:week|morning|evening|afternoon)|did not|sure|right now)\b",
    re.IGNORECASE,
)
LONG_AGO = re.compile(
    r"\b(?:years? ago|as a (?:child|kid|teenager|student)|in (?:college|school|university)|when i was|back then)\b",
    re.IGNORECASE,
)
HABIT_CHANGE = re.compile(r"\b(?:no longer|anymore|any longer|used to|stopped|quit|gave up|given up)\b", re.IGNORECASE)
EMPTY_VERBS = frozenset(
    "know think car mind remember see understand feel say tell do be have get mean seem matter worry let make "
    "try care forget hear ask expect agre realiz realis".split()
)
ALONE = frozenset(
    "smok drink driv swim danc cook fly ski gambl exercis run sing cycl travel vap meditat vote jog garden".split()
)
"""What is denied without an object: "I do not drive"."""

LIKE = r"(?:like|likes|love|loves|loved|enjoy|enjoys|enjoyed|adore|adores|fond of|(?:really )?into|crazy about|(?:a )?(?:big |huge )?fan of)"
DISLIKE = (
    r"(?:hate|hates|hated|dislike|dislikes|detest|detests|loathe|loathes|despise|despises|afraid of|sick of|tired of|fed up with|"
    r"bored (?:of|with)|put off by|stand|bear|disgusted by|terrified of|scared of)"
)
OPINION = re.compile(rf"\b(?:(?P<no>{DISLIKE})|(?P<yes>{LIKE})) (?P<what>.+)", re.IGNORECASE)
CUT = re.compile(
    r"\b(?:and|or|when|which|who|that|with my|every|last|next|since|because|after|before|until|these days|anymore|now|"
    r"at (?:home|all|work|night)|as well|more than|during|again|than)\b",
    re.IGNORECASE,
)
HOME = re.compile(
    r"\b(?:live|lives|lived|living|based|settled|reside|resides|staying) (?:\w+ )?(?:in|at|near) (?P<to>.+)"
    r"|\b(?:moved|relocated|moving|relocating|move) (?:\w+ )?(?:(?:over|back|out|down|up) )?(?:from .+? )?(?:in)?to (?P<to2>.+)",
    re.IGNORECASE,
)
WORK = re.compile(
    r"\b(?:work|works|working|worked|employed) (?:full-time |part-time )?(?:at|for) (?P<to>[A-Z].+)"
    r"|\b(?:joined|hired by|started at|new job (?:at|with)|job (?:at|with)) (?P<to2>.+)",
    re.IGNORECASE,
)
ONE_OF = (
    ("one:drive", re.compile(r"\bdriv(?:e|es|ing) (?:an?|my) (?:new |old )?(?P<to>[A-Z].+)")),
    ("one:origin", re.compile(r"\b(?:am|is|come|comes) (?:originally )?from (?P<to>[A-Z].+)")),
    ("one:school", re.compile(r"\bstud(?:y|ies|ying|ied) at (?P<to>[A-Z].+)")),
    ("one:support", re.compile(r"\b(?:support|supports|root for|roots for) (?P<to>[A-Z]\S+)$")),
    (
        "",
        re.compile(
            r"\b(?P<verb>host|deploy|run|store|build)\w* (?:everything |all \w+ |all )?(?:on|to|in|with) (?P<to>[A-Z].+)"
        ),
    ),
)
ROUTINE = re.compile(
    r"^(?:always |usually |now |normally )*(?P<verb>get up|gets up|wake up|wakes up|go to bed|sleep|sleeps|meet|meets|start work|finish work|have lunch|have dinner)"
    r" (?:\w+ )??(?P<when>(?:at|every|on|for|around|before)? ?.+)",
    re.IGNORECASE,
)
PREFER = re.compile(
    r"\bprefer(?:s|red)? (?P<what>.+?)(?: (?:over|to|rather than|instead of|than) (?P<less>.+))?$", re.IGNORECASE
)
ALLERGY = re.compile(
    r"\b(?:allergic|intolerant|allergy|reaction) to (?P<to>.+)|\b(?:a|an|have|has|severe|bad) (?P<to2>[\w ]{3,20}?) allergy",
    re.IGNORECASE,
)
EAT = re.compile(r"\b(?:eat|eats|ate|eaten|eating|drink|drinks|drank|drunk|drinking|had|have|having|order|ordered|smok\w+|"
                  r"cook|cooks|cooked|grill\w*|touch|touched|vap\w+|snack(?:s|ed)? on|munch(?:ed|es)? on|fried|consume|tried|taste|tasted|devoured)\b ?(?P<what>.*)", re.IGNORECASE)  # fmt: skip
WITHOUT = re.compile(
    r"\b(?:gave up|given up|giving up|quit|cut out|avoid|avoids|swore off|stay away from|went off|stopped) "
    r"(?:eating |drinking |having )?(?P<what>.+)",
    re.IGNORECASE,
)
HAVE = re.compile(
    r"\b(?:have|has|had|own|owns|owned|keep|keeps|kept|adopted|bought|got|getting|raise|raising|rescued)\b (?P<what>.+)",
    re.IGNORECASE,
)
SWITCH = re.compile(
    r"\b(?:switch(?:ed)?|chang(?:ed|e)|migrat(?:ed|e)|mov(?:ed|e)|went|convert(?:ed)?|upgrad(?:ed|e)|port(?:ed)?)\b"
    r"(?: \w+){0,3}? from (?P<old>.+?) (?:in|over )?to (?P<new>.+)"
    r"|\breplac(?:ed|e|ing) (?P<old2>.+?) (?:with|by) (?P<new2>.+)"
    r"|\b(?P<new3>\w+) instead of (?P<old3>.+)"
    r"|\b(?:dropped(?! off| out| by| in)|ditched|abandoned|sold|got rid of|cancelled|canceled|gave away|deprecated|removed) "
    r"(?:my |our |the )?(?P<old4>.+)",
    re.IGNORECASE,
)
USE_FOR = re.compile(
    r"^(?:we|i) (?:\w+ )?(?:use|deploy|build|built)\b (?P<what>.+?) (?:for|as) (?:(?:my|our|the) )?(?P<aim>.+)",
    re.IGNORECASE,
)
FAVOURITE = re.compile(
    r"\bfavou?rite (?P<what>[\w ]{2,30}?) (?:is|are|was|has become|became|will always be) (?:now )?(?P<which>.+)"
    r"|(?P<which2>.+?) (?:is|are|has become|became) (?:now )?(?:my|our) (?:new |absolute |all-time )*favou?rite (?P<what2>[\w ]{2,30})",
    re.IGNORECASE,
)
NAME = re.compile(
    r"\b(?:my name is|i am called|call me|name's|goes by|user's name is|my nickname is) (?P<which>[\w' -]+)",
    re.IGNORECASE,
)
AGE = re.compile(
    r"^(?:am|is|just turned|turned|turning) (?:now )?(?P<years>\d{1,3}|\w+)(?: years old| this year| now| last \w+| today|$)",
    re.IGNORECASE,
)
COPULA = re.compile(
    r"^(?:(?:is|are|was|were|has|have|had|will|been|be|got|gets|now|currently|still|also|already|officially|just) ?)*"
    r"(?:(?:moved|changed|switched|pushed|postponed|rescheduled|set|due|scheduled|called|named|delayed|brought|shifted|"
    r"increased|raised|reduced|lowered|cut|bumped|upgraded|extended|slipped|written|rewritten|hosted|running|runs?|ran|"
    r"stored|built|deployed|based|uses?|using|costs?|weighs?|starts?|ends?|opens?|closes?|lives?|works?|went|goes|"
    r"leaves?|departs?|arrives?|begins?|falls|meets?|planned|migrated|ported|dropped|down|up|back|forward|out|completely|fully|all|version)\b ?)*",
    re.IGNORECASE,
)  # fmt: skip
TO = re.compile(
    r"^(?:(?:until|till|on|at|to|into|for|by|in|from .+? to|the|a|an|not|around|about|now) )*", re.IGNORECASE
)
PLACE = re.compile(r"^(?:in|at) ", re.IGNORECASE)
TEXTUAL = frozenset(
    "address password pin passcode email nicknam usernam branch region plan currency timezon editor browser licens framework motto".split()
)
"""Things whose value is any text."""

RESET = re.compile(
    r"\b(?:moved|pushed|raised|changed|postponed|rescheduled|upgraded|rewrote|increased|lowered|cut|set|shifted|bumped|ported|"
    r"migrated|renamed|reduced|delayed|extended|brought|converted|updated) (?P<whose>the|our|my) (?P<thing>[\w -]{2,30}?)"
    r"(?: back| up| forward| out| down)? (?:from .+? )?(?:to|in|into|until|till|by|on) (?P<what>.+)",
    re.IGNORECASE,
)
BIRTHDAY = re.compile(r"\bmy birthday (?:is|falls) (?P<when>.+)", re.IGNORECASE)
PRESENT = re.compile(r"\b(?:my|our) (?P<what>[a-z]+(?: [a-z]+)?)\b", re.IGNORECASE)
IMPERATIVE = re.compile(
    r"^(?P<no>do not|never|stop|avoid|no longer)?\s?(?P<always>always |only )?(?P<verb>use|answer|reply|respond|write|speak|"
    r"call|keep|send|show|give|add|put|format|indent|using|talk|address|include|commit|contact|ask|run|deploy|remind|end|"
    r"start|mention|translate|wake|book|make)\b ?(?P<what>.*)$",
    re.IGNORECASE,
)
