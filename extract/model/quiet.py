"""Silences other libraries' progress bars and advice."""

from __future__ import annotations

import logging
import os
import warnings


def quiet_libraries() -> None:
    """Keep other libraries' progress bars and advice out of ours."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning)
