"""Labelled prompts. Question: which prompts does a run use, and with which labels?
Reads prompt files (JSONL, JSON, CSV, Parquet) and public data sets by name; writes nothing.
Returns checked `Prompt` values; uses no model."""
