"""Study a chat model's two refusals from a notebook; names (`__init__.pyi`, `docs/api.md`) are imported when used."""

import lazy_loader

from extract.errors import UserError, missing_package

_attribute, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    try:
        return _attribute(name)
    except ModuleNotFoundError as error:
        if (line := missing_package(error)) is None:
            raise
        raise UserError(line) from None
