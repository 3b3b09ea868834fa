"""Read of a dial: a probe at or below the first write layer, with a calibrated probability of the declining class.

A probe's scores on its own training prompts are too good for calibration and for the choice of thresholds. So each
training prompt gets a cross-fitted score, from a probe fitted without its fold (whole groups), and Platt scaling is
fitted on these and on validation scores. No dial has used the `calibration` part, which certifies the thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from sklearn.model_selection import StratifiedGroupKFold

from experiments.probing.read_probes import contrast_of, fit_grid
from experiments.responses.loaded_run import LoadedRun
from probes.contrast import Contrast
from probes.direction import Locus
from probes.grid.logistic import LinearProbe, Platt, fit_platt
from probes.grid.probe_grid import LOGISTIC, choose_locus
from probes.grid.solver import fit_logistic_batch
from probes.statistics.metrics import Discrimination, brier, expected_calibration_error

CHOICE = ("train", "validation")  # the parts that calibrate probabilities and choose thresholds
FOLDS = 5


@dataclass(frozen=True)
class DialRead:
    """A calibrated probability for every prompt of the corpus, with the probe that gave it."""

    name: str
    locus: Locus
    probe: LinearProbe
    platt: Platt
    declining: Bool[np.ndarray, " prompts"]  # the labels it was fitted to
    probability: Float[np.ndarray, " prompts"]  # of declining; training prompts: cross-fitted
    test: Discrimination
    test_ece: float
    test_brier: float


def fit_read(loaded: LoadedRun, name: str, declining: Bool[np.ndarray, " prompts"], first_write: int) -> DialRead:
    """Fit the read of one dial at or below the first write layer, against all other rated prompts.

    Args:
        declining: the prompts it should decline.
        first_write: the layer of the first write of any dial: a read above it would be circular.
    """
    store = loaded.store
    contrast = contrast_of(loaded.corpus, name, declining, loaded.corpus.rated & ~declining)
    layers = [layer for layer in store.layers if layer <= first_write]
    positions = [p for p in store.positions if store.present[store.positions.index(p)].all()]
    grid, loci = fit_grid(loaded, [contrast], layers, positions, f"fitting the {name} dial")
    best = choose_locus(loci)
    X, C = store.read(best.layer, best.position), float(best.scores[LOGISTIC].C[0])
    probe = grid.fit(X, name, C=C)
    score = cross_fitted_scores(X[contrast.rows], contrast, probe, loaded.config.seed, loaded.probe_device)
    chosen, test = np.isin(contrast.part, CHOICE), contrast.within("test")
    platt = fit_platt(score[chosen], contrast.y[chosen])
    calibrated = platt.probability(score)
    probability = platt.probability(probe.decision_function(X))  # of dual-use prompts too, which fit nothing
    probability[contrast.rows] = calibrated
    return DialRead(
        name=name,
        locus=Locus(store.site, best.layer, best.position),
        probe=probe,
        platt=platt,
        declining=declining,
        probability=probability,
        test=best.scores[LOGISTIC].test,
        test_ece=expected_calibration_error(contrast.y[test], calibrated[test]),
        test_brier=brier(contrast.y[test], calibrated[test]),
    )


def cross_fitted_scores(
    X: Float[np.ndarray, "rows d_model"], contrast: Contrast, probe: LinearProbe, seed: int, device: str
) -> Float[np.ndarray, " rows"]:
    """Score every prompt; training prompts get cross-fitted scores, by probes of the same C fitted without their fold.

    Args:
        X: activations of the contrast's rows.

    Returns:
        Log-odds before calibration.
    """
    score, train = probe.decision_function(X), contrast.within("train")
    y, groups = contrast.y[train], contrast.groups[train]
    n_folds = min(FOLDS, *(len(np.unique(groups[side])) for side in (y, ~y)))
    splits = list(StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed).split(train, y, groups))
    fitted = np.zeros((n_folds, len(contrast.rows)), dtype=bool)
    for inside, (rows, _) in zip(fitted, splits, strict=True):
        inside[train[rows]] = True
    labels = np.tile(contrast.y, (n_folds, 1))
    folds = fit_logistic_batch(X, fitted, labels, [probe.C], device=device).scores[:, 0]
    for own, (_, left_out) in zip(folds, splits, strict=True):
        score[train[left_out]] = own[train[left_out]]
    return score
