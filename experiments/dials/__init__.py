"""Two dials with calibrated thresholds. Question: what does each pair of thresholds do to the joint rates?
Reads `probes.parquet`, `directions.safetensors` and `completions.jsonl`.
Writes `dials.safetensors`, `table.jsonl`, `surface.parquet`, `completions_steered.jsonl` and `stages/steer.json`."""
