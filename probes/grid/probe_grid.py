"""Probes of several contrasts at every layer and position, in one pass over the activations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from sklearn.base import clone

from probes.contrast import Contrast
from probes.grid.folds import Fold, cross_validation, held_out
from probes.grid.logistic import CS, LinearProbe, simplest_of_the_best
from probes.grid.solver import fit_logistic_batch
from probes.means import mean_weights
from probes.statistics.metrics import Discrimination, auroc, aurocs, average, d_prime, discrimination

MEANS, LOGISTIC = "difference_in_means", "logistic"


Here = Shaped[np.ndarray, "..."] | Shaped[torch.Tensor, "..."]  # activations of one locus


@runtime_checkable
class Activations(Protocol):
    """Anything indexed by layer and position: a NumPy or HDF5 array (layers, positions, samples, features)."""

    def __getitem__(self, key: tuple[int, int], /) -> Any: ...


@runtime_checkable
class Estimator(Protocol):
    """A classifier with scikit-learn's interface, to be cloned and fitted fold by fold."""

    def fit(self, X: Shaped[np.ndarray, "train features"], y: Bool[np.ndarray, " train"]) -> Estimator: ...

    def decision_function(self, X: Shaped[np.ndarray, "samples features"]) -> Float[np.ndarray, " samples"]: ...


@dataclass(frozen=True)
class Score:
    """How well one kind of probe reads one contrast at one locus, by outer fold."""

    validation: Float[np.ndarray, " folds"]  # AUROC on the samples that choose the locus
    separation: Float[np.ndarray, " folds"]  # d' there: distance of the class means in pooled standard deviations
    by_fold: tuple[Discrimination, ...]  # on each fold's test samples
    C: Float[np.ndarray, " folds"]  # chosen on inner folds; NaN for a probe without

    @property
    def test(self) -> Discrimination:
        """The mean over folds, never pooled: scores of different folds are not on one scale."""
        return average(self.by_fold)


@dataclass(frozen=True)
class Cell:
    """One contrast at one locus, by kind of probe."""

    contrast: str
    layer: int
    position: str
    scores: Mapping[str, Score]


@dataclass(frozen=True)
class ProbeGrid:
    """Fit probes of several contrasts at every locus: all folds and all C of a contrast in one batched problem.

    Args:
        contrasts: with different names.
        folds: of each contrast, in their order; see `cross_validated` and `held_out`.
        Cs: candidates for the logistic probe, in any order; the smallest within 0.001 of the best inner AUROC is taken.
        estimators: further probes with scikit-learn's interface, by name, fitted fold by fold.
        names: of all samples, for messages; their index where absent.
        device: where the logistic problems are solved.

    Raises:
        ValueError: two contrasts have one name, an estimator has that of a probe of the grid, or names are too few.
    """

    contrasts: tuple[Contrast, ...]
    folds: tuple[tuple[Fold, ...], ...]
    Cs: tuple[float, ...] = CS
    estimators: Mapping[str, Estimator] = field(default_factory=dict)
    names: Sequence[str] | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        object.__setattr__(self, "Cs", tuple(sorted(self.Cs)))
        called = [contrast.name for contrast in self.contrasts]
        if len(set(called)) < len(called):
            raise ValueError(f"contrasts in one grid must have different names, got {', '.join(called)}")
        if taken := {MEANS, LOGISTIC} & set(self.estimators):
            raise ValueError(f"{min(taken)!r} is a probe of every grid; give the estimator another name")
        most = max((contrast.rows.max(initial=-1) for contrast in self.contrasts), default=-1)
        if self.names is not None and len(self.names) <= most:
            raise ValueError(f"{len(self.names)} names, but a contrast has row {most}; give all samples' names")

    @classmethod
    def cross_validated(
        cls, contrasts: Sequence[Contrast], n_folds: int = 5, n_inner: int = 3, seed: int = 0, **settings: Any
    ) -> ProbeGrid:
        """Nested cross-validation: every sample is tested once, C and locus are chosen within the other folds."""
        folds = tuple(cross_validation(c, n_folds, n_inner, seed) for c in contrasts)
        return cls(tuple(contrasts), folds, **settings)

    @classmethod
    def held_out(cls, contrasts: Sequence[Contrast], n_inner: int = 3, seed: int = 0, **settings: Any) -> ProbeGrid:
        """Use the contrasts' own parts: train fits, inner folds of it choose C, validation the locus, test reports."""
        return cls(tuple(contrasts), tuple(held_out(c, n_inner, seed) for c in contrasts), **settings)

    def cells(
        self,
        activations: Activations,
        layers: Sequence[int],
        positions: Sequence[str],
        *,
        present: Shaped[np.ndarray, ...] | None = None,
        progress: Callable[[], None] = lambda: None,
    ) -> Iterator[Cell]:
        """Yield a cell per locus and contrast; one locus is read, once, and held at a time.

        Args:
            activations: `activations[i, j]` is (samples, features) at layers[i] and positions[j]; or a tensor.
            layers, positions: what the first two axes are called: all of them, in order.
            present: (positions, samples) bool, which samples have a position; a contrast is left out where one of
                its samples has none. All have all without it.

        Raises:
            ValueError: a sample of a contrast has NaN or infinite activations, there are fewer samples than rows, or
                shapes do not fit each other.
        """
        _check_shapes(activations, layers, positions, present)
        for i, layer in enumerate(layers):
            for j, position in enumerate(positions):
                here = [(c, folds) for c, folds in zip(self.contrasts, self.folds, strict=True)
                        if present is None or np.asarray(present[j], dtype=bool)[c.rows].all()]  # fmt: skip
                X = _array(activations[i, j]) if here else np.empty((0, 0))
                for contrast, folds in here:
                    samples = self._samples(X, contrast, f"layer {layer}, {position}")
                    yield self._cell(samples, contrast, folds, layer, position)
                progress()

    def fit(self, X: Here, contrast: str, fold: int = 0, C: float | None = None) -> LinearProbe:
        """Fit one fold's logistic probe again on (samples, features), as `cells` did: their weights are not kept.

        Args:
            C: the smallest candidate without it; a cell's score has what each fold chose.

        Raises:
            KeyError: there is no such contrast.
            ValueError: as `cells`.
        """
        by_name = {c.name: k for k, c in enumerate(self.contrasts)}
        if contrast not in by_name:
            raise KeyError(f"there is no contrast {contrast!r}, only {', '.join(by_name)}")
        which = by_name[contrast]
        of, chosen = self.contrasts[which], self.folds[which][fold]
        train = np.zeros((1, len(of.rows)), dtype=bool)
        train[0, chosen.train] = True
        C = self.Cs[0] if C is None else C
        X = self._samples(_array(X), of, "X")
        fits = fit_logistic_batch(X, train, of.y[None], [C], device=self.device)
        return LinearProbe(fits.weight[0, 0], float(fits.intercept[0, 0]), C)

    def _samples(self, X: np.ndarray, contrast: Contrast, where: str) -> np.ndarray:
        if X.ndim != 2 or X.dtype.kind not in "fiub":
            raise ValueError(f"{where}: activations are (n_samples, d_model) real numbers; got shape {X.shape} of "
                             f"{X.dtype}")  # fmt: skip
        if len(X) <= contrast.rows.max():
            raise ValueError(f"{where}: {len(X)} samples, but contrast {contrast.name!r} has row {contrast.rows.max()}")
        X = X[contrast.rows]
        if len(bad := contrast.rows[~np.isfinite(X).all(axis=1)]):
            named = ", ".join(str(row if self.names is None else self.names[row]) for row in bad[:5])
            raise ValueError(f"{where}: activations of {len(bad)} of {len(X)} prompts are NaN or infinite: {named}"
                             f"{', …' if len(bad) > 5 else ''}; extract them again, or leave these out")  # fmt: skip
        return X

    def _cell(self, X: np.ndarray, contrast: Contrast, folds: tuple[Fold, ...], layer: int, position: str) -> Cell:
        # The training sets of all folds, each fold's inner ones before its own.
        sets = [rows for fold in folds for rows in (*(a for a, _ in fold.inner), fold.train)]
        train = np.zeros((len(sets), len(X)), dtype=bool)
        for inside, rows in zip(train, sets, strict=True):
            inside[rows] = True
        y = np.tile(contrast.y, (len(train), 1))
        logistic = fit_logistic_batch(X, train, y, self.Cs, device=self.device).scores
        read = {MEANS: mean_scores(X, train, y)[:, None], LOGISTIC: logistic}
        read |= {name: _estimated(e, X, train, contrast.y)[:, None] for name, e in self.estimators.items()}
        return Cell(
            contrast.name,
            layer,
            position,
            {k: _score(s, contrast, folds, self.Cs if k == LOGISTIC else None) for k, s in read.items()},
        )


def _array(X: Here) -> np.ndarray:
    """Return the activations of one locus as a NumPy array, which has no bfloat16 and no other device."""
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu()
        X = X.float() if X.dtype == torch.bfloat16 else X
    return np.asarray(X)


def _check_shapes(
    activations: Activations, layers: Sequence[int], positions: Sequence[str], present: np.ndarray | None
) -> None:
    """Refuse names that are not those of the axes: loci would be called what they are not."""
    shape = tuple(getattr(activations, "shape", ()))  # anything with [layer, position] will do, and need not have one
    if shape and (len(shape) != 4 or shape[:2] != (len(layers), len(positions))):
        raise ValueError(f"{len(layers)} layers and {len(positions)} positions were named; activations are (n_layers, "
                         f"n_positions, n_samples, d_model) and have shape {shape}")  # fmt: skip
    if present is not None and (np.ndim(present) != 2 or len(present) != len(positions)):
        raise ValueError(f"present is (n_positions, n_samples), with {len(positions)} positions; "
                         f"got shape {np.shape(present)}")  # fmt: skip


def mean_scores(
    X: Shaped[np.ndarray, "samples features"],
    train: Bool[np.ndarray, "sets samples"],
    y: Bool[np.ndarray, "sets samples"],
) -> Float[np.ndarray, "sets samples"]:
    """Score all samples by the difference in means of each training set, 0 midway; in float64.

    Where the classes have the same mean, up to rounding, all scores are 0: normalised, rounding would be a direction.
    """
    X = np.asarray(X, dtype=np.float64)
    rounding = 8 * len(X) * np.finfo(np.float64).eps * np.abs(X).max(initial=0.0) * np.sqrt(X.shape[1])
    X = X - X.mean(axis=0)
    weights = mean_weights(train & y, train & ~y)
    theta = weights @ X
    norm = np.linalg.norm(theta, axis=1, keepdims=True)
    scores = np.divide(theta, norm, out=np.zeros_like(theta), where=norm > rounding) @ X.T
    return scores - (np.abs(weights) * scores).sum(axis=1, keepdims=True) / 2


def choose(cells: Sequence[Cell], kind: str = LOGISTIC) -> Cell:
    """Choose the locus by validation AUROC; among ties (common at 1.0) by d', which tells how wide the gap is.

    Of a held-out grid its test figure is honest. In cross-validation every sample has a say
    in the mean over folds that chooses, so there the figure of the chosen locus flatters: report `selected`'s.

    Raises:
        ValueError: the cells are of several contrasts, or there are none.
    """
    _of_one_contrast(cells)
    best = max(cell.scores[kind].validation.mean() for cell in cells)
    tied = [cell for cell in cells if cell.scores[kind].validation.mean() >= best - 1e-9]
    return max(tied, key=lambda cell: cell.scores[kind].separation.mean())


def selected(cells: Sequence[Cell], kind: str = LOGISTIC) -> tuple[tuple[Cell, ...], Discrimination]:
    """Choose a locus in every fold as `choose` does and test it there: an honest figure of the *selected* locus.

    Returns each fold's choice and the mean over folds of what they reach on test.

    Raises:
        ValueError: the cells are of several contrasts, or there are none.
    """
    _of_one_contrast(cells)
    chosen = []
    for fold in range(len(cells[0].scores[kind].by_fold)):
        best = max(cell.scores[kind].validation[fold] for cell in cells)
        tied = [cell for cell in cells if cell.scores[kind].validation[fold] >= best - 1e-9]
        chosen.append(max(tied, key=lambda cell: cell.scores[kind].separation[fold]))
    return tuple(chosen), average([cell.scores[kind].by_fold[fold] for fold, cell in enumerate(chosen)])


def _of_one_contrast(cells: Sequence[Cell]) -> None:
    """Refuse to choose between contrasts: the easiest would be taken."""
    if len(names := sorted({cell.contrast for cell in cells})) != 1:
        raise ValueError(f"a locus is chosen for one contrast; the cells are of {', '.join(names) or 'none'}")


def _estimated(estimator: Estimator, X: np.ndarray, train: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.stack([clone(estimator).fit(X[inside], y[inside]).decision_function(X) for inside in train])


def _score(scores: np.ndarray, contrast: Contrast, folds: tuple[Fold, ...], Cs: tuple[float, ...] | None) -> Score:
    """Choose each fold's C and measure it; `scores` is (sets, Cs, samples), with one entry for a probe without C."""
    y, groups = contrast.y, contrast.groups
    validation, separation, tested, chosen, at = [], [], [], [], 0
    for fold in folds:
        inner, own = scores[at : at + len(fold.inner)], scores[at + len(fold.inner)]
        at += len(fold.inner) + 1
        by_C = np.array([aurocs(s[:, rows].T, y[rows]) for s, (_, rows) in zip(inner, fold.inner, strict=True)])
        c = simplest_of_the_best(by_C.mean(axis=0)) if Cs else 0
        if fold.validation is None:
            judged = [(s[c], rows) for s, (_, rows) in zip(inner, fold.inner, strict=True)]
            validation.append(by_C[:, c].mean())
        else:
            judged = [(own[c], fold.validation)]
            validation.append(auroc(y[fold.validation], own[c, fold.validation]))
        separation.append(np.mean([d_prime(y[rows], s[rows]) for s, rows in judged]))
        tested.append(discrimination(y[fold.test], own[c][fold.test], groups[fold.test]))
        chosen.append(Cs[c] if Cs else np.nan)
    return Score(np.array(validation), np.array(separation), tuple(tested), np.array(chosen))
