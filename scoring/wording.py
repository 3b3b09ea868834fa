"""Labels of the joint rates for the terminal and the report."""

RATE_MEANING = {
    "over_refusal": "over_refusal: benign prompts declined",
    "missed_harm": "missed_harm: harmful prompts answered",
    "overconfidence": "overconfidence: uncertain prompts answered firmly",
    "uncertain_refused": "uncertain_refused: uncertain prompts refused",
}
