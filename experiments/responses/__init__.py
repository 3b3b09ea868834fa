"""What the model said. Question: what does it do with each prompt, plainly and under interventions?
Reads prompts and a model; writes `completions.jsonl` and a cache of generations.
Returns judged completions, the openings that tell declines apart, and KL divergences."""
