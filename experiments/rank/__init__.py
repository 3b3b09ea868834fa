"""How many directions does a way of declining need? Fit, ablate, refit on what still declines, count on test prompts.

Reads directions.safetensors, activations.h5 and the completions; writes stages/rank.json, rank_directions.safetensors.
"""
