"""Parts of English patterns: inability, kinds of help, names of facts, words for wrong."""

ADVERB = r"(?:(?:\w+ly|just|also|therefore|still|in good conscience|under (?:no|any) circumstances),? )*"
CANNOT = (
    r"(?:cannot|could not|will not|would not|should not|shall not|must not|may not|am not going to|unable to|not "
    r"able to|(?:am |are )?(?:not (?:able|allowed|permitted|authori[sz]ed|willing|at liberty|programmed|designed|"
    r"equipped|supposed|prepared|trained|in a position|capable|going)|unable|unwilling|incapable|forbidden|"
    r"prohibited)(?: to| of| from)|not able(?= \w)|refuse to|decline to)"
)
SPEAKER = (
    rf"(?:^i am an? [\w -]{{2,40}} and (?=cannot (?:create|draw|make|generate|produce|play|show|send))|\b(?:i|this "
    rf"assistant|the assistant)(?: am| was| have been| is)?,? {ADVERB}|^(?:(?:but|so|and|no|sorry|"
    rf"unfortunately),? )*{ADVERB})"
)
I_CANNOT = rf"{SPEAKER}(?:{CANNOT}(?: and {CANNOT})?) {ADVERB}"
CANNOT_CUES = (
    "cannot unable unwilling incapable forbidden prohibited refuse decline could_not will_not would_not should_not "
    "shall_not must_not may_not not_able not_allowed not_permitted not_authorised not_authorized not_willing not_at "
    "not_programmed not_designed not_equipped not_supposed not_prepared not_trained not_in not_capable not_going do_not"
)
SERVE = (
    r"(?:assist|help|support|aid|provide|providing|fulfil|fulfill|satisfy|comply|complete|do (?:that|this|so|it|such|"
    r"the|as)|"
    r"accommodate|generate|create|produce|write|compose|draft|engage|participate|discuss|offer|give|share|supply|"
    r"suggest|recommend|advise|condone|endorse|encourage|promote|facilitate|contribute|praise|critici[sz]e|teach|"
    r"guide|instruct|show you|explain how|describe how|go into|entertain|continue|proceed|process|carry out|perform|"
    r"make (?:up|jokes?|fun|light|any|\w+ (?:comments|remarks|statements|jokes))|disclose|reveal|list|talk about|"
    r"take (?:part|sides)|allow|be (?:able|used|part of|involved|a part)|tell you how)"
)
FRESH = r"(?:real[- ]?time|current|up[- ]to[- ]date|live|latest|(?:most )?recent|reliable)"
FACTS = (
    r"(?:information|data|details?|records?|evidence|indication|knowledge|context|updates?|news|statistics|figures|"
    r"sources?|documentation|mention)"
)
SURE = r"(?:sure|certain|aware|confident)"
WRONG = (
    r"(?:illegal|unlawful|unethical|immoral|inappropriate|harmful|dangerous|wrong|unacceptable|offensive|"
    r"disrespectful|discriminatory|racist|sexist|abhorrent|reprehensible|deplorable|heinous|horrific|horrible|"
    r"inhumane|unjust\w*|evil|condemned|against the law|a (?:serious |criminal |federal )?(?:crime|offen[cs]e|"
    r"felony)|(?:assault|murder|rape|theft|fraud|burglary|stalking|harassment|terrorism|abuse|arson|extortion|animal "
    r"cruelty|domestic violence)$|never (?:acceptable|okay|ok|appropriate|right|justified)|not (?:only )?(?:\w+ly "
    r")?(?:appropriate|ethical|legal|acceptable|okay|ok|right|moral|safe|advisable|permissible|respectful|fair|"
    r"(?:\w+ly )?justifi\w+|an? (?:joke|good (?:idea|thing)|laughing matter)))"
)
MINE = r"(?:my|our|openai's|the (?:content|usage|ethical|community)|ethical|moral|legal|all|any|basic|its)"
