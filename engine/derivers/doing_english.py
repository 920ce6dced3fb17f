"""What an English text does, told by its words: it greets, plans, prefers, corrects, reports an error ..."""

from typing import Final

from engramlog.engine.derivers.texts import any_of

_I: Final = r"(?<![\w'\u2019])(?:I|we)"

DOING: Final = {
    "greeting": any_of(
        r"^\W*(?:hey|hi|hello|good (?:morning|afternoon|evening|night))",
    ),
    "farewell": any_of(
        r"\b(?:bye|goodbye|see (?:you|ya)|talk (?:to you )?(?:soon|later)|take (?:care|it easy)|good night"
        r"|chat soon|gotta go|catch you later|stay safe|have (?:a (?:great|good|nice)|fun))\b",
    ),
    "thanks": any_of(
        r"\b(?:thanks|thank you|thx|appreciate)\b",
    ),
    "praise": any_of(
        r"\b(?:wow|awesome|amazing|great|cool|congrats|congratulations|nice|incredible|fantastic|wonderful"
        r"|impressive|inspiring|well done|good (?:job|luck|for you)|proud of you|way to go"
        r"|sounds (?:\w+ )?(?:good|great|awesome|fun|amazing)|glad (?:you|it|to hear))\b",
    ),
    "general_truth": any_of(
        r"\b(?:it's (?:so |really |always |super )?(?:important|great|amazing|nice|awesome|wonderful) (?:to"
        r"|that|how|when)|everyone (?:deserves|should)|remember,|keep (?:it up|going|pushing|believing)"
        r"|you(?:'ve| have) got this|you should|you can|you could|let's)\b",
    ),
    "polite_promise": any_of(
        r"\b(?:i'll|i will|will) (?:definitely |be sure to |surely )?(?:check (?:it|them|that) out"
        r"|give it a (?:try|go|shot)|keep (?:it|this|that|you)|do|let you know|look into)",
        r"\bwill do\b",
    ),
    "assistant_talk": any_of(
        r"\bas an AI\b",
    ),
    "reason": any_of(
        r"\b(?:because|since|so that|due to|thanks to|that's why|as a result)\b",
    ),
    "past_event": any_of(
        _I + r"(?:'ve| have| had|'d)? (?:just |recently |finally |also |even |actually |already )?(?:went|joined"
        r"|bought|got|made|finished|passed|started|took|attended|visited|met|found|lost|won|moved|quit|adopted"
        r"|painted|cooked|tried|learned|learnt|saw|watched|read|played|hosted|helped|donated|began|built"
        r"|signed|received|retook|messed|hurt|broke|bought|gave|wrote|ran|hiked|traveled|travelled|brought|had"
        r"|were?|was|been|did|done|came|created|accepted|graduated|married|bumped|reached|completed|decided"
        r"|chose|volunteered|explored|worked|talked|spent|told|left|lived|used to)\b",
    ),
    "present_life": any_of(
        _I + r"(?:'m| am|'ve been| have been|'re| are) (?:currently |still |also |now |really |just |into |in |at "
        r"|on ){0,3}(?:\w{3,20}ing|into|a|an|the|busy|married|single|allergic)\b",
        r"\b(?:our|my) (?:\w+ ){0,2}(?:is|are|was|were|has|have|had|loves?|likes?)\b",
    ),
    "mine": any_of(
        r"(?<![\w'\u2019])(?:my|mine|our)\b",
    ),
    "people": any_of(
        r"\b(?:wife|husband|kids?|son|daughter|mother|mom|mum|father|dad|sister|brother|siblings?|parents"
        r"|family|grandma|grandpa|grandmother|grandfather|cousin|aunt|uncle|girlfriend|boyfriend|partner"
        r"|fiancée?|boss|colleagues?|coworkers?|teammates?|roommate|neighbou?rs?|dog|cat|puppy|kitten|pets?)\b",
    ),
    "preference": any_of(
        _I + r"(?:'m| am|'ve)? (?:really |also |always |absolutely |just |still |usually |often |do "
        r"|would ){0,3}(?:love|like|enjoy|prefer|hate|dislike|adore|fond|passionate|a fan|a big fan|into|loved"
        r"|enjoyed|miss|usually)\b",
        r"\b(?:my|our) (?:\w+ )?(?:favou?rites?|faves?|passion|hobby)\b|\bfavou?rite\b[^?]{0,40}\bis\b",
    ),
    "plan": any_of(
        _I + r"(?:'m| am|'re| are)? (?:\w+ )?(?:planning|plan|going to|gonna|hoping|hope|thinking (?:of|about)"
        r"|want to|wanna|dream|decided|aim|intend|saving|looking forward|organi[sz]ing|signed up)\b",
        r"\b(?:gonna|we'll|i'll be|next (?:week|month|year|weekend|summer|time))\b",
    ),
    "decision": any_of(
        r"\b(?:decided|we(?:'ll| will) (?:use|go with)|let's go with|agreed (?:to|on|that)|chose|settled on"
        r"|made up my mind|the decision)\b",
    ),
    "when": any_of(
        r"\b(?:yesterday|tomorrow|tonight|last (?:week|weekend|month|year|night|summer|mon|tues|wednes|thurs"
        r"|fri|satur|sun)\w*|next (?:week|month|year|mon|tues|wednes|thurs|fri|satur|sun)\w*|(?:mon|tues"
        r"|wednes|thurs|fri|satur|sun)day|\w{1,20} ago|this (?:week|weekend|month|year|morning)|since (?:i|my|last"
        r"|\d)|recently|lately|when i was|years|months|weeks|january|february|april|june|july|august|september"
        r"|october|november|december)\b",
    ),
    "number": any_of(
        r"(?<![\w.])[$€£¥￥]?\d[\d,.:/-]*",
        r"\b(?:two|three|four|five|six|seven|eight|nine|ten|dozens?|hundreds?|thousands?|million)\b",
    ),
    "personal_fact": any_of(
        r"\bmy (?:full |first |last )?(?:name|birthday|age|job|address|phone|email|e-mail|degree|salary"
        r"|blood type|surname)\b",
        _I
        + r"(?:'m| am) (?:allergic|diabetic|vegan|vegetarian|pregnant|married|divorced|retired|a \w{1,20}(?:er|or|ist"
        r"|ant|ian)|from|\d{1,3})\b",
        _I + r" (?:live|work|study|studied|grew up|was born|have (?:a|an|two|three) \w+)",
    ),
    "health": any_of(
        r"\b(?:allerg\w+|diagnos\w+|injur\w+|hurt|surgery|doctor|hospital|medication|asthma|diabet\w+"
        r"|pregnan\w+|gastritis|therapy|physical therapy|pt|knee|ankle|weight|diet|stress(?:ed)?|anxi\w+"
        r"|depress\w+|sick|ill|pain|cancer|blood pressure)\b",
    ),
    "feeling": any_of(
        _I + r"(?:'m| am|'ve been| was| felt| feel)(?: \w+)? (?:worried|sad|scared|afraid|anxious|nervous|lonely"
        r"|lost|upset|overwhelmed|frustrated|down|heartbroken|proud)\b",
    ),
    "work": any_of(
        r"\b(?:job|work|company|project|career|degree|school|university|class|course|exam|interview|promotion"
        r"|boss|team|business|store|studio|internship|certificate|programming|coding|app|website)\b",
    ),
    "instruction": any_of(
        r"\b(?:always|never|from now on|please (?:always|never|use|don't|do not|answer|reply|write|call|keep"
        r"|make sure|remember)|make sure|do not|must(?:n't| not)?|you must|don't (?:ever|use|call|send|tell"
        r"|forget)|remember (?:to|that)|rule:|note:|important:|todo|fixme)\b",
    ),
    "correction": any_of(
        r"\b(?:correction|i meant|i mean[ts]? |that's (?:wrong|not right|incorrect)|not \w+(?: \w+)?,? but"
        r"|actually,? (?:it|i|the|my|no|that)|no,? (?:it's|i|the|my)|instead of|no longer|not anymore"
        r"|turns out|changed my mind|wrong about)\b",
    ),
    "error": any_of(
        r"(?-i:[a-z](?:Error|Exception))\b",
        r"\b(?:error|failed|failure|traceback|crash(?:ed|es)?|exit code|segfault"
        r"|timed? ?out|refused|denied|bug|broken|not found|fatal|panic)\b",
    ),
    "commitment": any_of(
        r"\b(?:i'll|i will|we'll|we will) (?:send|finish|call|pay|bring|fix|deliver|write|book|meet|pick"
        r"|prepare|submit|buy|come|be there|show up|take care of|email|ship|release|review|deploy|return|start"
        r"|join|attend|go|visit|try)\b",
        r"\bi promise\b|\bdeadline\b|\bdue (?:on|by)\b",
    ),
    "you": any_of(
        r"\b(?:you|your|yours|you're|you've|ya)\b",
    ),
    "link": any_of(
        r"https?://|\w@\w[\w-]{0,62}\.\w|\w\.(?:py|js|ts|md|json|ya?ml|csv|txt|pdf|docx?|xlsx?)\b",
    ),
}
"""Patterns by the name of the feature that they are, see :mod:`engramlog.engine.derivers.importance`."""
