"""Score completions of any model. Question: what did each one do, and what are the joint rates?
Reads completions and labelled prompts from files; loads no model, and neither torch nor transformers.
Writes `scored.jsonl` and `scorecard.json`."""
