"""Side effects of an intervention. Question: what else does it change, apart from declining?
Reads a model, prompts, prose and wraps; writes nothing.
Returns changes in benign answering, known facts, KL, cross-entropy and robustness, with intervals."""
