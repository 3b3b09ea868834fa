"""Checks of a prompt file. Question: is it whole and balanced, and what could a probe cheat with?
Reads a prompt file or a public set; writes nothing.
Returns counts, faults and word cues."""
