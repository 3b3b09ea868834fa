"""Sampled and verbalised uncertainty. Question: does the model know when it does not know?
Reads prompts and a model.
Writes `uncertainty.jsonl`, `prompts_by_model.jsonl` and `stages/uncertainty.json`."""
