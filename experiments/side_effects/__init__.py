"""Side effects of an intervention. Question: what does it change besides declining?
Reads a model, prompts, prose and wraps; writes nothing.
Returns changes in benign answering, known facts, KL, cross-entropy and robustness, with intervals."""
