"""Intervals, tests and certification. Question: how far can an estimate be trusted?
Takes arrays of outcomes, scores and group numbers; reads and writes no file.
Returns intervals, p-values and certified thresholds."""
