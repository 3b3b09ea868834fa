"""Named random streams, so that different uses of one seed draw different numbers."""

from __future__ import annotations

import hashlib

import numpy as np


def named_rng(seed: int, *name: str | int) -> np.random.Generator:
    """Return the random generator for a seed and a name; streams of different names are independent.

    The name is hashed (SHA-256) into the entropy of NumPy's `SeedSequence`, so a new stream does not change the others.
    """
    digest = hashlib.sha256("/".join(map(str, name)).encode()).digest()
    words = np.frombuffer(digest, dtype=np.uint32)
    return np.random.default_rng(np.random.SeedSequence([seed, *words.tolist()]))
