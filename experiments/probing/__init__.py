"""Read probes and write directions. Question: where are the two refusals read, and where written?
Reads `activations.h5` and `completions.jsonl`.
Writes `probes.parquet`, `directions.safetensors`, `stages/probe.json` and `stages/geometry.json`."""
