"""Context of the request. Question: do the asker, the system line and earlier turns move refusing?
Measuring reads `completions.jsonl` and a model (`removal`, `last_turn`); judging reads `completions.jsonl` and that.
Writes nothing: its typed results become part of `stages/trigger_measures.json` and `stages/triggers.json`."""
