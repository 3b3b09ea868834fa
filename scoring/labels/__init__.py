"""Labels by people. Question: which completions shall people label, and what are the rates without the judge's errors?
Reads judged completions and labels of them (JSONL, CSV).
Writes the draw (labels.draw.json) and labels.jsonl; returns corrected rates, the annotators' agreement, error bands."""
