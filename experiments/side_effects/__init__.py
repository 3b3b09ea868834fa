"""Side effects of an intervention. Question: what else does it change, apart from declining?
Measuring reads a model, prompts, prose and wraps; judging reads outcomes and writes nothing.
Returns changes in benign answering, known facts, KL, cross-entropy and robustness, with intervals."""
