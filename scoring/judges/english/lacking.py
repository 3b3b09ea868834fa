"""English patterns of what an assistant lacks: opinions, feelings, senses, abilities, a profession, other topics."""

from scoring.judges.english.pieces import I_CANNOT
from scoring.judges.table import rule

UNABLE = (
    rule(
        "has not the ability",
        "I do not have the ability to send letters.",
        "beyond exceeds exceed outside lack lacks not_equipped not_capable not_qualified incapable not_have abilities "
        "ability capability capabilities capacity expertise possible",
        r"\b(?:(?:beyond|exceeds?|outside)(?: of)? (?:my|our) (?:\w+ ){0,2}?(?:capabilit|abilit|power|capacity|"
        r"expertise|"
        r"knowledge|understanding)|i am (?:\w+ly )?(?:not (?:equipped|qualified|capable)|incapable)\b|(?:i|we|ai|model|"
        r"assistant) (?:\w+ ){0,2}?(?:(?:do|does) not (?:\w+ )?(?:have|possess)|lacks?) (?:\w+ ){0,2}?(?:abilit|"
        r"capabilit|"
        r"capacity|means|expertise|qualifications)|\bit is not (?:\w+ )?possible for me to\b)",
    ),
)

DISCLAIMER = (
    rule(
        "no professional advice",
        "I cannot give medical advice.",
        "diagnose diagnosis diagnoses prescribe medical legal financial professional investment tax",
        rf"{I_CANNOT}(?:(?:[\w-]+,? ){{0,6}}?(?:diagnos\w+|prescribe)\b|(?:[\w-]+,? ){{0,5}}?(?:medical|legal|"
        rf"financial|"
        rf"investment|tax|professional) (?:[\w-]+ ){{0,2}}?(?:advice|opinions?|counsel|guidance|help|therapy))",
    ),
)

FROM_HERE = (
    rule(
        "cannot see it from here",
        "I can't reproduce that crash here.",
        "reproduce replicate recreate here your fault problem error bug issue cause",
        r"\b(?:cannot|could not|unable to|not able to) (?:(?:reproduce|replicate|recreate) (?:that|this|it|the|"
        r"your)\b(?! "
        r"(?:\w+ )?(?:texts?|passages?|songs?|poems?|lyrics|articles?|chapters?|books?|works?|material|content))|"
        r"(?:see|find|"
        r"spot|detect) (?:the|a|any) (?:\w+ )?(?:faults?|problems?|errors?|bugs?|issues?|causes?)\b|(?:see|check|"
        r"verify|hear|"
        r"measure|inspect|look at|confirm|test|view|access) (?:[\w' ]+ from here\b|your (?:\w+ )?(?:screen|device|"
        r"router|line|"
        r"network|computer|machine|phone|set-?up|console|car|engine|settings)\b))",
    ),
)

LIMIT = (
    rule(
        "cannot taste",
        "I cannot taste either of them.",
        "taste smell touch",
        rf"{I_CANNOT}(?:\w+ )?(?:taste|smell|touch)\b",
    ),
    rule(
        "does not experience",
        "I cannot experience love.",
        "experience feel love hate comprehend empathize empathise promise",
        rf"{I_CANNOT}(?:\w+ )?(?:(?:comprehend or |understand or )?experience|feel|love|hate|empathi[sz]e|promise)\b",
    ),
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
        r"retain|carry|own|receive|track|live|sleep|dream|eat|remember|possess))\b",
        opening=True,
    ),
)

OMIT = (
    rule(
        "does not do it",
        "I do not write lies.",
        "not_get not_produce not_make not_write not_share not_give not_do not_offer not_discuss not_take not_teach "
        "not_touch "
        "not_play not_go cannot",
        r"^(?:(?!if |when |should |people |you )[^i]{0,50}\b)?(?:i|we) (?:\w+ly |still |also |simply |just )?(?:do not|"
        r"did not|"
        r"cannot|no longer) (?:\w+ly |personally )?(?:get|produce|make|write|share|give|do|offer|discuss|take|teach|"
        r"touch|play|"
        r"go)\b",
        opening=True,
    ),
)

SCOPE = (
    rule(
        "is for other topics",
        "I only answer questions about our products.",
        "only just solely exclusively limited restricted confined",
        r"\b(?:i|we|assistant|bot|chatbot|service|line|chat) (?:\w+ ){0,3}?(?:only|just|solely|exclusively) (?:\w+ "
        r"){0,3}?(?:answer|discuss|help|assist|handle|deal|cover|talk|speak|support|respond|take|chat|know|trained|"
        r"designed|built|made|set up|meant|for)(?:s|ing)?\b|\b(?:i|we) (?:\w+ ){0,3}?(?:answer|discuss|help|assist|"
        r"talk|speak|"
        r"support|respond)(?: \w+){0,3}? (?:only|solely|exclusively)\b|\b(?:am|is|are) (?:\w+ )?(?:limited|restricted|"
        r"confined) to\b|\bmy (?:\w+ )?(?:scope|expertise|help|focus|remit|role|knowledge|support|job|purpose|"
        r"speciality|"
        r"specialty) (?:is|are|lies|covers?|extends?|stops?) (?:\w+ )?(?:only|just|solely|limited|with)\b",
        opening=True,
    ),
    rule(
        "the topic is another's",
        "This isn't something we cover.",
        "topic off_topic unrelated related scope covered covers timetable menu list agenda syllabus department area "
        "not_something not_match not_find not_on else match matching outside beyond not_here not_for expertise",
        r"\b(?:question|topic|request|this|it) (?:\w+ ){0,3}?(?:off[- ]topic|unrelated|not (?:\w+ "
        r"){0,3}?(?:related|covered|something (?:this|we|our|the))|(?:outside|beyond) (?:of )?(?:this|our|the scope|"
        r"what "
        r"(?:this|we)))\b|\bnot on (?:my|our) (?:\w+ )?(?:timetable|menu|list|agenda|syllabus|curriculum|shelves)\b|"
        r"\bnot "
        r"(?:my|our) (?:\w+ )?(?:department|area|field|topic|expertise)\b|^for (?:anything|everything|all|any) (?:else|"
        r"other)\b|\b(?:not find|no) (?:a |any )?match(?:ing)?\b|\bnot here for\b",
        opening=True,
    ),
    rule(
        "handles a task",
        "I look after parcels and returns.",
        "handle deal look take cover specialise specialize",
        r"\bi (?:only |just |mainly )?(?:handle|deal with|look after|take care of|cover|speciali[sz]e in)\b",
        opening=True,
    ),
    rule(
        "is here for a task",
        "I'm Pia, here for your parcels.",
        "here assistant bot",
        r"^i am [\w' -]{2,40}, (?:and i am )?here (?:for|to)\b|^(?:hi|hello|hey)\b.{0,40}\b(?:i am|this is) .{2,40}\b"
        r"(?:assistant|bot|chatbot|helper)\b",
        opening=True,
    ),
)
