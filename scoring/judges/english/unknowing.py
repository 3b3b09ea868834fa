"""Epistemic: asking back, lacking data, not knowing, having no opinions."""

from scoring.judges.english.pieces import CANNOT, CANNOT_CUES, FACTS, FRESH, I_CANNOT, SURE
from scoring.judges.table import rule

CLARIFY = (
    rule(
        "asks for detail",
        "Could you please give me more context?",
        "details information context if tell let clarify specify rephrase elaborate provide give more share need "
        "paste upload little bit",
        r"\b(?:(?:could|can|would|will) you (?:please |kindly )?(?:\w+ )?(?:clarify|specify|rephrase|elaborate|"
        r"provide|give|share|tell me (?:more|which|what)|be (?:a (?:bit|little) )?more specific)|please (?:\w+ "
        r")?(?:clarify|specify|rephrase|elaborate|(?:provide|give|share)(?: \w+){0,4}? (?:context|details?|"
        r"information|clarification|specifics))|if you (?:can|could|would)? ?(?:please )?(?:\w+ )?(?:clarify|specify|"
        r"rephrase|provide (?:me )?(?:with )?(?:\w+ )?(?:more|additional|further|some))|need (?:an? )?(?:\w+ "
        r"){0,2}?(?:more|additional|further) (?:details?|specifics|context|info\w*)|please (?:\w+ )?(?:provide|give|"
        r"share|paste|send|upload|attach|include|enter|type)(?: me)?(?: with)? (?:the|your|a) (?:\w+ )?(?:text|"
        r"document|code|file|image|passage|article|sentence|details?|question|equation|content|e-?mail|letter|essay|"
        r"paragraph|link|name|topic)|if you (?:could |can )?(?:\w+ )?(?:paste|send|upload|attach)\b|^(?:please "
        r")?(?:tell|let) me (?:know )?(?:the|more|what|which|a bit|your|where|when|who)\b)",
    ),
    rule(
        "asks what you mean",
        "What exactly do you mean?",
        "what",
        r"\bwhat (?:do|did|exactly|specifically|kind|type|sort)\b[^?]*\b(?:you|mean|refer)\b[^?]*\?",
    ),
    rule(
        "asks which was meant",
        "Do you mean the river?",
        "mean referring asking looking talking",
        r"\b(?:do|did|are) you (?:mean|referring|asking|looking|talking)\b",
    ),
    rule(
        "does not understand",
        "I'm not sure what you want from this.",
        "sure certain clear understand following",
        r"\bnot (?:\w+ )?(?:sure|certain|clear)(?: i)? (?:what you|which|understand|who you|who .{0,40} (?:referring "
        r"to|mean)|what .{0,40} (?:referring to|mean))|\bdo not (?:\w+ )?understand (?:what|the|your)|\bi am not "
        r"(?:quite |really )?following\b",
    ),
    rule(
        "question is unclear",
        "The question is ambiguous.",
        "unclear ambiguous incomplete broad vague missing",
        r"\b(?:question|request|prompt)\b[^.]{0,20} (?:is|seems|appears)[^.]{0,20} (?:unclear|ambiguous|incomplete|"
        r"broad|vague|missing)|\bseems? to be (?:missing|incomplete)",
    ),
    rule(
        "has questions first",
        "A few questions first.",
        "question questions first",
        r"\b(?:a few|a couple of|some|quick) (?:quick |short |more )?questions?\b|^first,? a (?:few|couple)",
    ),
    rule(
        "makes sure",
        "Just to be clear.",
        "understand clarify check sure clear tell",
        r"\bjust (?:so i|to) (?:understand|clarify|check|be (?:sure|clear))|\bcannot tell (?:which|what) (?:\w+ )?you",
    ),
)

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
        "word name term place person title memory recollection familiar unfamiliar heard recognize recognise recall "
        "remember knowledge record",
        r"\b(?:(?:not|un)(?: \w+)? ?familiar with|(?:never|not) (?:\w+ )?heard of|i (?:do not|cannot) (?:\w+ "
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

LIMIT = (
    rule(
        "has no favourite",
        "I have no favourite.",
        "views opinion favorite favourite favorites favourites preferences preference opinions taste tastes",
        r"\b(?:not|no|without) (?:have |got |hold |experience |possess )?(?:an? |any |actual |personal |real "
        r")*(?:favou?rites?|preferences?|personal (?:opinions?|tastes?|views?))\b",
    ),
    rule(
        "no opinions",
        "As an AI, I don't have feelings.",
        "opinion opinions belief beliefs feelings feeling emotions experience experiences preference preferences "
        "bias biases view views physical physically body stance sides neutral impartial unbiased conscious "
        "consciousness judgments personally",
        r"\b(?:i|we|ai|model|assistant) (?:\w+ ){0,3}?(?:cannot|not|no|never|remain|maintain|stay|lack|must|strive|"
        r"unable)\b[^.]{0,60}?\b(?:opinions?|beliefs?|feelings?|emotions?|experiences?|preferences?|bias(?:es)?|"
        r"views?|sides|conscious\w*|physical(?:ly)?|body|stance|neutral|impartial|unbiased|judgments?|personally)\b|"
        r"\bi am (?:\w+ )?(?:impartial|neutral|unbiased)",
    ),
)

LACK = (
    rule(
        "has or senses nothing",
        "I have no window to look out of.",
        "have had nothing never not_have not_had not_see not_hear not_feel not_taste not_exist not_hold not_keep "
        "not_store not_retain not_carry not_own not_receive not_track not_get not_produce not_make not_write "
        "not_share not_give not_do not_offer not_discuss not_take not_teach not_touch not_play not_go lack cannot",
        r"^(?:(?!if |when |should |people |you )[^i]{0,50}\b)?(?:i|we) (?:\w+ly |still |also |simply |just )?(?:have "
        r"(?:no|nothing|never|not)\b|had no|lack|never (?:had|have|was|were|met|saw|got|experience)|(?:do not|did "
        r"not|cannot|no longer) (?:\w+ly |have |personally )?(?:have|see|hear|feel|taste|smell|exist|hold|keep|store|"
        r"retain|carry|own|receive|track|get|produce|make|write|share|give|do|offer|discuss|take|teach|touch|play|go|"
        r"live|sleep|dream|eat|remember|possess))\b",
        opening=True,
    ),
)
