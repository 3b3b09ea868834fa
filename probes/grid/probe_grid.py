"""Probe grid: fits and tests probes of several contrasts at every layer and position, in one pass over the data."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer, Shaped
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import StratifiedGroupKFold

from probes.contrast import Contrast
from probes.grid.logistic import CS, LinearProbe, simplest_of_the_best
from probes.grid.solver import fit_logistic_batch
from probes.means import mean_weights
from probes.statistics.metrics import Discrimination, auroc, aurocs, average, d_prime, discrimination

LocusActivations = Shaped[np.ndarray, "..."] | Shaped[torch.Tensor, "..."]  # activations of one locus


@runtime_checkable
class ActivationSource(Protocol):
    """Anything indexed by layer and position: a NumPy or HDF5 array (layers, positions, samples, features)."""

    def __getitem__(self, key: tuple[int, int], /) -> Any: ...


def read_ahead(
    activations: ActivationSource, keys: Sequence[tuple[int, int]]
) -> Generator[Shaped[np.ndarray, "samples features"]]:
    """Yield the loci of `keys` in order, each read by a background thread during the work on the one before.

    At most two loci are in memory: the one yielded last and the next. An error of reading is raised in its turn.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="refusal-read-ahead") as reader:
        waiting = deque(reader.submit(lambda key: as_array(activations[key]), key) for key in keys[:1])
        for k in range(len(keys)):
            X = waiting.popleft().result()
            waiting.extend(reader.submit(lambda key: as_array(activations[key]), key) for key in keys[k + 1 : k + 2])
            yield X
            del X  # or a third locus would be in memory


def as_array(X: LocusActivations) -> np.ndarray:
    """Return the activations of one locus as a NumPy array; bfloat16 becomes float32, which NumPy has."""
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu()
        X = X.float() if X.dtype == torch.bfloat16 else X
    return np.asarray(X)


def check_shapes(
    activations: ActivationSource, layers: Sequence[int], positions: Sequence[str], present: np.ndarray | None
) -> None:
    """Refuse layer and position names that do not match the axes: loci would get wrong names."""
    shape = tuple(getattr(activations, "shape", ()))  # an object with [layer, position] need not have a shape
    if shape and (len(shape) != 4 or shape[:2] != (len(layers), len(positions))):
        raise ValueError(
            f"{len(layers)} layers and {len(positions)} positions were named; activations must be "
            f"(n_layers, n_positions, n_samples, d_model), got shape {shape}"
        )
    if present is not None and (np.ndim(present) != 2 or len(present) != len(positions)):
        raise ValueError(f"present must be ({len(positions)} positions, n_samples); got shape {np.shape(present)}")


# -- folds of whole groups ---------------------------------------------------------------------------------------------

Rows = Integer[np.ndarray, "_"]  # indices into a contrast's rows
Split = tuple[Rows, Rows]


@dataclass(frozen=True)
class Fold:
    """One outer fold of a contrast."""

    train: Rows
    test: Rows  # reported; used for no choice
    inner: tuple[Split, ...]  # (fit rows, validation rows) within train, to choose C
    validation: Rows | None = None  # chooses the locus; if None, the inner folds do


def cross_validation(contrast: Contrast, n_folds: int = 5, n_inner: int = 3, seed: int = 0) -> tuple[Fold, ...]:
    """Divide a contrast into outer folds, each tested once, and the training rows of each into inner folds.

    Groups stay whole at both levels, and classes are balanced as far as groups allow. The contrast's parts are ignored.
    """
    rows = np.arange(len(contrast.rows))
    outer = _splits(contrast, rows, n_folds, seed, "folds")
    return tuple(Fold(a, b, _splits(contrast, a, n_inner, seed, f"inner folds of {len(a)} samples")) for a, b in outer)


def held_out(contrast: Contrast, n_inner: int = 3, seed: int = 0) -> tuple[Fold]:
    """Return the single fold given by a contrast's parts: train, validation (chooses the locus) and test.

    If a class has fewer training groups than `n_inner`, there are as many inner folds (to choose C), but at least two.
    """
    parts = {name: contrast.within(name, both_classes=True) for name in ("train", "validation", "test")}
    for one, other in itertools.combinations(parts, 2):
        if len(both := np.intersect1d(contrast.groups[parts[one]], contrast.groups[parts[other]])):
            raise ValueError(
                f"group {both[0]} of contrast {contrast.name!r} is in its {one} and {other} parts; "
                "put each group into one part"
            )
    y, groups = contrast.y[parts["train"]], contrast.groups[parts["train"]]
    n = max(2, min(n_inner, *(len(np.unique(groups[side])) for side in (y, ~y))))
    inner = _splits(contrast, parts["train"], n, seed, "inner folds of its train part")
    return (Fold(parts["train"], parts["test"], inner, parts["validation"]),)


def _splits(contrast: Contrast, rows: np.ndarray, n: int, seed: int, what: str) -> tuple[Split, ...]:
    y, groups = contrast.y[rows], contrast.groups[rows]
    if y.all() or not y.any():
        raise ValueError(f"contrast {contrast.name!r} needs both classes; got {y.sum()} positive of {len(y)}")
    for side, name in ((y, "positive"), (~y, "negative")):
        if (n_groups := len(np.unique(groups[side]))) < n:
            some = f"{n_groups} {name} group{'s' * (n_groups != 1)}"
            raise ValueError(
                f"contrast {contrast.name!r} has {some}, too few for {n} {what}; use fewer folds or more prompts"
            )
    # The seed itself, not a named stream, so that runs of older versions keep their folds, C and locus.
    splitter = StratifiedGroupKFold(n, shuffle=True, random_state=seed)
    splits = tuple((rows[a], rows[b]) for a, b in splitter.split(rows, y, groups))
    if any(len(set(contrast.y[part])) < 2 for split in splits for part in split):
        raise ValueError(
            f"the groups of contrast {contrast.name!r} do not divide into {n} {what} with both classes in "
            "each; use fewer folds or more prompts"
        )
    return splits


# -- scores ------------------------------------------------------------------------------------------------------------

MEANS, LOGISTIC = "difference_in_means", "logistic"
FIRST = 4  # candidates for C that are always tried


@dataclass(frozen=True, repr=False)
class Score:
    """AUROC and separation of one kind of probe for one contrast at one locus, per outer fold."""

    validation: Float[np.ndarray, " folds"]  # AUROC on the samples that choose the locus
    separation: Float[np.ndarray, " folds"]  # d' on them: distance of the class means in pooled standard deviations
    by_fold: tuple[Discrimination, ...]  # on each fold's test samples
    C: Float[np.ndarray, " folds"]  # chosen on inner folds; NaN for a probe without C

    def __repr__(self) -> str:
        return f"Score(test AUROC {self.test.auroc:.3f}, {len(self.by_fold)} folds)"

    @property
    def test(self) -> Discrimination:
        """The mean over folds. Folds are not pooled, because their scores are not on one scale."""
        return average(self.by_fold)


@dataclass(frozen=True)
class LocusScores:
    """Scores of one contrast at one locus, by kind of probe."""

    contrast: str
    layer: int
    position: str
    scores: Mapping[str, Score]


@dataclass(frozen=True)
class ProbeGrid:
    """Fit probes of several contrasts at every locus; all folds and all C of a contrast are one batched problem.

    Args:
        contrasts: with different names.
        folds: the folds of each contrast, in the order of `contrasts`; see `cross_validated` and `held_out`.
        Cs: candidates for the logistic probe, in any order; the smallest within 0.001 of the best inner AUROC is taken.
            Those above the FIRST smallest are tried one by one, while the largest so far is taken.
        estimators: further probes with scikit-learn's interface, by name, fitted fold by fold.
        names: names of all samples, for error messages; None uses their indices.

    Raises:
        ValueError: two contrasts have one name, an estimator has the name of a built-in probe, or a sample has no name.
    """

    contrasts: tuple[Contrast, ...]
    folds: tuple[tuple[Fold, ...], ...]
    Cs: tuple[float, ...] = CS
    estimators: Mapping[str, BaseEstimator] = field(default_factory=dict)
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "Cs", tuple(sorted(self.Cs)))
        called = [contrast.name for contrast in self.contrasts]
        if len(set(called)) < len(called):
            raise ValueError(f"contrasts in one grid must have different names, got {', '.join(called)}")
        if taken := {MEANS, LOGISTIC} & set(self.estimators):
            raise ValueError(f"{min(taken)!r} is a built-in probe of every grid; give the estimator another name")
        most = max((contrast.rows.max(initial=-1) for contrast in self.contrasts), default=-1)
        if self.names is not None and len(self.names) <= most:
            raise ValueError(f"got {len(self.names)} names, but a contrast uses row {most}; name every sample")

    @classmethod
    def cross_validated(
        cls, contrasts: Sequence[Contrast], n_folds: int = 5, n_inner: int = 3, seed: int = 0, **settings: Any
    ) -> ProbeGrid:
        """Make a grid with nested cross-validation: every sample is tested once; C and locus use the other folds."""
        folds = tuple(cross_validation(c, n_folds, n_inner, seed) for c in contrasts)
        return cls(tuple(contrasts), folds, **settings)

    @classmethod
    def held_out(cls, contrasts: Sequence[Contrast], n_inner: int = 3, seed: int = 0, **settings: Any) -> ProbeGrid:
        """Make a grid on the contrasts' own parts: train fits, its inner folds choose C, validation the locus."""
        return cls(tuple(contrasts), tuple(held_out(c, n_inner, seed) for c in contrasts), **settings)

    def scores_by_locus(
        self,
        activations: ActivationSource,
        layers: Sequence[int],
        positions: Sequence[str],
        *,
        present: Shaped[np.ndarray, ...] | None = None,
        progress: Callable[[], None] = lambda: None,
    ) -> Iterator[LocusScores]:
        """Yield the scores of each locus and contrast. Each locus is read once, in a background thread during
        the fits of the one before; at most two loci are in memory.

        Args:
            activations: `activations[i, j]` is (samples, features), array or tensor, at layers[i] and positions[j].
            layers, positions: names of the first two axes, all of them and in order.
            present: (positions, samples) bool, which samples have a position; a contrast is left out at a position that
                one of its samples lacks. None means that every sample has every position.
            progress: called after each locus.

        Raises:
            ValueError: a sample of a contrast has NaN or infinite activations, a contrast uses a row that does not
                exist, or shapes disagree.
        """
        check_shapes(activations, layers, positions, present)
        complete = [
            [
                (c, folds)
                for c, folds in zip(self.contrasts, self.folds, strict=True)
                if present is None or np.asarray(present[j], dtype=bool)[c.rows].all()
            ]
            for j in range(len(positions))
        ]
        loci = list(np.ndindex(len(layers), len(positions)))
        with closing(read_ahead(activations, [(i, j) for i, j in loci if complete[j]])) as arrays:
            for i, j in loci:
                X = next(arrays) if complete[j] else np.empty((0, 0))
                for contrast, folds in complete[j]:
                    samples = self._samples(X, contrast, f"layer {layers[i]}, {positions[j]}")
                    yield self._locus_scores(samples, contrast, folds, layers[i], positions[j])
                del X
                progress()

    def fit(self, X: LocusActivations, contrast: str, fold: int = 0, C: float | None = None) -> LinearProbe:
        """Fit one fold's logistic probe again on (samples, features); `scores_by_locus` does not keep weights.

        C is the inverse penalty: `Score.C` has the choice of each fold; None takes the smallest candidate.
        """
        by_name = {c.name: k for k, c in enumerate(self.contrasts)}
        if contrast not in by_name:
            raise KeyError(f"there is no contrast {contrast!r}; the grid has {', '.join(by_name)}")
        index = by_name[contrast]
        chosen, rows = self.contrasts[index], self.folds[index][fold].train
        train = np.zeros((1, len(chosen.rows)), dtype=bool)
        train[0, rows] = True
        C = self.Cs[0] if C is None else C
        X = self._samples(as_array(X), chosen, "X")
        fits = fit_logistic_batch(X, train, chosen.y[None], [C])
        return LinearProbe(fits.weight[0, 0], float(fits.intercept[0, 0]), C)

    def _samples(self, X: np.ndarray, contrast: Contrast, where: str) -> np.ndarray:
        if X.ndim != 2 or X.dtype.kind not in "fiub":
            raise ValueError(
                f"{where}: expected activations (n_samples, d_model) of real numbers; got shape {X.shape} of {X.dtype}"
            )
        if len(X) <= contrast.rows.max():
            raise ValueError(
                f"{where}: got {len(X)} samples, but contrast {contrast.name!r} uses row "
                f"{contrast.rows.max()}; give all samples"
            )
        X = X[contrast.rows]
        if len(bad := contrast.rows[~np.isfinite(X).all(axis=1)]):
            named = ", ".join(str(row if self.names is None else self.names[row]) for row in bad[:5])
            raise ValueError(
                f"{where}: activations of {len(bad)} of {len(X)} prompts are NaN or infinite: {named}"
                f"{', …' * (len(bad) > 5)}; leave them out (present=) or extract again"
            )
        return X

    def _locus_scores(
        self, X: np.ndarray, contrast: Contrast, folds: tuple[Fold, ...], layer: int, position: str
    ) -> LocusScores:
        # The training sets of all folds: first each fold's inner training sets, then its own.
        sets = [rows for fold in folds for rows in (*(a for a, _ in fold.inner), fold.train)]
        train = np.zeros((len(sets), len(X)), dtype=bool)
        for inside, rows in zip(train, sets, strict=True):
            inside[rows] = True
        y = np.tile(contrast.y, (len(train), 1))
        read = {MEANS: mean_scores(X, train, y)[:, None], LOGISTIC: self._logistic(X, train, y, contrast, folds)}
        for name, estimator in self.estimators.items():
            fits = (clone(estimator).fit(X[inside], contrast.y[inside]) for inside in train)
            read[name] = np.stack([fit.decision_function(X) for fit in fits])[:, None]
        scores = {k: _score(s, contrast, folds, self.Cs if k == LOGISTIC else None) for k, s in read.items()}
        return LocusScores(contrast.name, layer, position, scores)

    def _logistic(
        self, X: np.ndarray, train: np.ndarray, y: np.ndarray, contrast: Contrast, folds: tuple[Fold, ...]
    ) -> Float[np.ndarray, "sets Cs samples"]:
        """Fit logistic probes of the FIRST candidates, and of the next one while a fold chooses the last so far.

        Large C take most of the time, and are hardly ever chosen where a smaller one is.
        """
        scores = np.empty((len(train), 0, len(X)))
        for k in (0, *range(FIRST, len(self.Cs))):
            tried = self.Cs[k : max(k + 1, FIRST)]
            scores = np.hstack([scores, fit_logistic_batch(X, train, y, tried).scores])
            means = (_inner_aurocs(inner, contrast, fold).mean(axis=0) for fold, inner, _ in _by_fold(scores, folds))
            if all(simplest_of_the_best(by_C) < scores.shape[1] - 1 for by_C in means):
                break
        return scores


def mean_scores(
    X: Shaped[np.ndarray, "samples features"],
    train: Bool[np.ndarray, "sets samples"],
    y: Bool[np.ndarray, "sets samples"],
) -> Float[np.ndarray, "sets samples"]:
    """Score all samples by the difference in means of each training set, in float64; 0 is the classes' midpoint.

    Where the class means are equal up to rounding, all scores are 0; normalising would turn rounding into a direction.
    """
    X = np.asarray(X, dtype=np.float64)
    rounding = 8 * len(X) * np.finfo(np.float64).eps * np.abs(X).max(initial=0.0) * np.sqrt(X.shape[1])
    X = X - X.mean(axis=0)
    weights = mean_weights(train & y, train & ~y)
    theta = weights @ X
    norm = np.linalg.norm(theta, axis=1, keepdims=True)
    scores = np.divide(theta, norm, out=np.zeros_like(theta), where=norm > rounding) @ X.T
    return scores - (np.abs(weights) * scores).sum(axis=1, keepdims=True) / 2


def choose_locus(loci: Sequence[LocusScores], kind: str = LOGISTIC) -> LocusScores:
    """Choose the locus with the best validation AUROC; among ties (common at 1.0) the one with the largest d'.

    In a held-out grid the test AUROC of this locus is unbiased. In cross-validation every sample takes part in the
    choice, so the test AUROC is too high: report that of `choose_locus_by_fold`.
    """
    return _best(loci, kind, lambda by_fold: by_fold.mean())


def choose_locus_by_fold(
    loci: Sequence[LocusScores], kind: str = LOGISTIC
) -> tuple[tuple[LocusScores, ...], Discrimination]:
    """Choose a locus in every fold as `choose_locus` does, and test it on that fold's test samples.

    Returns the locus of each fold, and the mean test result over folds, which is unbiased for the selected locus.
    """
    n_folds = len(loci[0].scores[kind].by_fold) if loci else 1
    chosen = [_best(loci, kind, lambda by_fold, fold=fold: by_fold[fold]) for fold in range(n_folds)]  # type: ignore[misc]
    return tuple(chosen), average([locus.scores[kind].by_fold[fold] for fold, locus in enumerate(chosen)])


def _best(loci: Sequence[LocusScores], kind: str, of: Callable[[np.ndarray], float]) -> LocusScores:
    if len(names := sorted({locus.contrast for locus in loci})) != 1:  # else the easiest contrast would win
        raise ValueError(f"expected scores of one contrast to choose a locus; got {', '.join(names) or 'none'}")
    best = max(of(locus.scores[kind].validation) for locus in loci)
    tied = [locus for locus in loci if of(locus.scores[kind].validation) >= best - 1e-9]
    return max(tied, key=lambda locus: of(locus.scores[kind].separation))


def _score(scores: np.ndarray, contrast: Contrast, folds: tuple[Fold, ...], Cs: tuple[float, ...] | None) -> Score:
    """Choose each fold's C and measure it; `scores` is (sets, Cs, samples), with one C for a probe without C."""
    y, groups = contrast.y, contrast.groups
    validation, separation, tested, chosen = [], [], [], []
    for fold, inner, own in _by_fold(scores, folds):
        by_C = _inner_aurocs(inner, contrast, fold)
        c = simplest_of_the_best(by_C.mean(axis=0)) if Cs else 0
        if fold.validation is None:
            validated = [(s[c], rows) for s, (_, rows) in zip(inner, fold.inner, strict=True)]
            validation.append(by_C[:, c].mean())
        else:
            validated = [(own[c], fold.validation)]
            validation.append(auroc(y[fold.validation], own[c, fold.validation]))
        separation.append(np.mean([d_prime(y[rows], s[rows]) for s, rows in validated]))
        tested.append(discrimination(y[fold.test], own[c][fold.test], groups[fold.test]))
        chosen.append(Cs[c] if Cs else np.nan)
    return Score(np.array(validation), np.array(separation), tuple(tested), np.array(chosen))


def _by_fold(scores: np.ndarray, folds: tuple[Fold, ...]) -> Iterator[tuple[Fold, np.ndarray, np.ndarray]]:
    """Yield each fold with the scores of its inner training sets, and those of its own."""
    at = 0
    for fold in folds:
        yield fold, scores[at : at + len(fold.inner)], scores[at + len(fold.inner)]
        at += len(fold.inner) + 1


def _inner_aurocs(inner: np.ndarray, contrast: Contrast, fold: Fold) -> Float[np.ndarray, "sets Cs"]:
    y = contrast.y
    return np.array([aurocs(s[:, rows], y[rows]) for s, (_, rows) in zip(inner, fold.inner, strict=True)])
