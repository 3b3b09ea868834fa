"""Study a chat model's two refusals from a notebook; names (`__init__.pyi`, `docs/api.md`) are imported when used."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
