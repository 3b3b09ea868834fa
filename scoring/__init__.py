"""Score completions of any model. Question: what did each one do, and what are the joint rates?
Reads completions and labelled prompts from files; loads no model, and neither torch nor transformers.
Writes `scored.jsonl` and `scorecard.json`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
