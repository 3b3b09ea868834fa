"""A run from the outside. Question: what can be run here, with which settings, and how far is a run?
Reads configurations, model directories, the hub's cache and run directories; writes a configuration (`init`).
Imports no torch, so that each answer is instant."""
