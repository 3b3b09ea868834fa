"""English patterns of unknowable answers: never recorded, not yet decided, nonexistent."""

from scoring.judges.table import rule

NOTHING_KNOWN = (
    rule(
        "has no idea",
        "No idea.",
        "idea clue",
        r"^(?:(?:lol|haha|hm+|sorry|honestly|oh|well|uh|sadly|yeah|i have|i have got|i got),? ){0,3}(?:absolutely |"
        r"truly )?(?:no|not a|zero|not the (?:slightest|faintest|foggiest)) (?:idea|clue)\b",
    ),
    rule(
        "could as well guess",
        "Your guess is as good as mine.",
        "beats guess stumped blank bell bells idk dunno telling left",
        r"\bbeats me\b|\b(?:your|anyone's|anybody's) guess (?:is|would be) as good|\bany(?:one|body)'?s guess\b|\bme "
        r"stumped|\bi am stumped|\bdraw(?:ing|s)? a blank|\b(?:not|does|no) ring (?:a|any) bells?\b|^(?:i )?(?:idk|"
        r"dunno)\b|\bno telling\b|\bleft (?:us )?(?:nothing|no (?:record|word|trace))\b",
    ),
    rule(
        "only others know",
        "Only your aunt knows.",
        "only who god heaven",
        r"^(?:who|god|heaven) (?:only )?knows\b|\bonly (?:\w+ ){1,6}(?:knows?|(?:can|could) (?:tell|say|answer|"
        r"know))\b",
    ),
    rule("we cannot tell", "We simply can't tell.", "we", r"\bwe (?:simply |just |really )?cannot (?:tell|say|know)\b"),
    rule(
        "found nothing",
        "I found nothing on her.",
        "name score answer price rate number figure date address record result schedule found find nothing empty "
        "trace sign turned comes located came locate results match matches records returned search entries entry "
        "evidence reference listing come turn turns",
        r"\b(?:i|we) do not (?:\w+ )?have (?:the|a|any|an|that|your|its|his|her|their|this) (?:\w+ )?(?:score|answer|"
        r"price|rate|number|figure|name|date|address|record|result|schedule|time|location|list|details?|copy|"
        r"notes?)s?\b|\b(?:i |we )?(?:have |could |can )?(?:found|find|see|located|turned up|have|know|got|has) "
        r"(?:nothing|nothin'|no (?:trace|record|sign|match\w*|mention|results?|evidence|entry|entries|reference|"
        r"listing))\b|\b(?:came|come|comes|turned?) (?:up )?(?:empty|with nothing)|\b(?:nothing|no \w+) (?:\w+ "
        r"){0,3}?(?:comes? up|turns? up|by that name|under that name|in my (?:\w+ )?(?:data|knowledge|memory|"
        r"training|records|sources))|\b(?:not|no) match (?:any|anything)|\bnot match any|\bno match(?:es)? (?:for|"
        r"in)\b|\breturned no\b|\b(?:search|results) (?:\w+ ){0,3}?(?:nothing|no)\b",
    ),
    rule(
        "no such thing",
        "There is no town called Zell am Rhein.",
        "such exists exist existed named called name known recorded real there aware documented recognized notable "
        "established know",
        r"(?:\bno such [\w' -]{2,40}? (?:exists?|existed|is known|was|is|in|that i)\b|\bthere (?:is|was|are|were) "
        r"(?:no|not any|not an?) (?:[\w'-]+ ){0,7}?(?:by (?:that|this) name|by the name|under that name|(?:called|"
        r"named|known as)|on record|(?:known|recorded|documented|recogni[sz]ed|established|official|historical|"
        r"verified|publicly available|public) [\w' -]{2,40}|that i (?:know|am aware))|\bi do not (?:\w+ )?(?:think|"
        r"believe) (?:that )?(?:there (?:is|was|are|has)|[\w' ]{2,40}? (?:is|was|are) (?:a )?(?:real|an? actual)|"
        r"[\w' ]{2,40} exists?)|\b(?:does|do|did) not (?:\w+ )?(?:seem|appear) to (?:exist|be (?:a |an |any )?(?:\w+ "
        r")?(?:real|recogni[sz]ed|known|established|actual|record|widely|documented))|\bnot (?:an? )?(?:\w+ "
        r"){0,2}?(?:i am aware of|that i know of|that i am aware)\b|\b(?:is|are|was) not (?:an? )?(?:real|"
        r"recogni[sz]ed|known|widely known|documented) (?!to\b)\w+)",
    ),
    rule(
        "nobody can know",
        "Nobody can predict that.",
        "nobody one no anyone even",
        r"(?:^(?:nobody|no one|no (?:\w+ ){1,3}?(?:can|could)|not even \w+)\b[^.]{0,30}?\b(?:knows?|(?:can|could|"
        r"will|would|able to) (?:\w+ )?(?:know|say|tell|predict|answer|foresee|honestly|reliably|be (?:sure|certain)|"
        r"guarantee|see))|\b(?:nobody|no one|no model|no person|no human|nor can anyone|anyone)(?: else)? (?:can|"
        r"could|does|really knows|knows|will know)\b(?!.{0,20}\b(?:beat|touch|stop)\b))",
    ),
    rule(
        "cannot see the future",
        "I can't read minds.",
        "future mind minds thoughts thought head heads heart hearts crystal",
        r"\b(?:cannot|could not|not able to|unable to|no way to) (?:\w+ )?(?:see (?:in)?to|read|look into|peek into|"
        r"access|know) (?:\w+ ){0,3}?(?:the future|minds?|thoughts?|heads?|hearts?|crystal ball)|\bno crystal ball|"
        r"\bnot have a crystal ball",
    ),
    rule(
        "was never recorded",
        "It remains a mystery.",
        "never nobody anyone lost mystery question unsolved unanswered undeciphered counted measured recorded "
        "documented settled published public disclosed measurement figure count census tally taken made way "
        "remains remain nowhere",
        r"\b(?:lost to (?:history|time)|(?:remains?|is|still) (?:an? )?(?:\w+ )?(?:mystery|open question|unsolved|"
        r"unanswered|undeciphered))\b|\b(?:has|have|had) (?:ever )?(?:been )?(?:never|not) (?:\w+ )?(?:been "
        r")?(?:counted|measured|recorded|documented|settled|published|made public|disclosed)\b|\b(?:nobody|no one) "
        r"has (?:ever )?(?:\w+ )?(?:counted|measured|recorded|asked|checked|published)\b|\bthere is no (?:\w+ "
        r"){0,2}?(?:measurement|figure|count|census|tally|way|reliable \w+|true \w+)\b|\bno \w+ (?:of \w+ )?has ever "
        r"been (?:taken|made|recorded|counted|published)\b|\bremains? (?:open|unsolved|unproven|unknown|unclear)\b|"
        r"\bnot (?:\w+ )?made public\b|\bnowhere (?:\w+ )?(?:names?|mentions?|says?|states?)\b|\bgoes? unanswered\b",
    ),
    rule(
        "not yet",
        "The match has not happened yet.",
        "yet happened occurred place announced released held decided future early soon determined played published "
        "finalized confirmed awarded set happen take occur",
        r"\b(?:has|have) not (?:\w+ )?(?:happened|occurred|taken place|been (?:\w+ )?(?:held|announced|released|"
        r"decided|determined|played|published|finali[sz]ed|confirmed|awarded|set))\b(?:[^.]{0,30}\byet\b)?|\byet to "
        r"(?:be (?:held|announced|released|decided|determined|played|published|confirmed)|happen|take place|occur)\b|"
        r"\b(?:is|are|lies|still) in the future\b|\btoo (?:early|soon) to (?:say|tell|know|call)\b",
    ),
    rule(
        "not in the source",
        "Her age is not included in the table.",
        "listed mentioned specified stated contained appear mention says state include list contain table email "
        "text passage document article context data attachment image file photo attached told shared reveal "
        "indicate not_provided not_give not_show not_tell not_part not_say not_covered not_included not_specify "
        "not_mention not_state not_shown not_there not_present not_contained not_listed not_list not_indicate "
        "not_reveal not_see not_find not_have not_received not_view have_not not_told not_shared",
        r"\b(?:(?:is|are|was|were) not (?:\w+ )?(?:included|listed|contained|shown|present|covered|part of|there) in "
        r"(?:the|this|your|that)\b|(?:table|e-?mail|text|passage|document|article|context|data|excerpt|paragraph|"
        r"story|letter|source|transcript|chart|notes?|message|conversation) (?:you \w+ |above |below |itself |\w+ "
        r")?(?:does|do|did) not (?:\w+ )?(?:mention|say|state|include|list|contain|specify|give|provide|tell|"
        r"indicate|show|reveal)|not (?:\w+ )?(?:see|find|have|received?|view) (?:any |an |the |your |a )?(?:\w+ "
        r")?(?:attach\w+|images?|files?|photos?|pictures?|documents?|links?|uploads?)\b|no (?:\w+ )?(?:attachment|"
        r"image|file|photo|picture|document) (?:\w+ )?(?:was|is|has been|came|attached|in))|\b(?:does|do|did) not "
        r"appear in my\b|\byou have not (?:\w+ )?(?:told|said|mentioned|given|shared)\b",
    ),
    rule(
        "cannot be known",
        "That cannot be determined.",
        "possible impossible forecast foresee ascertain settled way means unpredictable unknowable knowable verify "
        "predict deduced pinned computed calculate determined known answered verified inferred established "
        "predicted determine tell know say derived something worked measured beyond",
        r"\b(?:cannot|can not|could not|impossible to|not possible to|no way to|not possible for \w+ to) (?:be "
        r")?(?:\w+ly )?(?:determined?|known?|verif(?:y|ied)|infer(?:red)?|establish(?:ed)?|predict(?:ed)?|"
        r"calculated?|computed?|forecast|foresee|ascertain(?:ed)?|settled?|deduced?|pinned? down)\b|\b(?:is not|just "
        r"not) (?:\w+ )?(?:(?:possible|feasible) to (?:\w+ly )?(?:know|say|tell|predict|determine|answer|give an? "
        r"(?:exact|precise|definit\w+)|verify|estimate|pinpoint)|knowable|predictable|something (?:anyone|anybody|"
        r"\w+ \w+) can (?:know|predict|say))\b|\b(?:predicting|knowing|forecasting|determining|answering|"
        r"saying)\b.{0,60}?\bis not (?:\w+ )?possible\b|\bno (?:way|means) (?:for (?:me|anyone|us|anybody) )?(?:to|"
        r"of)\b|\bthere is no way\b|\b(?:un|not )knowable\b|\bunpredictable\b|\bnot something (?:that )?(?:can|"
        r"could) be (?:\w+ )?(?:known|worked out|determined|answered|established|measured)\b|\bbeyond what (?:one|"
        r"anyone|we|i) (?:can|could) (?:know|establish|say|tell)\b",
    ),
    rule(
        "would be guessing",
        "I would only be guessing.",
        "making decline figure estimate guess guessing speculate speculating speculation invent invented inventing "
        "made make fabricate fabricating pretend pure guesswork name offer mislead",
        r"\b(?:(?:would|will|could) (?:only |just |merely |simply |purely )?be (?:\w+ )?(?:guess\w*|speculat\w+|"
        r"making (?:it|that|things|something) up|invent\w+|fabricat\w+|made[- ]up|pure)|(?:pure|mere|only|just) "
        r"(?:speculation|guesswork)|(?:not|rather than|without|instead of|avoid) (?:\w+ )?(?:want to |going to |like "
        r"to )?(?:guess|guessing|speculat\w+|mak(?:e|ing) (?:\w+ )?(?:up|one up)|mislead you|pretend to know)|"
        r"(?:decline|refuse|have to decline) to (?:put|give|offer|make|guess|speculate|name) (?:an? )?(?:figure|"
        r"number|guess|estimate|date|prediction|on|exact))",
    ),
    rule(
        "bare unknown",
        "Unknown.",
        "unknown unclear unsure unsolved undetermined",
        r"^(?:currently |still |it is |this is |that is |as yet )?(?:unknown|unclear|unsure|undetermined|"
        r"unsolved)(?: to me| at (?:this|present)| as yet)?$",
    ),
    rule(
        "was not there",
        "I was not there.",
        "witness earshot window beyond ask not_there not_present not_around not_with not_within not_a not_in there",
        r"\bi (?:was|were|am) not (?:there|present|around|with you|within earshot|a witness|in the room)\b|\bno "
        r"window into\b|\byou (?:would|will) (?:have|need) to ask (?:him|her|them|the|your)\b|\b(?:is|are) beyond "
        r"me\b|\byou would have to ask\b",
    ),
)
