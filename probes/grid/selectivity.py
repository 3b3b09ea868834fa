"""Control tasks, which measure the selectivity of a probe (Hewitt & Liang 2019, arXiv 1909.03368)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Shaped

from probes.grid.solver import fit_logistic_batch
from probes.statistics.metrics import auroc
from probes.statistics.seeds import named_rng

MIN_TYPES = 4


def control_auroc(
    X_train: Float[np.ndarray, "train features"],
    types_train: Shaped[np.ndarray, " train"],
    X_test: Float[np.ndarray, "test features"],
    types_test: Shaped[np.ndarray, " test"],
    *,
    C: float,
    n: int = 20,
    seed: int = 0,
) -> float:
    """Return the mean held-out AUROC of logistic probes on n control tasks; NaN if there are too few types.

    A control task gives each *type* (for example a category of prompts) one random label, half of the types each label.
    Types occur on both sides of the split, so a probe that separates types does well on it. The AUROC of the real task
    minus this one is the probe's selectivity, which is small if the probe may only read types. Samples of types that
    are not on both sides are left out; at least four types must remain.

    Args:
        types_train, types_test: names of types.
        C: inverse penalty of the probes.
    """
    shared = np.intersect1d(types_train, types_test)
    if len(shared) < MIN_TYPES:
        return float("nan")
    inside = [np.isin(types, shared) for types in (types_train, types_test)]
    X = np.concatenate([X_train[inside[0]], X_test[inside[1]]])
    types = np.concatenate([types_train[inside[0]], types_test[inside[1]]])
    n_train = int(inside[0].sum())
    rng = named_rng(seed, "control tasks")
    drawn = [rng.permutation(shared)[: len(shared) // 2] for _ in range(n)]
    y = np.stack([np.isin(types, positive) for positive in drawn])
    train = np.zeros_like(y)
    train[:, :n_train] = True
    scores = fit_logistic_batch(X, train, y, [C], tol=1e-3).scores[:, 0, n_train:]
    return float(np.mean([auroc(labels[n_train:], s) for s, labels in zip(scores, y, strict=True)]))
