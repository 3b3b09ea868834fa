"""Two sets of answers to the same prompts. Question: what changed, and could it be chance?
Reads runs and scored files.
Returns paired changes with intervals, flipped prompts and the verdict of `--fail-if`."""
