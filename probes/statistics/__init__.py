"""Intervals, tests and certification. Question: how certain is an estimate?
Takes arrays of outcomes, scores and group numbers; reads and writes no file.
Returns intervals, p-values and certified thresholds."""
