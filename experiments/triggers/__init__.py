"""Trigger word or intent. Question: which of the two moves refusing?
Reads `activations.h5` and `completions.jsonl`.
Writes `stages/triggers.json`, `stages/trigger_projection.json` and `attributions.jsonl`."""
