"""Does a model that hardly abstains do so when a system line permits it, and is that a mechanism of its own?

Reads plain completions and write directions; writes elicited/ (answers and activations under the line),
stages/elicit.json and elicited.json, and outcomes under the conditions `line` and `control`."""
