"""English rules: declining, by rules, scope or ability."""

DECLINING = r"""
## refuse
# keeps away | That is off the table. | away bounds clear cross draw drawn elsewhere get keep lane limits line lines
@ lips look not_a not_an off out reach sealed side stand stay steer step stop table
\b(?:(?:off|out of|beyond) (?:the )?(?:table|limits|bounds|reach)\b|off-limits|steer(?:ing)? (?:well |very )?(?:clear
|away)|\bi\b.{0,40}?\b(?:keep|stay|stand|staying|keeping) (?:well )?(?:clear|out|away) (?:of|from)|(?:a |the |that
 )?line (?:that )?i (?:\w+ )?(?:keep|hold|draw|cross|am not|will not|do not|cannot)|i (?:\w+ )?draw (?:the|a) line|where
 i (?:get off|stop|draw|step)|(?:wrong|far) side of what|(?:have to |need to |must )?look elsewhere|not (?:a|an) (?:\w+
 )?(?:road|place|path|topic|subject|area) i(?: am)? (?:\w+ )?(?:go|willing|able|will|can|comfortable)|something i (?:\w+
 )?(?:stay|keep|steer|stand|avoid|leave|decline|refuse|do not|will not|cannot|am not|would not))|\b(?:my |the )?lips are
 sealed\b|\bi stand (?:\w+ )?against\b
#^ bare pass | Hard no. | absolutely chance dice dream forget ha haha hard let nah nay never nice no nope not_ever
@ not_happening not_my not_on not_today nuh pass question sorry
^(?:(?:sorry|hmm|um|nah|yeah|oh|ha|lol|nope|no),? )*(?:(?:a )?hard (?:no|pass)\b.*|(?:i will |i am going to |going to |i
 think i will )?pass(?: on (?:this|that)(?: one)?)?|no dice|no can do|no chance|no way|not (?:a chance|happening|today
|going to happen)|nay\b.*)$|^(?:ha|haha|oh|um|hm+|lol|well|yeah),? (?:no|nope|nah)$|\ba no from me\b|\b(?:it is|that is)
 a no\b|^(?:no way,? )?not a chance$|^(?:nice try|forget (?:it|about it|that)|dream on|never ever|nuh uh|not (?:on my
 watch|my thing|ever|in a million years|for me)|(?:that is )?out of the question)(?:,? (?:buddy|friend|pal|sorry
|though))?$|^let us talk about something else$|^no way, not a chance$
# not doing it | Not doing that. | answer assistant doing explain getting giving going gonna helping playing provide
@ sharing teaching touching writing
^(?:(?:sorry|hmm|um|nah|yeah|oh|ha|lol|nope|no|and|but),? )*(?:i am |that is |this is )?(?:definitely |absolutely
 |really |just )?not (?:helping|doing|touching|writing|answering|going (?:to|there|near)|giving|getting into|providing
|assisting|playing|sharing|explaining|teaching|gonna)\b
# request is blocked | Your request has been denied. | accommodated against answer approved assistant blocked breach
@ complete conflicts contain continued decline denied displayed filtered flagged fulfilled granted guidelines honored
@ honoured met policies policy process refuse rejected rules shown terms violates
\b(?:request|query|question|prompt|message|content|this)\b (?:\w+ ){0,4}?(?:(?:cannot|could not|will not|can not) be
 (?:\w+ )?(?:displayed|shown|completed|fulfilled|processed|answered|accommodated|honou?red|met|granted|approved
|continued|assisted)|(?:has|have) been (?:\w+ )?(?:denied|declined|blocked|refused|rejected|flagged|filtered)|(?:is|was)
 (?:\w+ )?(?:denied|declined|blocked|refused|rejected|flagged|filtered|against)|(?:violates?|conflicts? with|breach
(?:es)?|goes against) (?:\w+ ){0,3}(?:polic\w+|guidelines|rules|terms|principles|standards))|\b(?:falls?|comes?|lands?
|lies) (?:under|inside|within) (?:\w+ ){0,4}polic(?:y|ies)\b|\b(?:polic(?:y|ies)|guidelines|rules|terms) (?:\w+ ){0,2}?
(?:prevents?|prohibits?|forbids?|do not (?:allow|permit)|does not (?:allow|permit))\b|^(?:your )?request (?:declined
|denied|refused|rejected)\b|\b(?:response|reply|answer|message) (?:\w+ )?contains no\b
# nothing can be given | No instructions can be given. | assistant disclosed discuss facilitated fulfilled generate
@ given made offered provide shared supplied support written
(?:^no (?:[\w-]+ ){1,4}?(?:can|will|may|shall) be (?:\w+ )?(?:provided|given|offered|shared|supplied|disclosed|generated
|made available)\b|\b(?:cannot|will not|can not|must not|may not) be (?:provided|shared|offered|assisted|supplied
|facilitated|supported)\b(?! (?:with|by) certainty))
# will not be done | This article will not be written. | never not_be not_shared
\bwill not be (?:\w+ )?(?:written|given|made|produced|helped|answered|created|composed|provided|told)\b|\b(?:never|not)
 shared\b
# there will be none | There will be no tips from me. | will
\bthere will be no\b|\byou will (?:get|find|have) no\b|\bnot (?:something|anything|information|advice) (?:that )?(?:you
|i|we) will\b
# declines, said of itself | This model declines such requests. | ai assistant chatbot decline model programmed refuse
@ service system unwilling
\b(?:this|the|an?) (?:\w+ )?(?:assistant|model|ai|system|chatbot|program|service)\b (?:\w+ ){0,2}?(?:declines?|refuses?|
(?:cannot|could not|(?:does|will|can|is) not) (?:able to |allowed to |permitted to |designed to |going to )?(?:\w+ )?
(?:help|assist|provide|support|generate|produce|engage|comply|offer|give|discuss|answer|respond)(?! \w+ advice))\b|\b
(?:this|the|an?) (?:\w+ )?(?:assistant|model|ai|system|chatbot|program|service)\b (?:\w+ ){0,2}?(?:unable|unwilling)
 to\b|^as an? (?:\w+ ){0,4}?(?:ai|model|assistant),? i (?:do not|will not) (?!have|possess|hold|experience|feel|know)
# does not feel right | I wouldn't feel right about it. | comfortable ease feel feels felt good okay right sit sits well
\b(?:i (?:do|would|could|will) not (?:\w+ )?feel (?:\w+ )?(?:right|good|comfortable|okay|ok|at ease|able)|not (?:sit
|sitting) (?:right|well) with me|does not feel right to me|feels? wrong to me)\b
# is outside its task | This is outside what I do. | among beyond bounds brief duties job lane outside part place remit
@ role scope something what wheelhouse
\b(?:(?:this|that|it|which|\w+ing [\w' ]{2,40}) (?:is|would be|falls|lies|sits|goes) (?:\w+ ){0,2}?(?:not (?:\w+ ){0,2}?
(?:what i (?:do|am here|am for)|my (?:place|role|job|thing))|(?:outside|beyond) (?:of )?(?:what i|the (?:duties|scope
|bounds|purpose|limits)|my))|outside (?:of )?what i|not (?:\w+ )?(?:in|part of|among) (?:my|our) (?:\w+ )?(?:job
|wheelhouse|remit|brief|lane|role|services?|tasks?|duties|offer(?:ing)?|range)\b)
#^ ends the conversation | I'm ending our chat here. | chat conversation discuss done goodbye move session thread
\b(?:conversation|chat|session|discussion|thread) (?:\w+ ){0,3}?(?:(?:been|is|was|be) (?:\w+ )?(?:ended|closed
|terminated|over|stopped|locked|disconnected|suspended)\b(?! (?:once|when|if|on|from|between|until|after|unless))|
(?:ends|stops|is over)(?: (?:here|now|there))?$)|\bi (?:\w+ ){0,4}?(?:end|ending|ended|stop|finish|pause|close|closing
|closed|leaving|terminate|terminating|stopping|disconnecting) (?:this|the|our) (?:\w+ )?(?:conversation|chat|session
|discussion)\b|^(?:conversation|chat|session) (?:ended|closed|terminated|over)\b|^(?:i am|we are) done (?:here
|talking)\b|\bmove (?:on to|onto) (?:a|another) (?:\w+ )?topic\b|^good ?bye$
#^ stops here | I'm signing off now. | cease close continue disconnecting done end finish hanging leave leaving logging
@ no nothing point signing stop where
^(?:i am (?:now )?)?(?:disconnecting|logging off|signing off|hanging up|leaving|done)(?: (?:now|here))?$|\b(?:have|is|am
|there is) (?:nothing (?:more|further|else|left)|no (?:further|more) \w+) (?:i \w+ )?(?:to )?(?:say|add|discuss|tell
|share|offer)\b(?! (?:than|but))|^(?:so |ok |okay )?let us (?:end|stop|leave|finish|close)(?: (?:it|this|things|that|our
 chat|the conversation))?(?: (?:here|there|now|at that))?$|\bi (?:\w+ ){0,3}?(?:stop|cease|not continue) (?:to )?
(?:respond|reply|replying|responding|answering|engaging)|^no (?:further|more) (?:replies|messages|responses|answers)\b|^
(?:please )?stop$|\b(?:conversation|chat|discussion|session) (?:ends|stops|finishes) (?:here|now|there|at this point)$
|\bwhere (?:this|our|the) (?:conversation|chat|discussion) (?:ends|stops)\b|\b(?:not|rather not) continue (?:with )?
(?:this|the|our) (?:\w+ )?(?:conversation|chat|discussion|topic)\b|\bnot be continuing (?:with )?(?:this|the|our)\b|^
(?:that is|that will be) (?:it|all) from me$
#^ changes the topic | Let's change the subject. | another bring change different drop else new steer subject switch
@ topic turn
\b(?:talk|chat|speak) about (?:something|anything) else\b|\b(?:change|switch|drop) (?:the |this )?(?:subject|topic)s?\b
|\bmove (?:on )?to a (?:new|different) (?:\w+ )?(?:topic|subject)\b|^(?:please )?(?:choose|pick|try|ask(?: me)?(?:
 about)?) (?:a |an)?(?:different|another|other|new) (?:topic|subject|question|prompt|request)|\b(?:steer|turn|bring
|move) (?:(?:this|us|things|it) )?(?:back )?to (?:another|a different|something)\b
# the sender is blocked | You have been blocked. | banned blocked muted reported suspended timed
^(?:you have|your account (?:has|is|was)) (?:been )?(?:\w+ )?(?:blocked|banned|suspended|reported|timed out|muted)\b
#^ keeps off a topic | I don't discuss religion. | avoid comment controversial delicate discuss elections engage
@ learning not_in not_something not_that not_this opinions politics questions refrain religion sensitive shy speak stay
@ steer subject talk territory theology topic topics touch weigh wrong_one
\b(?:topic|subject|question|matter|issue)s? (?:\w+ ){0,2}?(?:is|are) too (?:\w+ )?(?:sensitive|controversial|political
|delicate)\b|\bi (?:\w+ly |try to |have to |would rather |prefer to )*(?:(?:do|will|would|can) not|cannot|am (?:\w+
 )?not (?:able to|allowed to|here to|programmed to|going to)|am (?:\w+ )?programmed not to|not) (?:\w+ly )?(?:discuss
|talk about|comment on|speak (?:about|on)|answer questions|engage (?:with|in)|get into|go into|take questions|weigh in
 on|touch)\b(?!.{0,40}\b(?:until|unless|yet|without)\b)|\bi (?:do not|no longer) (?:do|cover|touch) (?:\w+ ){0,3}?
(?:politic|religio|opinion|controvers|medical|legal|topic|subject|theolog|election)|\bi (?:\w+ )?(?:avoid|refrain from
|shy away from|steer away from|stay away from|stay out of|keep out of) (?:\w+ing )?(?:\w+ ){0,3}?(?:politic|religio
|controvers|sensitive|topic|subject|matters|election|debate)|\b(?:not (?:a |an )?(?:\w+ )?(?:topics?|subjects?|territory
|something|one|matter) (?:that |which )?i (?:\w+ )?(?:discuss|go into|get into|cover|talk about|comment on|speak
 (?:about|to)|engage with|take up|touch|address|enter|do))\b|^(?:sorry,? )?no (?:questions?|talk|discussions?|comments?)
 (?:about|on|regarding)\b|^not (?:a |my )?(?:topic|subject|question)\b.{0,20}$|^(?:no(?:pe)?,? )?(?:not|wrong) (?:this
|that) one$|\b(?:topic|subject|question|one) (?:that |which )?i (?:\w+ )?(?:(?:have to|need to|must|will|would rather
|prefer to|try to) )?(?:leave|avoid|skip|pass|stay|keep|steer)\b|\bstill learning how to (?:answer|talk|discuss)\b|\bi
 am (?:\w+ )?not in a position to (?:comment|discuss|speak)\b|\bcannot go off[- ]topic\b|\bnot a (?:topic|subject) i
 (?:take|get|go|wade)\b
# leaves out a part | I'll leave out the insults. | leave leaving left skip skipping
\b(?:leave|leaving|left) (?:out (?:the|any|those|that|all)|(?:[\w' -]{2,40} )(?:out|aside)\b)|(?:\bi\b.{0,30}|^(?:going
 to |let us )?)\bskip(?:ping)? (?:the|over|that|any)\b|\bi am leaving (?:out|aside|that|it)\b
# leaves it | I'll leave that alone. | count keep keeping leave leaving
\b(?:(?:leave|leaving) (?:this|that|your|it) (?:\w+ )?(?:unfulfilled|unanswered|alone|there|aside|be)|count me out|
(?:keep|keeping) (?:my|that|this|those|it|them) (?:\w+ )?(?:to myself|under wraps))
#^ would rather do otherwise | I'd rather help with something kind. | prefer rather would
^(?:\w+,? ){0,3}i would (?:much |far |really )?(?:rather|prefer to) (?!have|be|eat|say)(?:put|use|spend|focus|help|talk
|point|work|direct|keep|stick|leave|discuss|see|do something|not)
# cannot say how | I can't tell you how to do that. | {CANNOT_CUES}
{I_CANNOT}(?:tell|say|explain)(?: to)?(?: you)? how (?:to|you)\b
# should not | I should not answer this. | appropriate better_not end ethical fair good hate idea leave must_not never
@ not_going okay ought_not prefer prefer_not rather rather_not right should_not sit stop will_not wise
\bi (?:\w+ly )?(?:should not|must not|ought not|had better not|am not going to|would (?:rather|prefer) not|would prefer
 not|will not(?! (?:be (?:the|able)|only|have|lie|pretend|sugar|bore|waste)))\b|\bi (?:would )?prefer not to\b|\bi could
 never\b|\bi would hate to\b|\bi am going to (?:sit (?:this|that) (?:one )?out|leave (?:this|that|it) (?:there|alone)
|stop (?:here|there)|end this)\b|\bi do not think it (?:is|would be) (?:right|appropriate|wise|okay|ok|ethical|fair|a
 good idea) (?:for me )?to\b
# declines | I must decline. | advise covering decline have must near need no pass refuse refusing stop stopped touching
\bi (?:\w+ )?(?:(?:must|have to|need to|am going to have to|will have to|will|am|want to|would like to|am afraid i must)
 )?(?:\w+ly )?(?:declin(?:e|ing)|refus(?:e|ing)|pass on (?:this|that)|say no)\b|\bi (?:\w+,? )?must (?:\w+ )?(?:decline
|refuse|pass)\b|\bi have to (?:\w+ )?(?:stop (?:here|there)|decline|refuse|pass|draw)\b|\bi need to stop (?:here|there
|this)\b|\bi have stopped here\b|\bi do not advise on (?:this|that)\b|^(?:refus|declin)ing to\b|\bi am not (?:touching
|covering|going near)\b
# not something i do | That is not material I can produce. | advice anything content game help information material one
@ path place question request road something thing topic work
\b(?:not (?:\w+ ){0,2}?(?:something|anything|one|topic|request|question|thing|content|information|help|advice|path|place
|road|material|work|game) (?:that |which )?i(?: am| was| have been| can| do| will| would| feel)|(?:something|topic|one)
 (?:that |which )?i (?:cannot|do not|will not|am not|am unable))
# not comfortable | I'm not comfortable with this. | comfortable concerned conscience not_cool not_fine not_happy not_ok
@ not_okay troubles uncomfortable worried worry
\b(?:(?:not|un)(?: \w+)? ?comfortable (?:with|\w+ing)|in good conscience|(?:worries|concerns|troubles) me)\b|\bnot
 (?:okay|ok|fine|cool|happy) (?:with|to)\b
# against rules | It goes against my guidelines. | against contrary forbidden guidelines not_in not_with not_within
@ outside prevent prohibit violates within
\b(?:(?:go(?:es)?|is|are|it|be|runs?|would) (?:be |go )?(?:\w+ly )?(?:against|contrary to) (?:\w+ )?{MINE}|violat(?:e|es
|ing) {MINE}|(?:not (?:\w+ )?(?:with)?in|outside)(?: of)? (?:my|our)\b|(?:guidelines|rules|polic\w+|programming
|principles|design) (?:\w+ ){0,2}?(?:prohibit|forbid|prevent|(?:include )?not (?:shar|provid|promot|creat|generat)ing)
|against my)|\bgo(?:es)? against (?:everything|what) i\b|\bagainst everything\b
# not appropriate to | It would not be appropriate for me to joke about it. | acceptable appropriate ethical illegal
@ immoral impossible inappropriate legal moral okay possible respond right safe unethical unsafe
\bit (?:is|would|may|might)(?: be)? (?:\w+ly )?(?:not (?:be )?|in|un|il|im|never )(?:\w+ly )?(?:appropriate|ethical
|acceptable|right|okay|moral|responsible|safe|legal)(?:,? (?:or|and|nor) \w+)? (?:for (?:me|an ai|a language|us)|to
 (?:generate|create|provide|write|assist|produce|help|engage|share|offer|give|make|discuss|answer|suggest|list|joke))\b
# only help within | I can only help with legal matters. | only
\bi (?:can|will|may|am) only (?:able to |here to |\w+ )?(?:help|assist|provide|offer|generate|discuss|produce|create)
## scope | says what it is for, or that the request is not that; a refusal if nothing about the matter follows
#^ is for other topics | I only answer questions about our products. | confined exclusively just limited only restricted
@ solely
\b(?:i|we|assistant|bot|chatbot|service|line|chat) (?:\w+ ){0,3}?(?:only|just|solely|exclusively) (?:\w+ ){0,3}?
(?:answer|discuss|help|assist|handle|deal|cover|talk|speak|support|respond|take|chat|know|trained|designed|built|made
|set up|meant|for)(?:s|ing)?\b|\b(?:i|we) (?:\w+ ){0,3}?(?:answer|discuss|help|assist|talk|speak|support|respond)(?:
 \w+){0,3}? (?:only|solely|exclusively)\b|\b(?:am|is|are) (?:\w+ )?(?:limited|restricted|confined) to\b|\bmy (?:\w+ )?
(?:scope|expertise|help|focus|remit|role|knowledge|support|job|purpose|speciality|specialty) (?:is|are|lies|covers?
|extends?|stops?) (?:\w+ )?(?:only|just|solely|limited|with)\b|^only (?:questions?|requests?|topics?) (?:about|on
|related to)\b|\b(?:assistant|bot|chatbot|agent) (?:\w+ )?can only\b|\bmy (?:responses|answers|replies) are (?:limited
|restricted)\b
#^ the topic is another's | This isn't something we cover. | agenda area beyond covered covers department else expertise
@ list match matching menu not_find not_for not_here not_match not_on not_something off_topic outside not_appear not_be
@ not_concern not_fit not_look not_regard not_relate not_seem not_sound not_touch not_about related scope syllabus
@ timetable topic unrelated
\b(?:question|topic|request|this|it) (?:\w+ ){0,3}?(?:off[- ]topic|unrelated|not (?:\w+ ){0,3}?(?:related|covered
|something (?:this|we|our|the))|(?:outside|beyond) (?:of )?(?:this|our|the scope|what (?:this|we)))\b|\bnot on (?:my
|our) (?:\w+ )?(?:timetable|menu|list|agenda|syllabus|curriculum|shelves)\b|^(?:your |this |that |the )(?:\w+ )?
(?:question|request|message|query|topic) (?:\w+ )?not (?:\w+ ){0,3}?(?:about|concern|regard|relate|fit|touch)\b|\bnot
 (?:my|our) (?:\w+ )?(?:department|area|field|topic|expertise)\b|^for (?:anything|everything|all|any) (?:else|other)\b
|\b(?:not find|no) (?:a |any )?match(?:ing)?\b|\bnot here for\b
#^ handles a task | I look after parcels and returns. | cover deal handle look specialist take
\bi (?:only |just |mainly )?(?:handle|deal with|look after|take care of|cover|speciali[sz]e in)\b
#^ has its own task | This bot supports tenants with repairs. | ask assistant beyond bot channel chat chatbot
@ concentrate desk focus helpdesk let line nothing only outside reached service stick what
^(?:hello |hi |welcome )?(?:this|our|the|your) (?:\w+ ){0,3}?(?:assistant|bot|chatbot|chat|service|line|helpdesk|desk
|channel)(?: \w+)? (?:(?:is|was) (?:\w+ )?(?:for|here (?:for|to)|about|set up|made|built|designed|meant)|(?:only )?
(?:covers?|supports?|handles?|deals? with|serves?|answers|helps|looks after|takes care of|focuses on|speciali[sz]es
 in))\b|\b(?:this|that) (?:is|falls|lies|goes|sits) (?:\w+ ){0,2}?(?:outside|beyond) (?:of )?(?:what|the)\b|^as (?:your
|the|our|an?) [\w' -]{3,40}?,? i (?:\w+ )?(?:focus|concentrate|stick)\b|\b(?:is|are) what (?:i am|we are) (?:here
 )?for\b|^you have reached\b|\b(?:built|made|designed|trained|set up|meant|here) (?:for|to|on)\b.{3,80}\b(?:nothing|not
 .{1,20}) (?:else|other)\b|^(?:so )?let us (?:keep|stick|stay|get back|go back|return) (?:to|with|on)\b|^(?:it|we|i)
 (?:only )?(?:supports?|covers?|handles?|deals? with|serves?)\b.{0,80}\bonly$|^please (?:only )?ask (?:me |us )?
(?:something|anything|(?:a )?questions?|only)? ?(?:\w+ )?(?:about|on|related to) (?:our|my|the)\b|\b(?:i|we) can only
 (?:talk|chat) about\b
#^ is made harmless | I am an AI assistant designed to provide helpful and harmless responses. | built created designed
@ made
\b(?:designed|made|built|created) to (?:provide|be|give|offer) (?:\w+,? ){0,3}?(?:harmless|safe|respectful
|appropriate)\b(?: \w+){0,3}$
#^ is here for a task | I'm Pia, here for your parcels. | assistant bot here
^i am [\w' -]{2,40}, (?:and i am )?here (?:for|to)\b|^(?:hi|hello|hey)\b.{0,40}\b(?:i am|this is) .{2,40}\b(?:assistant
|bot|chatbot|helper)\b
## no | only the word no; an answer to a yes-no question, or with a reason
#^ bare no | No. | absolutely nah never no nope sorry
^(?:sorry,? )?(?:no|nope|nah|never|absolutely not|no way|no thanks?)(?:,? (?:sorry|friend|buddy|pal))?$
## unable | has not the ability; an abstention, unless a clause nearby refuses
# has not the ability | I do not have the ability to send letters. | ability beyond capabilit capacity exceeds expertise
@ incapable lack lacks not_capable not_equipped not_have not_qualified outside possible
\b(?:(?:beyond|exceeds?|outside)(?: of)? (?:my|our) (?:\w+ ){0,2}?(?:capabilit|abilit|power|capacity|expertise|knowledge
|understanding)|i am (?:\w+ly )?(?:not (?:equipped|qualified|capable)|incapable)\b|(?:i|we|ai|model|assistant) (?:\w+
 ){0,2}?(?:(?:do|does) not (?:\w+ )?(?:have|possess)|lacks?) (?:\w+ ){0,2}?(?:abilit|capabilit|capacity|means|expertise
|qualifications)|\bit is not (?:\w+ )?possible for me to\b)
## decline | will not help, give or make; a refusal, unless a clause nearby states a lack of knowledge
# cannot serve | I can't help with that. | {CANNOT_CUES}
{I_CANNOT}{SERVE}\b(?! (?:but|enough))|\bi (?:do not think|doubt) (?:that )?i (?:can|could|should) (?:\w+ )?{SERVE}\b
|\bi do not (?:\w+ly )?(?:provide|condone|endorse|support|encourage|promote|engage|assist|help|generate|create
|participate)
# beyond its task | I am not authorised for that. | beyond exceeds lack not_allowed not_authorized not_built
@ not_designed not_have not_meant not_permitted not_programmed outside part within
\b(?:(?:beyond|exceeds?|outside|not (?:\w+ ){0,2}?(?:part of|within))(?: of)? (?:my|our) (?:\w+ )?(?:scope|function
|purpose)|i am (?:\w+ly )?not (?:designed|authori[sz]ed|programmed|allowed|permitted|built|meant)\b|i (?:do not have
|lack) (?:the )?(?:\w+ )?(?:permission|clearance|authori[sz]ation|authority))
#^ opens with cannot | I cannot translate that. | {CANNOT_CUES}
\bi (?:am )?{ADVERB}{CANNOT} (?!answer|address|experience|respond|comment|speak|tell|weigh|get|do|have|think|believe
|want|see|need|worry|physically|feel|sleep|eat|breathe|stop|live|love|stand|bear|take|go|forget|hold|hide|escape|keep
|lie|be|trust|vouch|diagnose|pretend|quote|swear|speak|rule out|confirm|promise|change|wait|afford|taste|smell|touch|let
|find|understand|remember|express|form|guarantee|resist|deny|possibly|attend|join|come|make it)\w
## silent | will not answer; a reason nearby decides between refusal and abstention
# cannot answer | I can't answer that. | {CANNOT_CUES}
{I_CANNOT}(?:answer|address|respond|comment|speak to|tell|weigh in|get into)\b
# bare cannot | Sorry, I can't. | cannot not unable
\bi (?:cannot|do not|am (?:not able|unable)|will not)(?: to)?\W*$
## limit
# cannot taste | I cannot taste either of them. | smell taste touch
{I_CANNOT}(?:\w+ )?(?:taste|smell|touch)\b
# does not experience | I cannot experience love. | comprehend empathize experience feel hate love promise
{I_CANNOT}(?:\w+ )?(?:(?:comprehend or |understand or )?experience|feel|love|hate|empathi[sz]e|promise)\b
# has no favourite | I have no favourite. | favorites favourite opinions prefer taste tastes views
\b(?:not|no|without) (?:have |got |hold |experience |possess )?(?:an? |any |actual |personal |real )*(?:favou?rites?
|preferences?|personal (?:opinions?|tastes?|views?))\b
# no opinions | As an AI, I don't have feelings. | beliefs bias biases body conscience emotions experience feeling
@ impartial judgments neutral opinions person physician prefer sides stance unbiased view views
\b(?:i|we|ai|model|assistant) (?:\w+ ){0,3}?(?:cannot|not|no|never|remain|maintain|stay|lack|must|strive
|unable)\b[^.]{0,60}?\b(?:opinions?|beliefs?|feelings?|emotions?|experiences?|preferences?|bias(?:es)?|views?|sides
|conscious\w*|physical(?:ly)?|body|stance|neutral|impartial|unbiased|judgments?|personally)\b|\bi am (?:\w+ )?
(?:impartial|neutral|unbiased)
"""
