"""Simulations without a model: how often nulls reject, and how often verdicts are reached.
Reads nothing.
Prints tables for the documentation."""
