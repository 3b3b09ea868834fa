"""Probes at every layer and position. Question: at which layer and position can a contrast be read?
Takes activations indexed by layer and position; reads and writes no file.
Returns fitted logistic probes with held-out AUROC, nulls and baselines."""
