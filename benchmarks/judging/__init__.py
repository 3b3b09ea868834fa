"""Completions that people labelled, the weights that are fitted on them, and how far the judge agrees with people.

Question: how often does the default judge decide like a person, on models and kinds of prompts it has not seen?
Reads the labelled sets in shared/data and `benchmarks/completions`; `fit` writes the weights of the English table.
"""
