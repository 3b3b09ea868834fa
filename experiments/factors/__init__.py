"""What surrounds the request. Question: do the asker, the system line and earlier turns move refusing?
Reads `completions.jsonl` and a model; writes nothing.
Returns records for `stages/triggers.json`."""
