"""Silences progress bars and warnings of other libraries."""

from __future__ import annotations

import logging
import os
import warnings


def quiet_libraries() -> None:
    """Turn off progress bars and warnings of transformers, tokenizers and similar libraries."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    for name in ("transformers", "bitsandbytes"):  # the latter is imported by peft where it is installed
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning)
