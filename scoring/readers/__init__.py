"""Readers of completions that another tool wrote. Question: what did which model say to which prompt?
Reads rows (JSONL, JSON, CSV, Parquet), Inspect's logs and lm-eval's samples; `answers.read_answers` opens any of them.
Returns rows under our field names; judges nothing and writes nothing."""
