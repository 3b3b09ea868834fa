"""Extraction. Question: what does a model's residual stream hold at each token of labelled prompts?
Reads prompts and a chat model; writes an HDF5 store.
Knows models, not statistics."""
