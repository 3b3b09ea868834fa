"""One refusal or two? Question: does ablating one direction stop one way of declining and not the other?
Reads `directions.safetensors` and `completions.jsonl`.
Writes `stages/effects.json` (measured), `stages/dissociate.json` (judged) and `stages/gate_open.json`."""
