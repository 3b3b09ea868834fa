"""Directions to interventions and dials on a running model, at decode time. Judges no text."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
