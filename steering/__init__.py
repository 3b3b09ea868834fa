"""Directions to interventions and dials on a running model, at decode time. Judges no text."""
