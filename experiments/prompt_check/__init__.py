"""Checks of a prompt file. Question: is it complete and balanced, and which surface cues could a probe exploit?
Reads a prompt file or a public set; writes nothing.
Returns counts, problems and word cues."""
