"""Judges that need torch. Question: what did a completion do, according to a classifier?
Reads completions; loads a model from a directory or the hub.
Returns judgements under the protocol of `scoring.judges`."""
