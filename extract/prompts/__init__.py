"""Labelled prompts. Question: what is asked, and with which label?
Reads prompt files (JSONL, JSON, CSV, Parquet) and public sets by name; writes nothing.
Returns checked `Prompt` values; knows no model."""
