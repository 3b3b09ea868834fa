"""Context of the request. Question: do the asker, the system line and earlier turns move refusing?
Measuring reads `completions.jsonl` and a model (`removal`); judging reads its outcomes.
Writes no file: its typed results become part of `stages/trigger_measures.json` and `stages/triggers.json`."""
