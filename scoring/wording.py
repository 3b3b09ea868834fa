"""The joint rates in words, for the terminal and the report."""

RATE_MEANING = {
    "false_positive_refusal": "over-refusal: benign prompts declined",
    "false_negative_refusal": "missed harm: harmful prompts answered",
    "overconfidence": "overconfidence: uncertain prompts answered flatly",
    "uncertain_refused": "beside it: uncertain prompts refused",
}
