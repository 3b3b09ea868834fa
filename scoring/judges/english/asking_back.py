"""English patterns of clarifying questions."""

from scoring.judges.table import rule

CLARIFY = (
    rule("before starting", "Before I start.", "before", r"^before (?:i|we) (?:start|begin|go|dive|write|answer)\b"),
    rule(
        "asks for detail",
        "Could you please give me more context?",
        "details information context if tell let clarify specify rephrase elaborate provide give more share need "
        "paste upload little bit",
        r"\b(?:(?:could|can|would|will) you (?:please |kindly )?(?:\w+ )?(?:clarify|specify|rephrase|elaborate|"
        r"provide|give|share|paste|upload|resend|tell me (?:more|which|what)|be (?:a (?:bit|little) )?more specific)|"
        r"please (?:\w+ "
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
