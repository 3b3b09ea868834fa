"""The stages of a run in order. Question: which stages still have to run, and what would they cost?
Reads a configuration and `manifest.json`; runs each stage whose inputs changed.
Writes `results.json`."""
