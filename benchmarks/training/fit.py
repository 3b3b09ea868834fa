"""Fit the weights of the default judge on labelled completions: `python -m benchmarks.training.fit` writes them.

A multinomial logistic model with a quadratic penalty. A label that allows several outcomes contributes the sum of their
probabilities (the marginal likelihood), so no label is forced onto an outcome that it does not state.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, diags, issparse
from scipy.special import softmax

from benchmarks.training.labelled import Labelled, all_labelled
from scoring.judges.english import ENGLISH
from scoring.judges.rules import RuleJudge
from scoring.judges.weights import OUTCOMES

PENALTY = 1.0
LEAST_ROWS = 8  # that have a feature
SMALLEST = 0.03  # weights below it in every outcome are left out of the file


@dataclass(frozen=True)
class Read:
    """A labelled completion and what the judge finds in it; nothing where no clause decides."""

    row: Labelled
    features: Mapping[str, float]


def read(rows: Sequence[Labelled]) -> list[Read]:
    """Read completions with the English table."""
    judge = RuleJudge()
    return [Read(row, judge.read(row.completion, row.prompt).features) for row in rows]


def common_features(rows: Sequence[Read]) -> list[str]:
    """Return the features that enough of the rows have, sorted."""
    counts = Counter(name for one in rows if one.row.outcomes for name in one.features)
    return sorted(name for name, count in counts.items() if count >= LEAST_ROWS)


def fit(rows: Sequence[Read], names: Sequence[str]) -> Float[np.ndarray, "feature outcome"]:
    """Return the weights, fitted on the rows whose label allows an outcome."""
    used = [one for one in rows if one.row.outcomes and one.features]
    allowed = np.array([[o in one.row.outcomes for o in OUTCOMES] for one in used])
    return fit_allowed(matrix(used, names), allowed, [one.row.weight for one in used])


def fit_allowed(
    X: csr_matrix | Float[np.ndarray, "row feature"],
    allowed: Bool[np.ndarray, "row outcome"],
    weights: Sequence[float],
) -> Float[np.ndarray, "feature outcome"]:
    """Return the weights of a multinomial logistic model of labels that each allow some outcomes."""
    shape, weight = (X.shape[1], allowed.shape[1]), np.asarray(weights)
    X_T = (diags(weight) @ X).T
    X_T = X_T.tocsr() if issparse(X) else np.ascontiguousarray(X_T)

    def loss(flat: Float[np.ndarray, " parameter"]) -> tuple[float, Float[np.ndarray, " parameter"]]:
        W = flat.reshape(shape)
        p = softmax(X @ W, axis=1)
        right = np.maximum((p * allowed).sum(axis=1), 1e-12)
        gradient = X_T @ (p - p * allowed / right[:, None]) + PENALTY * W
        return float(-(weight * np.log(right)).sum() + PENALTY / 2 * (W**2).sum()), np.asarray(gradient).ravel()

    found = minimize(loss, np.zeros(shape[0] * shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return np.asarray(found.x.reshape(shape))


def matrix(rows: Sequence[Read], names: Sequence[str]) -> csr_matrix:
    """Return the features as a sparse matrix, (n_rows, n_features)."""
    place = {name: i for i, name in enumerate(names)}
    cells = [
        (i, place[name], value) for i, one in enumerate(rows) for name, value in one.features.items() if name in place
    ]
    at, column, value = zip(*cells, strict=True) if cells else ((), (), ())
    return csr_matrix((value, (at, column)), shape=(len(rows), len(names)))


def as_table(names: Sequence[str], W: Float[np.ndarray, "feature outcome"]) -> dict[str, tuple[float, ...]]:
    """Return rounded weights by feature, without those that are almost zero."""
    return {
        name: tuple(round(float(w), 2) for w in row)
        for name, row in zip(names, W, strict=True)
        if np.abs(row).max() >= SMALLEST
    }


def write() -> None:
    """Fit on every set that permits it, and write the weights file of the English table."""
    rows = read(all_labelled())
    names = common_features(rows)
    table = as_table(names, fit(rows, names))
    sets = Counter(one.row.dataset for one in rows if one.row.outcomes and one.features)
    lines = [f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in table.items()]
    head = json.dumps({"outcomes": OUTCOMES, "fitted_on": dict(sets)}, indent=1)[:-2]
    if ENGLISH.weights is None:
        raise SystemExit("the English table names no file for weights")
    ENGLISH.weights.write_text(f'{head},\n "features": {{\n' + ",\n".join(lines) + "\n }\n}\n", encoding="utf-8")
    print(
        f"{len(table)} features, {ENGLISH.weights.stat().st_size / 1024:.0f} KiB, fitted on {sum(sets.values())} rows"
    )


if __name__ == "__main__":
    write()
