"""Arrays to probes, directions and their statistics. Pure mathematics: no model, no file format of extract's."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
