"""English patterns of not knowing: missing data, and statements of not knowing."""

from scoring.judges.english.pieces import CANNOT, CANNOT_CUES, FACTS, FRESH, I_CANNOT, SURE
from scoring.judges.table import rule

UNKNOWN = (
    rule(
        "no live data",
        "I do not have real-time data.",
        "real realtime current up live latest recent most reliable",
        rf"(?:{CANNOT}|\bnot (?:\w+ )?(?:have|possess)|\bno|\black) (?:\w+ ){{0,5}}?(?:or )?{FRESH}(?: or \w+)?,? "
        rf"(?:\w+[ -]){{0,2}}?(?:{FACTS}|events|prices|weather|results|scores|access|internet|answers?)\b",
    ),
    rule(
        "no access",
        "I cannot browse the internet.",
        "access browse browsing search internet look privy",
        r"(?:\b(?:i|me|we|ai|model|assistant) (?:\w+ ){0,6}?(?:not|cannot|no|without|lack|unable)(?: to)? (?:(?!help|"
        r"assist|support|provid|give|grant|aid|facilitat|guid|teach|show)\w+ ){0,3}?(?:access|privy|brows\w*|search|"
        r"look up)|^(?:no|without|lacking) (?:\w+ ){0,2}?access|\bmy access\b[^.]{0,40}limited)",
    ),
    rule(
        "knowledge cut-off",
        "My knowledge cutoff is 2023.",
        "last update cutoff cut training knowledge",
        r"\b(?:(?:knowledge|training)(?: data)?(?: \w+)? (?:cut ?-?off|only (?:goes|extends|covers)|ends|is limited|"
        r"was last)|beyond my knowledge)",
    ),
)

ABSTAIN = (
    rule(
        "does not know",
        "I don't know.",
        "know knew knows sure certain aware confident unsure unaware idea clue way",
        rf"\b(?:nobody|no one) (?:\w+ )?knows\b|\bi wish i knew\b|\b(?:i|we) (?:\w+ )?(?:do not (?:\w+ )?know\b(?! "
        rf"(?:you\b|about you|of an?y? (?:better|easier)))|have no (?:idea|clue|way (?:of|to))|(?:am )?(?:not (?:\w+ "
        rf")?{SURE}|unsure|unaware)\b(?! (?:i (?:can|should|want)|that is (?:appropriate|a good))))",
    ),
    rule(
        "not familiar",
        "I'm not familiar with that person.",
        "bell blank dark stumped beats word name term place person title memory recollection familiar unfamiliar "
        "heard recognize recognise recall "
        "remember knowledge record",
        r"\b(?:rings? no bell|not ring (?:a|any) bells?|draw(?:ing)? a blank|in the dark (?:about|on)|stumped|beats me|"
        r"(?:not|un)(?: \w+)? ?familiar with|(?:never|not) (?:\w+ )?heard of|i (?:do not|cannot) (?:\w+ "
        r")?(?:recogni[sz]e|recall|remember)|have no (?:\w+ )?(?:knowledge|records?|recollection|memory)|\bnot "
        r"(?:an? )?(?:\w+ )?(?:word|name|term|place|person|title|phrase|thing) (?:that )?i (?:recogni[sz]e|know|am "
        r"familiar))",
    ),
    rule(
        "cannot say",
        "I can't verify that.",
        CANNOT_CUES,
        rf"{I_CANNOT}(?:say\b(?! that i)|tell (?:you )?(?:for|with|if|whether|(?:who|when|where|which)(?! to\b)|"
        rf"exactly|what (?:will|the|is|happens))|determine|verify|confirm|predict|find|locate|identify|recall|"
        rf"recogni[sz]e|know|guess|ascertain|foresee|forecast|see|view|hear|estimate|speculate|pinpoint|settle|"
        rf"resolve|open|click|visit|browse|listen|watch|download|fetch|load|retrieve|measure|be (?:certain|sure)|"
        rf"(?:provide|give|offer|answer|respond)[^.]{{0,40}}?(?:with (?:\w+ )?(?:certainty|confidence)|reliably|for "
        rf"(?:sure|certain)|definitively|(?:specific|definit\w+|accurate|exact|precise) (?:answer|number|figure|"
        rf"prediction|date)))\b",
    ),
    rule(
        "no information",
        "I have no information about this.",
        "source sources specifics stated provided given described news information data details detail context "
        "knowledge record records evidence indication mention mentioned specify name answer known documentation "
        "limited statistics figures updates",
        rf"\b(?:(?:do|does|did) not (?:\w+ )?(?:have|contain|possess|include|provide|give|specify|"
        rf"mention)\b[^.]{{0,40}}?\b(?:{FACTS}|specifics|the answer|an answer|names?)\b|(?:no|not enough|"
        rf"insufficient|lacks?|lacking|limited) (?:(?:\w+|or|of) ){{0,4}}?{FACTS}\b|there (?:is|are|was) no (?:\w+ "
        rf")?known|not (?:\w+ )?(?:mentioned|specified|provided|given|stated|described) in)",
    ),
    rule(
        "context is silent",
        "The text does not say.",
        "context passage text",
        r"\b(?:the|this|provided|given) (?:context|passage(?! of)|text) (?:\w+ ){0,4}?(?:does not|did not|is not|is "
        r"(?:unclear|incomplete))",
    ),
    rule(
        "not known",
        "It is not publicly known.",
        "known available unclear specified disclosed clear unknown uncertain impossible difficult hard way answer "
        "consensus",
        r"\b(?:(?:is|are|was|were|has|have) (?:\w+ ){0,2}?(?:not (?:\w+ )?(?:been )?(?:known|available|specified|"
        r"disclosed)|unclear|unknown|uncertain)|(?:impossible|difficult|hard) (?:for me )?to (?:say|know|tell|"
        r"predict|determine|answer|give|provide a (?:\w+ )?answer)|no (?:way (?:to|of) (?:know|tell|predict|determin|"
        r"say)\w*|(?:reliable|definitive|single|clear) (?:way|answer|consensus)))",
    ),
)
