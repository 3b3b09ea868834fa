"""Read probes and write directions. Question: at which loci are the two refusals read, and at which written?
Reads `activations.h5` and `completions.jsonl`.
Writes `probes.parquet`, `directions.safetensors`, `stages/probe.json` and `stages/geometry.json`."""
