"""Prompts to a model's residual stream to an HDF5 store. Knows models, not statistics."""
