"""Completions that another tool had a model write, and where they are read from: `answers.py` is the way in."""
