"""Random streams by name, so that no two uses of one seed draw the same numbers."""

from __future__ import annotations

import hashlib

import numpy as np


def named_rng(seed: int, *name: str | int) -> np.random.Generator:
    """Return the generator of a named use of a seed.

    The name is hashed (SHA-256) into the entropy of NumPy's `SeedSequence`, so that streams of unlike names are
    independent and adding one changes no other.
    """
    digest = hashlib.sha256("/".join(map(str, name)).encode()).digest()
    words = np.frombuffer(digest, dtype=np.uint32)
    return np.random.default_rng(np.random.SeedSequence([seed, *words.tolist()]))
