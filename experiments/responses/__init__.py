"""Model responses. Question: how does the model respond to each prompt, plainly and under interventions?
Reads prompts and a model; writes `completions.jsonl` and a cache of responses.
Returns judged completions, onset prefixes of declines, and KL divergences."""
