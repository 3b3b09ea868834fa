"""The stages of a run in order. Question: what is still to do, and what would it cost?
Reads a configuration and `manifest.json`; runs each stage whose inputs changed.
Writes `results.json`."""
