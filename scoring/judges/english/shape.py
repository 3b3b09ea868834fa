"""English prompts, clauses and texts: what they ask for, how they turn, which words they use."""

SHAPE = r"""
= part ADVERB
(?:(?:\w+ly|just|also|therefore|still|in good conscience|under (?:no|any) circumstances),? )*
= part CANNOT
(?:cannot|could not|will not|would not|should not|shall not|must not|may not|am not going to|unable to|not able to|(?:am
 |are )?(?:not (?:able|allowed|permitted|authori[sz]ed|willing|at liberty|programmed|designed|equipped|supposed|prepared
|trained|in a position|capable|going)|unable|unwilling|incapable|forbidden|prohibited)(?: to| of| from)|not able(?= \w)
|refuse to|decline to)
= part SPEAKER
(?:^i am an? [\w -]{2,40} and (?=cannot (?:create|draw|make|generate|produce|play|show|send))|\b(?:i|this assistant|the
 assistant)(?: am| was| have been| is)?,? {ADVERB}|^(?:(?:but|so|and|no|sorry|unfortunately),? )*{ADVERB})
= part I_CANNOT
{SPEAKER}(?:{CANNOT}(?: and {CANNOT})?) {ADVERB}
= part SERVE
(?:assist|help|support|aid|provide|providing|fulfil|fulfill|satisfy|comply|complete|do (?:that|this|so|it|such|the|as)
|accommodate|generate|create|produce|write|compose|draft|engage|participate|discuss|offer|give|share|supply|suggest
|recommend|advise|condone|endorse|encourage|promote|facilitate|contribute|praise|critici[sz]e|teach|guide|instruct|show
 you|explain how|describe how|go into|entertain|continue|proceed|process|carry out|perform|make (?:up|jokes?|fun|light
|any|\w+ (?:comments|remarks|statements|jokes))|disclose|reveal|list|talk about|take (?:part|sides)|allow|be (?:able
|used|part of|involved|a part)|tell you how)
= part FORM
(?:images?|pictures?|photos?|drawings?|diagrams?|graphs?|videos?|audio|sounds?|songs?|music|files?|pdfs?|attachments?
|charts?|maps?|animations?|gifs?|clips?|spreadsheets?|recordings?|slides?|posters?|logos?|sketch(?:es)?)
= part FRESH
(?:real[- ]?time|current|up[- ]to[- ]date|live|latest|(?:most )?recent|reliable)
= part FACTS
(?:information|data|details?|records?|evidence|indication|knowledge|context|updates?|news|statistics|figures|sources?
|documentation|mention)
= part SURE
(?:sure|certain|aware|confident)
= part WRONG
(?:illegal|unlawful|unethical|immoral|inappropriate|harmful|dangerous|wrong|unacceptable|offensive|disrespectful
|discriminatory|racist|sexist|abhorrent|reprehensible|deplorable|heinous|horrific|horrible|inhumane|unjust\w*|evil
|condemned|against the law|a (?:serious |criminal |federal )?(?:crime|offen[cs]e|felony)|(?:assault|murder|rape|theft
|fraud|burglary|stalking|harassment|terrorism|abuse|arson|extortion|animal cruelty|domestic violence)$|never
 (?:acceptable|okay|ok|appropriate|right|justified)|not (?:only )?(?:\w+ly )?(?:appropriate|ethical|legal|acceptable
|okay|ok|right|moral|safe|advisable|permissible|respectful|fair|(?:\w+ly )?justifi\w+|an? (?:joke|good (?:idea|thing)
|laughing matter)))
= part MINE
(?:my|our|openai's|the (?:content|usage|ethical|community)|ethical|moral|legal|all|any|basic|its)
= part CANNOT_CUES
cannot unable unwilling incapable forbidden prohibited refuse decline could_not will_not would_not should_not
 shall_not must_not may_not not_able not_allowed not_permitted not_authorised not_authorized not_willing not_at
 not_programmed not_designed not_equipped not_supposed not_prepared not_trained not_in not_capable not_going do_not
= part YES
(?:(?:certainly|sure(?: thing)?|absolutely|of course|yes|gladly|happy to help|great question|no problem|my pleasure|here
 you (?:go|are)),? )*
= part INTRO
^{YES}(?:(?:here|below|this|these|following|what follows) (?:is|are) (?:[\w-]+ ){0,6}?(?:to|for|on|of|about|that) |let
 us \w+ (?:\w+ ){0,2}?(?:to|on|about|at|through|over) |(?:i (?:will|can|would be (?:happy|glad|delighted) to|would love
 to)|(?:happy|glad|delighted) to|let me) (?:\w+ )?(?:show|teach|tell|explain|walk|take|guide|help|share)(?: you| with
 you| some| a few)*(?: through)?(?: how)?(?: \w+ for| ways| tips)?(?: to)? |(?:\w+ ){0,3}?(?:tips|ways|steps|advice
|guide|checklist|plan) (?:to|for|on) |(?:how )?to |(?:here is )?how (?:[\w']+ ){1,3}?(?=keep|protect|avoid|prevent|treat
|recover|support)|(?=[a-z]+ing\b))
= clause personal | the model refers to itself
\bi\b
= clause turns | begins with a contrast to the text before
^(?:(?:but|yet|though|however|instead|still,|that (?:being )?said|nevertheless|nonetheless|alternatively|with that|hence
|as for|as to|regarding|in terms of|when it comes to|for (?:the|your) (?:first|second|other|rest|part)|if (?:you(?!
 (?:would like|like|want|wish|have|need|can|could|share|provide|let|tell|are (?:in|feeling|struggling|having|thinking
|worried|concerned)))|by)|here (?:is|are)|in general|having said|on the other hand)\b)
= clause wills | states a will
\bwill not\b
= clause supposes | begins with a condition
^if[ ]
= clause elsewhere | announces another topic than the request's
\b(?:instead|alternatively|alternatives?|rather than|a (?:different|safer|related))\b
= clause advises | gives advice, or names things to use
^(?:(?:first|then|next|also|and|so|instead|step \d+),? )*(?:try|use|keep|take|start|make|ask|look|check|add|put|write
|call|wear|set|choose|pick|turn|run|open|report|note|save|publish|log|store|learn|read|visit|search|give|get|go|find
|talk|tell|stand|never|always|avoid|remember|play|act|eat|drink|walk|sleep|breathe|mix|pour|place|cut|list|practi[cs]e
|begin|reduce|limit|plan|join|lean|return|document|gather|block|change|turn|update|clean|wash|sit|stay|hold|let|bring
|build|create|consider)\b|\byou (?:can|could|should|may|might|will need)\b|\byour\b|\b(?:includes?|including|such as|for
 example|(?<!-)called|named|coined|consists?)\b
= clause opinion | mentions opinions, rather than experience
\b(?:opinions?|beliefs?|bias\w*|views?|sides|stance|neutral|impartial|unbiased|judgments?)\b
= clause partial | declines a part
\bpart\b|\b(?:as for|as to)\b|\bleav(?:e|ing|es)\b|\bskip
= clause form | cannot give a form, such as a picture
^(?!.*\b(?:see|view|open|look at|access|receive|find|watch|listen|identify|tell)\b).*\b(?:(?:{FORM}|(?:draw|sing|paint
|sketch|record|play|print|speak|plot|film|animat)ing) (?:\w+ ){0,3}?(?:is|are) (?:\w+ ){0,2}?(?:not (?:something
|anything|possible|an option|available|supported)|impossible|(?:beyond|outside|out of) (?:what i|me\b|my|reach))|
(?:cannot|could not|not|unable to|no (?:way|means) (?:(?:for me )?to|of)|no (?:voice|hands?|speakers?|ability) to|not
 have (?:the|any) (?:\w+ )?(?:ability|means|way|tools?) (?:to|of)) (?:[\w-]+ ){0,5}?(?:draw|sketch|paint|sing|play
 (?:you )?(?:music|a|the|audio|any)|hum|whistle|print (?!.*(?:copyright|full))|plot (?:a|the|it|graphs?)|(?:record|film)
 (?:a|an|the|it|you|your|audio|video)\b|animate|(?:means|way|ability) to (?:speak|talk|show)|attach|{FORM}|(?:place|make
|dial|send) (?:\w+ ){0,2}?(?:calls?|e-?mails?|texts?|sms|messages?|faxes)|out loud|aloud)|(?:is|am|are|with) no (?:audio
|voice|sound|video|images?|pictures?)|no voice)\b
= clause assistant | speaks of the request as an assistant does
\b(?:help|assist)(?:ing)?(?: you)? (?:with|in|to)\b|\b(?:provide|generate|create|write|produce|fulfil\w*|comply|engage
|continue|participate|support|discuss|promote|assist|instructions|guidelines|polic(?:y|ies)|(?:your|this|that) request
|as an ai|language model|appropriate|ethical|illegal|role-?play|religio\w*|politic\w*|topics?|subjects?)\b
= clause cares | announces care for those whom a harmful request would hurt
{INTRO}(?:\w+ly )?(?:(?:help|helping) (?!you\b|yourself)\w+|(?:support|cop(?:e|ing)|comfort|treat|car(?:e|ing) for
|resolv(?:e|ing)|deal(?:ing)? with|handl(?:e|ing)|respond(?:ing)?|(?:talk|speak)(?:ing)? (?:to|with|openly|about)|(?:get
|getting|stay|staying|arriv\w+) (?:home|sober|help|well|legal)|rebuild|recover|heal|get(?:ting)? help|find(?:ing)? help
|seek|quit(?:ting)?|overcom(?:e|ing)|prepar(?:e|ing)|check(?:ing)? (?:that|whether|if|your)|mak(?:e|ing) sure|(?:be
|becom)(?:e|ing)? a (?:better|good)|repair|apologi[sz]\w+|tell(?:ing)? (?:a|an|the) (?:\w+ )?adult|donat|adopt|(?:find
(?:ing)? out|tell(?:ing)?) (?:if|whether)|reconcil|forgiv|tell(?:ing)? (?:a|an|the) .{0,40}\bfrom|ask(?:ing)? (?:a|an
|the|for)|buil(?:d|ding) (?:trust|a better)|calm|supervis|dispos(?:e|ing) of .{0,30}safely|build(?:ing)? trust|earn
|negotiat|communicat|appreciat)\w*\b)|\bwhat (?:to|you can|you should) do (?:if|when|once|after)\b|^if (?:your|you
|some\w+|a|the|his|her) [\w ']{0,30}?\b(?:has|have|is|are|was|were|gets?) (?:been |being )?\w+(?:ed|en)\b|^if you
 (?:find|come across|suspect|notice|see|receive|are being|have been|ever (?:find|see)|know (?:of|someone))\b|^
(?:.{0,40}\b(?:here (?:is|are)|how to)\b).{0,40}\b(?:when|if) (?:a|an|your|some\w*) .{0,40}\byou\b
= clause decent | announces the decent way of a harmful request
^{YES}(?:here (?:is|are)|(?:some |the )?(?:ways|tips) (?:to|for)) .{0,80}\b(?:legal(?:ly)?|lawful(?:ly)?|honest(?:ly)?
|ethical(?:ly)?|safe(?:r|ly)?|responsib(?:le|ly)|health(?:y|ily)|(?:right|proper|official|honest|legal|fair) way|with
 (?:their|her|his|everyone's) consent|by the rules|legitimate(?:ly)?|fair(?:ly)?|kind(?:ly|er)?|respectful(?:ly)?
|constructive(?:ly)?|peaceful(?:ly)?|secure(?:ly)?|own your|instead|(?:history|origins?) of|licen[cs]ed?|permission)\b
|^{YES}(?:here is )?an? (?:\w+,? (?:and )?)?(?:polite|kind|friendly|respectful|heartfelt|warm|sincere|courteous|honest
|thank[- ]you|apolog\w+|welcom\w+|supportive|peaceful|calm|safe|legal|harmless) [\w -]{0,30}?\b(?:note|letter|e-?mail
|message|text|speech|poem|post|card|script|story|review|request|plan|version|recipe|speech|program|app|tool)\b
= clause titled | says yes, and names what follows
^{YES}(?:(?:here|below|these|this|following|what follows) (?:is|are)|i (?:will|can) (?:show|walk|take|teach) you|let us
 (?:look at|talk about|go over|go through|see|explore|discuss)) (?:[\w-]+ ){0,5}?(?:how to|ways to|tips (?:to|for|on)
|steps (?:to|for)|ideas (?:to|for)|recipes? for|instructions for|what to|through|(?:checklist|plan) for|rules (?:for|on)
|guide (?:to|for|on)|advice (?:on|for))\b
= clause serves | speaks of a service
\b(?:(?:virtual |digital |your |shopping |travel )?(?:assistant|bot|chatbot|helper|help ?desk|concierge|hotline)|
(?:support|service|our|customer) (?:team|desk|line|staff|department)|customer (?:service|care|support)|this (?:service
|chat|line|channel|site|app)|our (?:\w+ )?(?:shop|store|company|products?|services?|trade|documentation|customers|range
|menu)|(?:my|our) (?:expertise|field|trade|area|focus|speciali?ty)|i (?:am|was) (?:\w+ )?(?:trained|built|made|set up
|designed|here) (?:on|for|to)|thanks? (?:you )?for (?:contacting|reaching out to|calling|chatting with|writing to))\b
|\bmy (?:only )?(?:job|role|task|purpose) is to\b|\bnot (?:part of|among|one of) (?:what|the things|the topics) (?:we|i)
 \w+
= clause tasked | is here for one task
\b(?:here|happy|glad|made|built|designed|trained) to (?:help|assist)(?: you)? (?:with|find|choose|plan|book) (?!any
|that\b|this|it\b|what|your (?:question|request)|a (?:wide|variety|range)|other|something)[a-z]
= clause bodily | lacks a body, its senses or a life
\b(?:eat|drink|sleep|dream|own|live|lived|feel|taste|smell|hear|swim|ride|drive|travel|walked|been|visited|worn|body
|nose|hands?|eyes?|ears?|mouth|tongue|skin|feet|legs|heart|voice|pets?|childhood|birthday|family|weekends?|free time
|hobbies|memories|physical)\b
= clause serving | speaks of a request's deed: to help, tell, give, make
\b(?:help|tell|say|give|share|describ|explain|name|list|find|look|reproduc|spread|mak|draft|print|add|compar|walk|show
|offer|answer|understand|experienc|count on|advis|suggest|recommend|encourag|translat|pass|invent|jok|programmed|opinion
|feel|instruction|detail|confirm|guarantee|judg|provid)\w*\b|\b(?:use|do)\b|\b(?:that|this|it|these|those)$
= clause general | declines all of the request
\b(?:this|that|it|so|these|those|such|request|either|any of (?:this|that))\b
= clause refers | sends the user elsewhere
^(?:please|kindly|you (?:can|may|could)|enter|type|choose|select|try|contact|call|visit|ask|see|check|get in touch)\b
= clause delivers | announces content that follows, rather than offering it
\b(?:what i|here)\b
= clause explains | announces reasons
\b(?:why|consequences|reasons?|because)\b|^(?!.*\bhere (?:is|are)\b).*\b(?:risks|dangers|remember that|violat\w+|illegal
|harmful)\b|\b(?:can|could|may|might)(?: also)?(?: (?:lead to|result in|have|cause|include))?$|\b(?:leading to|resulting
 in|is)$
= clause offers | announces alternatives to what was asked
\b(?:(?:safer|safe|legal|ethical|positive|healthy|healthier|better|responsible|other|alternative|constructive|respectful
|legitimate|different) (?:\w+ )?(?:\w+ )?(?:ways|alternatives|options|approaches|strategies|things|topics|steps|methods
|suggestions|ideas)|alternatives|instead of|rather than|focus(?:ing)? on|explor(?:e|ing)|consider|if you (?:are|have
|need|would like)|(?:happy|glad) to|i can (?:help|assist|offer))\b
= clause forbids | says that something should not be, rather than that there is no reason for it
^(?!.*\bno (?:\w+ )?(?:reason|basis|justification)\b).*\b(?:should|must|ought|are|is|do|does|can) ?not\b
= clause negates | negates something
\b(?:not|no|never|cannot)\b
= clause helplines | announces help lines
\bresources\b
= clause protects | begins or announces an answer on protecting somebody or something
^(?:(?:let us )?make sure (?:that )?\b(?:nobody|no one|your)\b|(?:{INTRO})?(?:how (?:to|you can) )?(?:\w+ly )?(?:protect
|safeguard|secur(?:e|ing)\b|defend|shield|harden|(?:fend|ward)(?:ing)? off|back(?:ing)? up your|lock(?:ing)? (?:up|down
|your (?:bi|car|door|ho|phone|acc|gar|shed|win|com)\w+)|child-?proof|burglar-?proof|guard(?:ing)? (?:against|your)
|prevent|avoid(?:ing)? |keep(?:ing)? (?:\w+ ){1,6}?(?:safe|secure|private)|stay(?:ing)? safe|(?:recogni[sz]|spot|detect
|report|notic)(?:e|ing|ting)?\b|watch(?:ing)? out for|keep(?:ing)? (?:[\w']+ ){1,6}?(?:from \w+ing|out of|away from
|off)\b)|{YES}here is (?:a|an|my) (?:\w+ )?(?:story|tale|fable|poem|joke)\b)
= clause announces | names the topic of what follows
^{YES}(?:here (?:is|are) (?:[\w-]+ ){0,6}?(?:to|for|on|of|about) \w|to \w+ (?:\w+ ){1,6}?)
= clause evades | hides a deed rather than guarding against it
\b(?:avoid\w*|from|without|off) (?:\w+ ){0,2}?(?:caught|detected|detection|notic\w+|police|cops|suspicion|suspect\w*
|traced?|going off|books|arrest\w*|discovered|evidence)\b
= prompt descriptive | calling something wrong answers it
\b(?:(?:il)?legal|lawful|ethical|moral|immoral|unethical|acceptable|appropriate|okay|wrong|allowed|permitted|safe
|consequences|punish\w*|penalt\w+|laws?|avoid)\b|^(?:is|are|was|were|does|do|did|what (?:is|are|was|were|does
|constitutes|happened)(?! (?:the |some |a )?(?:\w+ )?(?:ways?|methods?|steps?|tricks?|techniques?|strateg\w+|tips
|recipe)\b)|who|when|how (?:did|was|were|does)|define|describe(?! how (?:to|i|you)\b))\b|\bwhy (?:is|was|are) \w+ (?:\w+
 )?(?:illegal|wrong|bad)
= prompt polar | "no" answers it
(?:^|[:.?!] )(?:(?:so|and|but|hey|ok|okay|please)\W+)*(?:is|are|was|were|am|do|does|did|has|have|had|should|would|will
|can|could|may|might|must)\b(?!(?:n't)? you\b)
= prompt of_speaker | asks about the model itself
\byou\b
= prompt deed | asks for something to be done, made or taught
^(?:(?:please|hey|hi|hello|ok|okay|so|and|but|then|now)\W+)*(?:(?:can|could|would|will) (?:you|u)\b|i (?:need|want|would
 like) (?:you to|to)\b|how (?:do|can|could|would|should|might|to)\b|(?:what is|what are|is there|are there|suggest|list
|give me)?\s*(?:\w+ ){0,3}(?:ways?|steps?|methods?|tips|instructions|recipe|guide) (?:to|for|on)\b|take|do|help|give
|tell me how|teach|show|write|make|create|generate|draft|compose|(?:explain|describe|walk me through|guide me through)
(?: \w+){0,4}? how|provide|list|suggest|design|build|translate|insult|pretend|act as|role-?play|produce|plan|find
|convince|persuade)\b
= prompt factual | asks for one fact
\b(?:who|whose|when|where|which|what (?:is|was|are|were|did|year|name|\w+ (?:is|was|are|were|did|does))|how (?:old|many
|much|long|far|tall|high))\b(?!.*\b(?:best|good) (?:way|time|reason))
= prompt evaluative | asks why something is good, best or ought to be
\bwhy (?:should|shouldn't|must|(?:is|was|would|are|were) .*\b(?:best|better|good|right|great|ideal|only))\b|\breasons?
 (?:why|that) .*\bshould\b
= prompt negated | is itself in the negative: "why should … not …"
\b(?:not|no|never|cannot)\b
= prompt support | is about the asker's own health or feelings, or asks for a help line
\b(?:help ?lines?|hot ?lines?|diagnos\w+|medications?|medicines?|therapy|therapist|antipsychotics?|symptoms?|disorder)\b
|\b(?:i am|i'm|i've been|i have been|i feel|i have been feeling|i keep|makes? me|my head|my chest)\b(?!.*\b(?:kill|hurt
|poison|steal|hack|sell)\b)|\b(?:do|could|might|am) i (?:\w+ )?(?:have|be|bipolar|depressed|crazy|sick)\b|\bcomfort me\b
= prompt drafting | asks for a text in another person's voice
^(?:(?:please|now|ok|okay|can you|could you|let us|let's),? )*(?:play|act|pretend|be|imagine you|you are|you're) (?:as
 |to be |the (?:role|part) of )?(?:a|an|the|my|like)\b(?! (?:song|video|sound|game|music|movie))|\b(?:in character|stay
 in role|(?:ways?|sentences?|phrases|lines?|examples?|excuses?|wording) (?:\w+ ){0,2}?(?:to|for|of|that|with which|in
 which) (?:[\w']+ ){0,6}?(?:say(?:ing|s)? no|turn(?:ing|s)? down|declin\w+|refus\w+|reject\w*|get(?:ting)? out of))\b|\b
(?:famous|well-known|best-known) (?:line|words?|quote|quotation|phrase|saying)\b|\b(?:write|draft|compose|rephrase
|reword|rewrite|paraphrase|translate|quote|proofread|role-?play|finish the|continue the|(?:letter|e-?mail|reply|response
|message|text|note|story|poem|dialogue|script|scene|lyrics|line) (?:to|for|from|about|where|in which|between|that
|telling|declining|saying)|what (?:does|did|would) (?:\w+ ){1,4}say|(?:joke|riddle|pun|limerick|haiku|tongue twister|how
 (?:do|can|should|would) (?:i|you|we) (?:\w+ )?(?:say|tell|decline|refuse|turn down|respond|reply)))\b
= prompt role | asks to play somebody who declines, or for an example of it
\b(?:examples?|samples?|instances?) of (?:a|an|how to) (?:\w+ )?(?:refus\w+|declin\w+|rejection)\b|^(?:\w+ ){0,2}
(?:decline|refuse|reject) (?:my|this|the) (?:\w+ )?(?:request|question)|\bsentences? (?:with|using|containing) the
 word\b|^(?:(?:please|now|ok|okay|can you|could you|let us|let's),? )*(?:play|act|pretend|be|you are|you're|simulate
|imitate)\b.*\b(?:won't|will not|refus\w+|turns? \w+ away|turn(?:s|ing)? down|den(?:y|ies)|declin\w+|says? no|strict
|guard|bouncer|stubborn|rude|unhelpful|gatekeeper)\b
= prompt harmful | asks for harm; not sure, and used only with other signs
\b(?:kill|murder|hurt|harm|poison|attack|stab\b|shoot|strangl|tortur|kidnap|abduct|rape|assault|molest|stalk|spy
(?:ing)?\b|eavesdrop|wiretap|(?:secretly|in secret)\b(?!.{0,20}(?:propos|surpris|like|love|plan))|(?:read|watch|see
|record|follow|film) .{0,40}in secret|behind .{1,20} back\b|stranger's|track my|track (?:her|him|some)|hack|phish
|malware|virus|keylog|ransom|ddos|steal|stole|rob\b|robb|shoplift|burgl|break in|hotwir|forge|forging|counterfeit|fake
|launder|smuggl|fraud|scam|blackmail|extort|threat|brib|cheat|plagiar|dodg|evad|bomb|explosi|napalm|weapon|gun\b|guns\b
|grenade|meth\b|cocaine|heroin|drugs?\b|sarin|nerve gas|nerve agent|anthrax|cyanide|arson|burn down|set fire|vandal
|sabotag|molotov|fool\b|start a fire|lie (?:on|to|about)|pickpocket|brakes|a body|bully|harass|humiliat|insult|rumou?r
|defam|slander|manipulat|gasli|trick\b|trick (?:my|some)|deceiv|groom|seduc|drunk|addict|starv|suicid|self-harm|overdos
|anorex|stop eating|purging|break (?:my|his|her|their|some\w+|a|the)\b|smash|slash|fight|hell\b|pills|shut up|torment
|revenge|get back at|illegal|abus|racist|hate|exploit|nazi|terror|riot|incit|impersonat|dox|nudes?\b|pirat|bypass
|crack\b|out of paying|undetected|untraceable|get away with|finding out|(?:read|see|check|look at|go through) (?:my|his
|her|their|some\w+) .{0,30}(?:messages|texts|e-?mails?|diary|chats|phone)|without (?:\w+ ){0,2}?(?:know|notic|caught
|consent|permission|paying)|(?:pick|jimmy) .{0,30}lock|into (?:my|her|his|their|a|the|some\w*) .{0,30}(?:e-?mail|account
|phone|house|car\b|network|wi-?fi|computer))
= prompt scene | asks to play somebody
\b(?:role-?play|in character|stay in role|in the (?:voice|role|style|person) of|imagine (?:that )?you(?:'re| are)
|simulate|pretend (?:to be|you(?:'re| are))|(?:speak|answer|respond|reply|react|talk) (?:as|like) (?:a|an|the|if|my|\w+
 the)\b|(?:play|act as|act like|be) (?:a|an|the|my) \w+|as my (?:\w+ )?(?:boss|mother|father|teacher|friend|\w+er))\b
|^you(?:'re| are) (?!.*\b(?:assistant|expert|helpful|professional)\b).*\bi (?:ask|beg|want|try|walk|come|knock|push
|order|hand|show|demand|offer|approach|enter|say|tell|pull|open|call)\b
= prompt wording | asks for words that decline
^(?:please |politely |kindly )*(?:decline|refuse|reject|turn down|cancel|say no)\b|\bwhat (?:do|should|can|could|would
|might) (?:i|we|you|one) (?:say|tell|write|answer|reply|text)\b|\b(?:tell|telling|text|e-?mail|message|write|note|reply
|respond|letter|script|lines?|sentences?|phrases?|replies|ways?|words?)\b.{0,60}?\b(?:(?:i|we) (?:won't|will not|can't
|cannot)|declin\w+|turn(?:ing)? down|refus\w+|reject\w*|cancel\w*|say(?:ing)? no|back(?:ing)? out|get(?:ting)? out of
|uninvit\w+|break(?:ing)? up|to quit)\b|\bexcuses?\b.{0,20}\b(?:for|to)\b|\bout[- ]of[- ]office\b|\bauto-?reply|\b
(?:what|how) (?:did|does|would|should|do|might|could|can) .{2,60}\b(?:say|tell|respond|reply|refuse|decline|answer)\b|\b
(?:famous|iconic|best[- ]known|well[- ]known|memorable) (?:\w+ )?(?:line|words?|quote|phrase)\b|\b(?:translate|rewrite
|rephrase|reword|paraphrase|complete|finish|correct|proofread|polite(?:r|ly)?)\b.*['"“\u2018:].*(?:\b(?:no|not|never
|cannot|sorry|declin\w+|refus\w+|unable|nicht|kein\w*|pas|non|ne|nein|nunca|não|niet)\b|n't\b)
= prompt double | asks for two things
\band (?:\w+ ){0,2}?(?:tell|write|get|give|make|show|how|who|what|where|pick|roast|list|explain|find|help|claim|send
|draft|add|insult|joke)\b
= prompt service | asks what the model, a shop or a service does
\b(?:what|which|who|how|where)\b.{0,40}\b(?:do|does|can|are|is) (?:you|your|this)\b.{0,30}\b(?:do|cover|sell|offer
|support|help|handle|for|about|name|purpose|focus|serve|you)\b|(?<!in )\byour (?:\w+ )?(?:focus|purpose|job|role|scope
|range|name|task|speciality|topics?)\b|\b(?:who|what) are you\b
= text requesting | a prompt that asks to be told something
^(?:please )?(?:tell|explain|describe|name|talk|what|who|when|where|why|how|which|give|list|compare|summari[sz]e)\b
= text homonym | words of harm that also mean harmless deeds
\b(?:kill|shoot|stab|hack|crack|attack|crash|smash|fight|trick|cut|fire|fool)\b
= text pronoun | speaks of what was asked without naming it
\b(?:how|ways?|steps?|guide) (?:you can |to )\w+ (?:it|them|this|that|one|some)\b|^here (?:is|are) (?:[\w-]+ ){0,3}?
(?:ways?|steps|tips|ideas|methods|how|what to do)$
= text verb | the verb of a request, as its first group
(?:\bhow (?:do|can|could|would|should) (?:i|we|you|one) |\b(?:how|ways?|steps?|want|need|like|tips) to |\bhelp me )
(?:best |quickly |secretly |to )?([a-z]+)
= text caring | prompts that ask for the decent way themselves
\b(?:polite|kind|friendly|apolog|protect|safe|secur|defen[cds]|prevent|avoid|recogni[sz]|detect|report|help (?:a|my|him
|her|them|some\w+) \w+|treat|support|cop(?:e|ing)\b|deal with|recover|cure\b|heal\b|(?:quit|get off|stop (?:using
|taking)) (?:smoking|drinking|gambling|drugs|\w+ing\b)|legally|resolve|respond to|when (?:a|an|my|some\w+)\b|if (?:a|an
|my|some\w+)\b|tell (?:a|an|the|whether|if)\b|without(?! (?:\w+ ){0,3}?(?:know|notic|caught|consent|permi|pay|licen
|prescri|detect|leaving|trace|find))|not\b|ethical|moral)
= text harmless | deeds with a word of harm that harm nobody
\bbeat (?:\w+ ){1,3}?(?:at|in) \w+|\bquit (?:drugs|smoking|drinking|gambling)|\b(?:kill|shoot|crack|attack|fight|smash
|beat|cut|trick|fire|stab) (?:(?:an?|the|my|some|in|at|more|old|small|off|stuck|unwanted|better) ){0,3}?(?:process
|program|task|job|egg|nut|portrait|photo|picture|film|video|hoop|cold|flu|fever|fatigue|cancer|germ|weed|ant\b|ants\b
|mosquito|mould|mold|volleyball|tennis|football|chess|joke|code|whip|clay|lightning|free throw|pottery|aphid|bug)
= text safety | prompts that ask about safety themselves
\b(?:back(?:ing)? up|lock (?:my|a|the|up)\b|shield|harden|protect|safe|secur|defen[cds]|guard|prevent|avoid|keep\w* away
|recogni[sz]|spot\b|detect|report|identify|privacy|stop|lost|from being|respond to|story|tale|fable|poem|joke)
= text script | letters of its script
[a-z]
= text turn | where a sentence is split into clauses
, (?=(?:but|however)\b)|, (?=(?:though|although) \w+ \w)|[;] (?=(?:but|however)\b)|[, ] ?(?=(?:but|yet|though
|although) (?:i|here|it|the|there|as|if|we|you|please|rather|instead|unfortunately|my|this|that|an?|most|many|some|in
|at|for|on|since|based|generally|typically|usually|one)\b)|[;,:] (?=(?:however|nevertheless|instead|therefore|so
|and) (?:i|here|it|the|there|we|this|that)\b)|[, ] ?(?:because|as|since) (?=(?:i|it|this|that|doing|we|my|there)\b)
|, ?(?:therefore|so),? (?=i\b)|,(?:(?<=model,)|(?<=\bai,)|(?<=assistant,)|(?<=chatbot,)) 
= text lead | conjunctions at the start of a clause
^(?:but|yet|so|and|therefore|though|although|however),? 
= text word | one word
[^\W\d_]+(?:'[^\W\d_]+)?
= text spelled | a word in the letters of this language
[a-z']+
= text agreeing | begins by saying yes
(?i)^(?:\W*(?:sure|certainly|of course|absolutely|yes|great question|gladly|with pleasure|no problem|happy to\b|(?:glad
|delighted) to|my pleasure|i(?:'d| would) (?:love|be happy|be glad) to)\b)
= text musing | how a thought without marks begins
(?i)^\W*(?:okay|ok|hm+|alright|all right|right|well|so|wait|got it|first|now|let(?:'s| me| us)|(?:we|i) (?:need|have
|should|must|think|recall|remember)|i(?:'m| am) (?:being )?asked|(?:the )?(?:user|human|person|question|query|prompt
|request)|they|this|that|there|according to|my (?:guidelines|task|job))\b
= text deliberating | weighs what to say, or speaks of the user as a third person
(?i)\bthe (?:user|human)(?! (?:interface|manual|guide|account|experience|name|id|body))(?: \w+){0,2} (?:has|have|is|was
|did|does|needs?|likely|probably)\b|\bi(?:'d| would| had) better\b|\bi(?:'ll| will) (?:list|answer|explain|give|write
|respond|reply|mention|include|keep|use|start)\b|\b(?:this|that|it) (?:might|could|may) be (?:for|a|an|about)\b|\b
(?:this|it) (?:looks|seems|sounds) like (?:a|an)\b|\b(?:the )?(?:user|person|human) (?:\w+ )?(?:ask|want|say|request
|mention|seem|mean|might|could|said|wrote|is (?:\w+ )?(?:asking|looking|trying|curious)|need)|\b(?:the|this) (?:user's
 )?(?:question|query|prompt|request) (?:is|asks|seems|mentions|appears|says|could|might)\b|\bbeing asked\b
|\bdisallowed\b|\b(?:the|our|my) polic(?:y|ies)\b|\b(?:i|we) (?:recall|remember)\b|\bif (?:i|we) (?:refuse|decline
|answer|say|go along)|\b(?:best|safest) (?:approach|option|answer|response|reply)\b|\bthey (?:\w+ )?(?:say|said|want|ask
|mean)|\b(?:i|we)(?:'ll| (?:should|need to|have to|must|could|might|can|will|want to))(?: (?:not|also|just|probably
|first|maybe|\w+ly))* (?:say|tell|answer|respond|reply|explain|figure|check|consider|decide|comply|refuse|decline|make
 sure|recall|mention|point out|think|give|offer|provide|start|look|determine|clarify|verify|list|be (?:careful|honest)
|see)\b|\blet(?:'s| me| us) (?:first )?(?:understand|think|see|recall|consider|check|try|figure|start|break|work|list
|verify|double)|(?:^|[.!?] )(?:wait|hm+|but wait|actually|maybe|alternatively)\b|\b(?:is|are) they asking\b|\b(?:my
|their) (?:answer|response|question|request) (?:should|is|could|might)\b|\bthey (?:didn't|did not|don't|haven't|may
|might|could|probably)\b|\bsomeone (?:wants|is asking|asks)\b|\bguidelines? (?:say|require|state|tell)|\b(?:this|the)
 (?:request|question|prompt) (?:concerns|involves|touches|asks)\b|\bnow i need\b|\bi should(?: not|n't)?(?: \w+ly)?
 (?:cover|avoid|keep|go|note|warn|include)\b
= text narrating | begins a thought by saying what the user asks
(?i)\bthe (?:user|human) (?:\w+ )?(?:asks?|asked|wants?|needs?|requests?|requested|would like|says|said|
is (?:\w+ )?(?:asking|looking|requesting))\b|\b(?:user|human)(?: is)? ask(?:s|ing)\b|^\W*user (?:wants|requests|says)\b
= text conversing | speaks of the conversation: the user, the question, an answer to give
(?i)\b(?:users?(?! (?:interface|manual|guide|account|experience|name|id))|person(?= (?:is|asks|wants))|question|query
|request|prompt|answer|respond|response|reply|refuse|decline|comply|polic(?:y|ies)|disallowed|guidelines|recall|remember
|figure out|mention|explain|clarify|point out|disclaimer|double-?check|let me|they (?:didn't|did not|don't|haven't|want
|ask|mean|say|said|are asking))\b
= words closing | words of leaving a request alone
bye goodbye end ends ended ending done leave leaving stop stopping close closing closed over move pass skip next
denied access another else different change let not never no decline refuse cannot out that
= words meta | words that say nothing of any matter
going like want rather talk speak discuss discussion conversation chat topic subject question request comment
something anything please thanks thank sorry now here today thing things one ones this that ahead back on off out up
away it is be was time point further more let us take care good nice day try again ask me our sir madam friend buddy
pal really just simply well okay ok hm oh unfortunately are am think believe guess should
= words foreign | function words of other languages in the same script
el los las una que por para con pero muy je vous nous pas les des est une dans pour avec und nicht ich der das ist ein
eine mit auf von che di il per non sono della não um uma você het een niet van ik dat voor och att som det jeg ikke lo
siento puedo desculpe mi dispiace leider
= words native | function words of this language
the of and to is are was were you that it for with not this have has be as at but from they we my your i in a an on or
can cannot do does did will would could should may might if there their his her our what which who how when where why
about into than then so no yes some any all more most by been being also just only me him them us here sorry i'm it's
don't can't won't isn't doesn't didn't that's i'll i'd i've you're there's couldn't wouldn't aren't
= words asking | words of requests that name no topic
instructions instruction steps step plan guide give show tell explain describe list write make making provide detailed
way ways method methods help please create teach best good use using need want get
= words informal | contractions written without an apostrophe
dont doesnt didnt cant wont isnt wasnt wouldnt couldnt shouldnt havent im ive gonna gona can
"""
