"""Trigger word or intent. Question: which of the two moves refusing?
Measuring reads `activations.h5`, `completions.jsonl` and a model, and writes `stages/trigger_measures.json`,
`stages/trigger_projection.json` and `attributions.jsonl`; judging reads these and writes `stages/triggers.json`."""
