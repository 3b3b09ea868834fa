"""Experiments: one folder for each scientific question, with its measurement, its judgement and its text."""
