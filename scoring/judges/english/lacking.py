"""English patterns of what an assistant lacks: opinions, feelings, senses."""

from scoring.judges.table import rule

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
