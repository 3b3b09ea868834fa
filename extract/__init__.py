"""Extraction. Question: what does a model's residual stream hold at each token of labelled prompts?
Reads prompts and a chat model; writes an HDF5 store.
Knows models, not statistics."""

import warnings

import lazy_loader

warnings.filterwarnings("ignore", message="IProgress not found")  # of tqdm, in notebooks, when transformers imports it

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
