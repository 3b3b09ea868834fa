"""Labelling by people. Question: which completions shall people label, and what did they see?
Reads judged completions of a run or a scored file.
Writes the draw (labels.draw.json) and, label by label, labels.jsonl."""
