"""Trigger word and intent. Question: which of the two changes whether the model refuses?
Measuring reads `activations.h5`, `completions.jsonl` and a model, and writes `stages/trigger_measures.json`,
`stages/trigger_projection.json`, `attributions.jsonl` and outcomes.
Judging reads these and writes `stages/triggers.json`."""
