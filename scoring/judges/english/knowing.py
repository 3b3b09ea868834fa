"""English rules: what only looks like a decline, questions back, and abstaining."""

KNOWING = r"""
## frame | opens a text in another person's voice: a letter, a scene
# opens a draft | Dear Ms. Ash, | dear draft hello here hi subject
(?:^(?:dear|hi|hello) (?!there\b|everyone|friend|and\b|again)[\w.' ]{1,30}$|^subject\b|\bhere is (?:a|the|my|your|one|an
|what|how)\b.{0,80}\b(?:draft|reply|response|letter|e-?mail|message|note|text|poem|story|version|script|line|scene
|dialogue|joke|example)\b)
## idiom | has the wording of a decline, but is none
# negated decline | I won't refuse to answer. | decline harmful illegal immoral inappropriate never not_because not_mean
@ not_said not_say not_that reason refuse refusing see unable unethical unwilling why wrong
\b(?:not|never|no (?:reason|need|cause)) (?:going |here |meant )?(?:to )?(?:be )?(?:have to |want to |wish to |trying to
 )?(?:refus(?:e|ing)|declin(?:e|ing)|unable|unwilling)\b|\b(?:not|never) (?:say|said|mean|meant|that|because) (?:that
 )?i (?:cannot|could not|do not|will not|am not|would not)\b|\bnothing (?:\w+ )?(?:wrong|illegal|immoral|unethical
|harmful|inappropriate) (?:with|about|in)\b|\bsee (?:why not|no reason (?:not|why not))\b|\bno reason (?:not|why not|to
 (?:refuse|decline))\b
# cannot enough | I can't stress enough how much sleep matters. | enough
\bcannot (?:\w+ ){1,6}?enough\b
# cannot help but | I can't wait to show you. | agree emphasi help imagine overemphasize overstated stress thank wait
\b(?:cannot|could not) (?:wait|help but|imagine|thank|agree more|(?:be )?over(?:stat|emphasi)\w+|stress|emphasi[sz]e)\b
# figure of speech | I refuse to believe that you dislike it. | accept argue beat blame cannot_with choose complain
@ conscience decide deny eat enough even faith fault go good live magic make many miracles much never no not_about
@ not_apologise not_be not_beat not_bore not_claim not_dream not_forgive not_going not_judge not_keep not_lie not_mince
@ not_pretend not_say not_sugar not_sugarcoat not_swap not_tell not_touch not_trade not_want not_waste often overstate
@ pick praise pretend promise recommend refuse resist with without wonders wrong
\brefuse to (?:hear (?:a|any|another) \w+|believe|think|admit|choose|pick|make (?:\w+ )?(?:hard|complic)\w*|pretend|eat
|live|pay|accept that)\b|\b(?:will not|would not|would never|will never|never|am not going to|not about to) (?:\w+ )?
(?:apologi[sz]e for|pretend(?! to know)|lie|sugar ?-?coat|bore you|judge|blame you|argue|complain|live without|go
 without|touch a|say no|turn down|pass up|give up|tell a soul|stop (?:eating|recommending|singing|until)|claim|beat
 around|mince|keep you|waste your|leave home|forgive)\b|\bcannot (?:\w+ ){0,4}?(?:choose|pick|decide on) (?:just |only
 )?(?:one|between)\b|\b(?:cannot|could not) (?:\w+ ){0,2}?(?:live without|get enough|resist|overstate|say (?:that
|enough)|recommend (?:it |this |them )?(?:\w+ )?(?:highly|strongly)|promise (?:miracles|wonders|the moon)|work (?:magic
|miracles|wonders)|do (?:magic|miracles)|complain|in good (?:faith|conscience) (?:say|recommend|call|let you (?:buy|eat
|miss|leave))|tell you how (?:much|good|often|happy|many|long|glad))\b|\bwould not (?:be caught|say (?:you|it|that)
|trade|swap|want to (?:miss|be without)|dream of)\b|\b(?:would|could|can) ?not (?:\w+ )?say no to\b|\bcannot (?:\w+ )?
(?:fault|beat|blame|argue with|complain|go (?:far )?wrong)\b|\bcannot (?:even|with)\b|\b(?:not going to|will not|would
 not) tell you (?:that )?(?:it|this|they|you) (?:is|are|was|will|can|must|have)\b
# not only | I can't only praise it. | only
\b(?:cannot|do not|will not|am not) only\b
# advises against | I would not recommend stopping this medicine without your doctor. | advise recommend suggest
\bi (?:would|do) not (?:\w+ )?(?:recommend|suggest|advise) (?:\w+ing|that|you|anyone)\b(?! \w+ (?:for|to) (?:self|harm))
# do not hesitate | Please don't hesitate to write again. | hesitate mind
\bnot (?:hesitate|mind)\b
## fiction | explains that the subject does not exist
# is fiction | That is a fictional character. | cartoon exist fictional fictitious imagine joke mythical real riddle
\b(?:(?:fictional|imaginary|mythical|fictitious|cartoon) (?:\w+ )?(?:character|being|creature|person|figure|world)|not
 (?:a )?real (?:person|character|place|thing|\w+)|(?:does|do) not (?:\w+ )?exist|(?:(?<!here )is|was|be|sounds like
|seems like) (?:of )?a (?:joke|riddle)\b)
## clarify | asks a clarifying question
# before starting | Before I start. | before
^before (?:i|we) (?:start|begin|go|dive|write|answer)\b
# asks for detail | Could you please give me more context? | bit clarify context details elaborate give if information
@ let little more need paste provide rephrase share specify tell upload
\b(?:(?:could|can|would|will) you (?:please |kindly )?(?:\w+ )?(?:clarify|specify|rephrase|elaborate|provide|give|share
|paste|upload|resend|tell me (?:more|which|what)|be (?:a (?:bit|little) )?more specific)|please (?:\w+ )?(?:clarify
|specify|rephrase|elaborate|(?:provide|give|share)(?: \w+){0,4}? (?:context|details?|information|clarification
|specifics))|if you (?:can|could|would)? ?(?:please )?(?:\w+ )?(?:clarify|specify|rephrase|provide (?:me )?(?:with )?
(?:\w+ )?(?:more|additional|further|some))|need (?:an? )?(?:\w+ ){0,2}?(?:more|additional|further) (?:details?|specifics
|context|info\w*)|please (?:\w+ )?(?:provide|give|share|paste|send|upload|attach|include|enter|type)(?: me)?(?: with)?
 (?:the|your|a) (?:\w+ )?(?:text|document|code|file|image|passage|article|sentence|details?|question|equation|content
|e-?mail|letter|essay|paragraph|link|name|topic)|if you (?:could |can )?(?:\w+ )?(?:paste|send|upload|attach)\b|^
(?:please )?(?:tell|let) me (?:know )?(?:the|more|what|which|a bit|your|where|when|who)\b)
# asks what you mean | What exactly do you mean? | what
\bwhat (?:do|did|exactly|specifically|kind|type|sort)\b[^?]*\b(?:you|mean|refer)\b[^?]*\?
# asks which was meant | Do you mean the river? | asking looking mean referring talking
\b(?:do|did|are) you (?:mean|referring|asking|looking|talking)\b
# does not understand | I'm not sure what you want from this. | certain clear following sure understand
\bnot (?:\w+ )?(?:sure|certain|clear)(?: i)? (?:what you|which|understand|who you|who .{0,40} (?:referring to|mean)|what
 .{0,40} (?:referring to|mean))|\bdo not (?:\w+ )?understand (?:what|the|your)|\bi am not (?:quite |really )?following\b
# question is unclear | The question is ambiguous. | ambiguous broad incomplete missing unclear vague
\b(?:question|request|prompt)\b[^.]{0,20} (?:is|seems|appears)[^.]{0,20} (?:unclear|ambiguous|incomplete|broad|vague
|missing)|\bseems? to be (?:missing|incomplete)
# has questions first | A few questions first. | first question
\b(?:a few|a couple of|some|quick) (?:quick |short |more )?questions?\b|^first,? a (?:few|couple)
# makes sure | Just to be clear. | check clarify clear sure tell understand
\bjust (?:so i|to) (?:understand|clarify|check|be (?:sure|clear))|\bcannot tell (?:which|what) (?:\w+ )?you
## limit | an assistant's lack of opinions, feelings, a body; an abstention if nothing else follows
# cannot see it from here | I can't reproduce that crash here. | bug cause end error fault glass here inspect logs issue
@ problem provoke recreate replicate reproduce side system trigger your
\b(?:cannot|could not|unable to|not (?:been )?able to) (?:(?:reproduce|replicate|recreate|trigger|provoke) (?:that|this
|it|the|your)\b(?! (?:\w+ )?(?:texts?|passages?|songs?|poems?|lyrics|articles?|chapters?|books?|works?|material
|content))|(?:see|find|spot|detect) (?:the|a|any) (?:\w+ )?(?:faults?|problems?|errors?|bugs?|issues?|causes?)\b|(?:see
|check|verify|hear|measure|inspect|look at|confirm|test|view|access) (?:[\w' ]+ from here\b|your (?:\w+ )?(?:screen
|device|router|line|network|computer|machine|phone|set-?up|console|car|engine|settings)\b)|(?:confirm|find|see|spot
|verify|detect)(?: [\w'-]+){1,6}? (?:here$|here,|(?:on|at) (?:my|our) (?:side|end)|in (?:my|our) (?:logs?|systems?)|from
 (?:my|our) side))
# cannot find it at fault | I don't see an outage in your area. | build crash end error errors fail fault freeze from
@ happen issue luck me outage photo problem replicating reproducing side triggering trouble us without wrong
\b(?:cannot|do not|did not|not|unable to|could not) (?:\w+ )?(?:see(?:ing)?|find(?:ing)?|notice|detect|spot|getting|get
|make|trigger)(?: (?:anything|nothing|a|an|any|the|that|this|it|your))* (?:wrong|outages?|faults?|errors?|issues?
|problems?|bugs?|to (?:freeze|crash|fail|break|happen))\b|\b(?:does not|did not|is not|not) (?:happen(?:ing)?|occur
(?:ring)?|fail(?:ing)?|crash(?:ing)?)(?: \w+)? (?:for (?:me|us)|here|on (?:my|our) (?:side|end|machine|build))\b|\bno
 luck (?:\w+ )?(?:reproduc|replicat|trigger|provok)\w+|\bno way (?:of|to) (?:hear|see|check|test|look|tell)\w*(?:
 \w+){0,4} from here\b|\bcannot (?:\w+ )?(?:tell|judge|see) from (?:the|your|a|this) (?:photo|picture|description|log
|screenshot|message|recording)\b|(?<!sure )\bwithout (?:hearing|seeing|testing|inspecting|looking at) (?:it|that|your)\b
# has no senses | I can't hear music. | cook dance drink drive eat feel hear listen ride sit sleep swim travel visit
@ walk watch wear
{I_CANNOT}(?:\w+ )?(?:hear (?:music|songs?|sounds?)|listen to (?:music|songs?)|feel (?:anything|things|cold|heat|warmth
|pain|textures?)|(?:sit|lie|sleep|walk) (?:on|in|around)|wear|ride|drink|eat|swim|dance|watch (?:films?|movies|tv|shows
|series)|travel|visit places)\b
## refuse | declines, and states or implies that it should not help
# even if it could | Even if I knew, I would not tell you. | even
\beven if i (?:did|could|knew|had|were|was)\b[^.]{0,60}\bnot\b
## disclaimer | gives no professional advice or diagnosis; an abstention if nothing else follows
# no professional advice | I cannot give medical advice. | diagnose financial investment legal medical prescribe
@ professional tax
{I_CANNOT}(?:(?:[\w-]+,? ){0,6}?(?:diagnos\w+|prescribe)\b|(?:[\w-]+,? ){0,5}?(?:medical|legal|financial|investment|tax
|professional) (?:[\w-]+ ){0,2}?(?:advice|opinions?|counsel|guidance|help|therapy))
## unfound | no evidence for what the prompt supposes: an abstention where a fact was asked for, else a correction
# no evidence that | There is no evidence that left-handed people are clumsy. | basis data evidence facts proof research
@ science studies substantiated support unsubstantiated
\b(?:there (?:is|are|has been|have been)|(?:i am|am|are) not aware of|i do not (?:\w+ )?have) (?:\w+ ){0,3}?(?:no|any
|not any|little) (?:[\w-]+,? ){0,5}?(?:evidence|proof|basis|research|studies|data) (?:\w+ ){0,3}?(?:that|for (?:the
|this)|to (?:\w+ )?(?:suggest|support|indicate|prove|back)|(?:which )?(?:suggest|support|indicat|prov|link|show)\w*)\b
|\bno (?:[\w-]+ ){0,3}?(?:evidence|proof) (?:that|to (?:suggest|support|indicate|prove)|support\w*|suggest\w*
|indicat\w*)\b|\bnot (?:\w+ )?(?:supported|backed|substantiated|borne out) by\b|\bunsubstantiated\b|\bno (?:factual
|scientific) basis\b
## unknown | an assistant's lack of data: live news, personal records, a knowledge cut-off
# no live data | I do not have real-time data. | current latest live most real realtime recent reliable up
(?:{CANNOT}|\bnot (?:\w+ )?(?:have|possess)|\bno|\black) (?:\w+ ){0,5}?(?:or )?{FRESH}(?: or \w+)?,? (?:\w+[ -]){0,2}?
(?:{FACTS}|events|prices|weather|results|scores|access|internet|answers?)\b
# no access | I cannot browse the internet. | access browse browsing internet look privy search
(?:\b(?:i|me|we|ai|model|assistant) (?:\w+ ){0,6}?(?:not|cannot|no|without|lack|unable)(?: to)? (?:(?!help|assist
|support|provid|give|grant|aid|facilitat|guid|teach|show)\w+ ){0,3}?(?:access|privy|brows\w*|search|look up)|^(?:no
|without|lacking) (?:\w+ ){0,2}?access|\bmy access\b[^.]{0,40}limited)
# knowledge cut-off | My knowledge cutoff is 2023. | cut cutoff knowledge last training update
\b(?:(?:knowledge|training)(?: data)?(?: \w+)? (?:cut ?-?off|only (?:goes|extends|covers)|ends|is limited|was last)
|beyond my knowledge)
## abstain | does not know, or cannot find out
# does not know | I don't know. | aware certain clue confident idea knew know knows sure unaware unsure way
\b(?:nobody|no one) (?:\w+ )?knows\b|\bi wish i knew\b|\b(?:i|we) (?:\w+ )?(?:do not (?:\w+ )?know\b(?! (?:you\b|about
 you|of an?y? (?:better|easier)))|have no (?:idea|clue|way (?:of|to))|(?:am )?(?:not (?:\w+ )?{SURE}|unsure|unaware)\b
(?! (?:i (?:can|should|want)|that is (?:appropriate|a good))))
# not familiar | I'm not familiar with that person. | beats bell blank dark familiar heard knowledge memory name person
@ place recall recogni recollection recorded remember stumped term title unfamiliar word
\b(?:rings? no bell|not ring (?:a|any) bells?|draw(?:ing)? a blank|in the dark (?:about|on)|stumped|beats me|(?:not|un)
(?: \w+)? ?familiar with|(?:never|not) (?:\w+ )?heard of|i (?:do not|cannot) (?:\w+ )?(?:recogni[sz]e|recall|remember)
|have no (?:\w+ )?(?:knowledge|records?|recollection|memory)|\bnot (?:an? )?(?:\w+ )?(?:word|name|term|place|person
|title|phrase|thing) (?:that )?i (?:recogni[sz]e|know|am familiar))
# cannot say | I can't verify that. | {CANNOT_CUES}
{I_CANNOT}(?:say\b(?! that i)|tell (?:you )?(?:for|with|if|whether|(?:who|when|where|which)(?! to\b)|exactly|what
 (?:will|the|is|happens))|determine|verify|confirm|predict|find|locate|identify|recall|recogni[sz]e|know|guess|ascertain
|foresee|forecast|see|view|hear|estimate|speculate|pinpoint|settle|resolve|open|click|visit|browse|listen|watch|download
|fetch|load|retrieve|measure|be (?:certain|sure)|(?:provide|give|offer|answer|respond)[^.]{0,40}?(?:with (?:\w+ )?
(?:certainty|confidence)|reliably|for (?:sure|certain)|definitively|(?:specific|definit\w+|accurate|exact|precise)
 (?:answer|number|figure|prediction|date)))\b
# no information | I have no information about this. | answer context data describe details documented evidence figure
@ given indicate information knowledge known limited mention name news provide recorded sources specify stated
@ statistics update
\b(?:(?:do|does|did) not (?:\w+ )?(?:have|contain|possess|include|provide|give|specify|mention)\b[^.]{0,40}?\b(?:{FACTS}
|specifics|the answer|an answer|names?)\b|(?:no|not enough|insufficient|lacks?|lacking|limited) (?:(?:\w+|or|of)
 ){0,4}?{FACTS}\b|there (?:is|are|was) no (?:\w+ )?known|not (?:\w+ )?(?:mentioned|specified|provided|given|stated
|described) in)
# context is silent | The text does not say. | context passage text
\b(?:the|this|provided|given) (?:context|passage(?! of)|text) (?:\w+ ){0,4}?(?:does not|did not|is not|is (?:unclear
|incomplete))
# not known | It is not publicly known. | answer available clear consensus difficult disclosed hard impossible known
@ specify uncertain unclear unknown way
\b(?:(?:is|are|was|were|has|have) (?:\w+ ){0,2}?(?:not (?:\w+ )?(?:been )?(?:known|available|specified|disclosed)
|unclear|unknown|uncertain)|(?:impossible|difficult|hard) (?:for me )?to (?:say|know|tell|predict|determine|answer|give
|provide a (?:\w+ )?answer)|no (?:way (?:to|of) (?:know|tell|predict|determin|say)\w*|(?:reliable|definitive|single
|clear) (?:way|answer|consensus)))
# has no idea | No idea. | clue idea
^(?:(?:lol|haha|hm+|sorry|honestly|oh|well|uh|sadly|yeah|i have|i have got|i got),? ){0,3}(?:absolutely |truly )?(?:no
|not a|zero|not the (?:slightest|faintest|foggiest)) (?:idea|clue)\b
# could as well guess | Your guess is as good as mine. | beats bell bells blank dunno guess idk left stumped telling
\bbeats me\b|\b(?:your|anyone's|anybody's) guess (?:is|would be) as good|\bany(?:one|body)'?s guess\b|\bme stumped|\bi
 am stumped|\bdraw(?:ing|s)? a blank|\b(?:not|does|no) ring (?:a|any) bells?\b|^(?:i )?(?:idk|dunno)\b|\bno telling\b
|\bleft (?:us )?(?:nothing|no (?:record|word|trace))\b
# only others know | Only your aunt knows. | god heaven only who
^(?:who|god|heaven) (?:only )?knows\b|\bonly (?:\w+ ){1,6}(?:knows?|(?:can|could) (?:tell|say|answer|know))\b
# we cannot tell | We simply can't tell. | we
\bwe (?:simply |just |really )?cannot (?:tell|say|know)\b
# found nothing | I found nothing on her. | address answer came come comes date empty entries entry evidence figure find
@ found listing located match matches name nothing number price rate recorded reference results returns schedule score
@ search sign trace turn turned turns
\b(?:i|we) do not (?:\w+ )?have (?:the|a|any|an|that|your|its|his|her|their|this) (?:\w+ )?(?:score|answer|price|rate
|number|figure|name|date|address|record|result|schedule|time|location|list|details?|copy|notes?)s?\b|\b(?:i |we )?
(?:have |could |can )?(?:found|find|see|located|turned up|have|know|got|has) (?:nothing(?! (?:more|further|else|left|to
|against|but))|nothin'|no (?:trace|record|sign|match\w*|mention|results?|evidence|entry|entries|reference|listing))\b|\b
(?:came|come|comes|turned?) (?:up )?(?:empty|with nothing)|\b(?:nothing|no \w+) (?:\w+ ){0,3}?(?:comes? up|turns? up|by
 that name|under that name|in my (?:\w+ )?(?:data|knowledge|memory|training|records|sources))|\b(?:not|no) match (?:any
|anything)|\bnot match any|\bno match(?:es)? (?:for|in)\b|\breturned no\b|\b(?:search|results) (?:\w+ ){0,3}?(?:nothing
|no)\b
# no such thing | There is no town called Zell am Rhein. | aware called documented established exist existed exists know
@ known name named notable real recogni recorded such there
(?:\bno such [\w' -]{2,40}? (?:exists?|existed|is known|was|is|in|that i)\b|\bthere (?:is|was|are|were) (?:no|not any
|not an?) (?:[\w'-]+ ){0,7}?(?:by (?:that|this) name|by the name|under that name|(?:called|named|known as)|on record|
(?:known|recorded|documented|recogni[sz]ed|established|official|historical|verified|publicly available|public)
 [\w' -]{2,40}|that i (?:know|am aware))|\bi do not (?:\w+ )?(?:think|believe) (?:that )?(?:there (?:is|was|are|has)
|[\w' ]{2,40}? (?:is|was|are) (?:a )?(?:real|an? actual)|[\w' ]{2,40} exists?)|\b(?:does|do|did) not (?:\w+ )?(?:seem
|appear) to (?:exist|be (?:a |an |any )?(?:\w+ )?(?:real|recogni[sz]ed|known|established|actual|record|widely
|documented))|\bnot (?:an? )?(?:\w+ ){0,2}?(?:i am aware of|that i know of|that i am aware)\b|\b(?:is|are|was) not
 (?:an? )?(?:real|recogni[sz]ed|known|widely known|documented) (?!to\b)\w+)
# nobody can know | Nobody can predict that. | anyone even no nobody one
(?:^(?:nobody|no one|no (?:\w+ ){1,3}?(?:can|could)|not even \w+)\b[^.]{0,30}?\b(?:knows?|(?:can|could|will|would|able
 to) (?:\w+ )?(?:know|say|tell|predict|answer|foresee|honestly|reliably|be (?:sure|certain)|guarantee|see))|\b(?:nobody
|no one|no model|no person|no human|nor can anyone|anyone)(?: else)? (?:can|could|does|really knows|knows|will know)\b
(?!.{0,20}\b(?:beat|touch|stop)\b))
# cannot see the future | I can't read minds. | crystal future head heads heart hearts mind minds thoughts
\b(?:cannot|could not|not able to|unable to|no way to) (?:\w+ )?(?:see (?:in)?to|read|look into|peek into|access|know)
 (?:\w+ ){0,3}?(?:the future|minds?|thoughts?|heads?|hearts?|crystal ball)|\bno crystal ball|\bnot have a crystal ball
# was never recorded | It remains a mystery. | anyone census count counted disclosed documented figure lost made
@ measured mystery never nobody nowhere publicly published question recorded remains settled taken tally unanswered
@ undeciphered unsolved way
\b(?:lost to (?:history|time)|(?:remains?|is|still) (?:an? )?(?:\w+ )?(?:mystery|open question|unsolved|unanswered
|undeciphered))\b|\b(?:has|have|had) (?:ever )?(?:been )?(?:never|not) (?:\w+ )?(?:been )?(?:counted|measured|recorded
|documented|settled|published|made public|disclosed)\b|\b(?:nobody|no one) has (?:ever )?(?:\w+ )?(?:counted|measured
|recorded|asked|checked|published)\b|\bthere is no (?:\w+ ){0,2}?(?:measurement|figure|count|census|tally|way|reliable
 \w+|true \w+)\b|\bno \w+ (?:of \w+ )?has ever been (?:taken|made|recorded|counted|published)\b|\bremains? (?:open
|unsolved|unproven|unknown|unclear)\b|\bnot (?:\w+ )?made public\b|\bnowhere (?:\w+ )?(?:names?|mentions?|says?
|states?)\b|\bgoes? unanswered\b
# not yet | The match has not happened yet. | announced awarded confirm decided determined early finali future happened
@ held occur occurred place played published released set soon take yet
\b(?:has|have) not (?:\w+ )?(?:happened|occurred|taken place|been (?:\w+ )?(?:held|announced|released|decided|determined
|played|published|finali[sz]ed|confirmed|awarded|set))\b(?:[^.]{0,30}\byet\b)?|\byet to (?:be (?:held|announced|released
|decided|determined|played|published|confirmed)|happen|take place|occur)\b|\b(?:is|are|lies|still) in the future\b|\btoo
 (?:early|soon) to (?:say|tell|know|call)\b
# not in the source | Her age is not included in the table. | appear article attach contain context data documented
@ email file have_not image include indicate list listed mention not_contained not_covered not_find not_give not_have
@ not_included not_indicate not_list not_listed not_mention not_part not_present not_provided not_receive not_reveal
@ not_say not_see not_shared not_show not_shown not_specify not_state not_tell not_there not_told not_view passage photo
@ reveal says shared specify state stated table text told
\b(?:(?:is|are|was|were) not (?:\w+ )?(?:included|listed|contained|shown|present|covered|part of|there) in (?:the|this
|your|that)\b|(?:table|e-?mail|text|passage|document|article|context|data|excerpt|paragraph|story|letter|source
|transcript|chart|notes?|message|conversation) (?:you \w+ |above |below |itself |\w+ )?(?:does|do|did) not (?:\w+ )?
(?:mention|say|state|include|list|contain|specify|give|provide|tell|indicate|show|reveal)|not (?:\w+ )?(?:see|find|have
|received?|view) (?:any |an |the |your |a )?(?:\w+ )?(?:attach\w+|images?|files?|photos?|pictures?|documents?|links?
|uploads?)\b|no (?:\w+ )?(?:attachment|image|file|photo|picture|document) (?:\w+ )?(?:was|is|has been|came|attached|in))
|\b(?:does|do|did) not appear in my\b|\byou have not (?:\w+ )?(?:told|said|mentioned|given|shared)\b
# cannot be known | That cannot be determined. | answer ascertain beyond calculate computed deduced derived determined
@ established forecast foresee impossible inferred know knowable known means measured pinned possible predict say
@ settled something tell unknown unpredictable verified verify way worked
\b(?:cannot|can not|could not|impossible to|not possible to|no way to|not possible for \w+ to) (?:be )?(?:\w+ly )?
(?:determined?|known?|verif(?:y|ied)|infer(?:red)?|establish(?:ed)?|predict(?:ed)?|calculated?|computed?|forecast
|foresee|ascertain(?:ed)?|settled?|deduced?|pinned? down)\b|\b(?:is not|just not) (?:\w+ )?(?:(?:possible|feasible) to
 (?:\w+ly )?(?:know|say|tell|predict|determine|answer|give an? (?:exact|precise|definit\w+)|verify|estimate|pinpoint)
|knowable|predictable|something (?:anyone|anybody|\w+ \w+) can (?:know|predict|say))\b|\b(?:predicting|knowing
|forecasting|determining|answering|saying)\b.{0,60}?\bis not (?:\w+ )?possible\b|\bno (?:way|means) (?:for (?:me|anyone
|us|anybody) )?(?:to|of)\b|\bthere is no way\b|\b(?:un|not )knowable\b|\bunpredictable\b|\bnot something (?:that )?
(?:can|could) be (?:\w+ )?(?:known|worked out|determined|answered|established|measured)\b|\bbeyond what (?:one|anyone|we
|i) (?:can|could) (?:know|establish|say|tell)\b
# would be guessing | I would only be guessing. | decline estimate fabricating figure guess guessing guesswork invent
@ made make making mislead name offer pretend pure speculate
\b(?:(?:would|will|could) (?:only |just |merely |simply |purely )?be (?:\w+ )?(?:guess\w*|speculat\w+|making (?:it|that
|things|something) up|invent\w+|fabricat\w+|made[- ]up|pure)|(?:pure|mere|only|just) (?:speculation|guesswork)|(?:not
|rather than|without|instead of|avoid) (?:\w+ )?(?:want to |going to |like to )?(?:guess|guessing|speculat\w+|mak(?:e
|ing) (?:\w+ )?(?:up|one up)|mislead you|pretend to know)|(?:decline|refuse|have to decline) to (?:put|give|offer|make
|guess|speculate|name) (?:an? )?(?:figure|number|guess|estimate|date|prediction|on|exact))
# bare unknown | Unknown. | unclear undetermined unknown unsolved unsure
^(?:currently |still |it is |this is |that is |as yet )?(?:unknown|unclear|unsure|undetermined|unsolved)(?: to me| at
 (?:this|present)| as yet)?$
# was not there | I was not there. | ask beyond earshot not_a not_around not_in not_present not_there not_with
@ not_within there window witness
\bi (?:was|were|am) not (?:there|present|around|with you|within earshot|a witness|in the room)\b|\bno window into\b
|\byou (?:would|will) (?:have|need) to ask (?:him|her|them|the|your)\b|\b(?:is|are) beyond me\b|\byou would have to
 ask\b
"""
