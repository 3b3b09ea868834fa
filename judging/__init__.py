"""Judges that need torch. Question: what did a completion do, according to a classifier?
Reads completions; loads a model from a directory or the hub.
Returns judgements under the protocol of `scoring.judges`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
