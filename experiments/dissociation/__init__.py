"""One refusal or two? Question: does ablating one direction stop one way of declining and not the other?
Reads `directions.safetensors` and `completions.jsonl`.
Writes `outcomes.parquet/effects.parquet`, stages/effects.json (measured), dissociate.json, gate_open.json (judged)."""
