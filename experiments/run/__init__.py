"""Inputs of a run. Question: which prompts, which settings, which directory?
Reads the configuration, the prompts and the completions; writes `manifest.json` and `completions.jsonl`.
Also holds code that every stage reports with: estimates with intervals, charts, wording."""
