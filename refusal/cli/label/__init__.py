"""`refusal label`: people label completions in the terminal, without seeing the judge's action.
Reads judged completions and earlier labels.
Writes labels.draw.json and labels.jsonl."""
