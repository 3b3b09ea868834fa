"""Study a chat model's two refusals from a notebook: `import refusal`, and the `refusal` command in `refusal.cli`.

Names are imported when they are first used: `import refusal` takes milliseconds, and torch loads with the first model.
`__init__.pyi` lists them; `docs/api.md` explains them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
