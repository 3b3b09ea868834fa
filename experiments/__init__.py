"""Experiments: one folder for each scientific question, with its measurement, its judgement and its text."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
