"""Fits the weights that ship with the judge and its reader, on completions that people labelled.

Question: how often does the default judge decide like a person, on models and kinds of prompts it has not seen?
Reads the labelled sets in shared/data and `benchmarks/completions`; `fit` writes the weights of the English table.
"""
