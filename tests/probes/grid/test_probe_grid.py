"""The grid chooses a planted locus on validation samples and reports it on separate test samples."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from probes.contrast import Contrast
from probes.estimators import MassMean
from probes.grid import probe_grid
from probes.grid.logistic import CS as SHIPPED
from probes.grid.probe_grid import (
    FIRST,
    LOGISTIC,
    MEANS,
    LocusScores,
    ProbeGrid,
    Score,
    choose_locus,
    choose_locus_by_fold,
    mean_scores,
)
from probes.grid.solver import fit_logistic_batch
from probes.means import difference_in_means, unit
from probes.statistics.metrics import discrimination

N, D, LAYERS, POSITIONS = 240, 8, (0, 1, 2, 3), ("inst_last", "post_last")
CS = (1e-3, 1e-1, 10.0)
KINDS = (MEANS, LOGISTIC)
DIRECTION = unit(np.random.default_rng(9).standard_normal(D)).astype(np.float64)
PART = np.array(["train", "validation", "test"], dtype=object)[np.random.default_rng(8).choice(3, N, p=[0.5, 0.2, 0.3])]
Y = np.random.default_rng(0).random(N) < 0.4

Make = Callable[..., ProbeGrid]
WAYS = pytest.mark.parametrize("make", [ProbeGrid.held_out, ProbeGrid.cross_validated])


def _stream(strength: dict[tuple[int, str], float], y: np.ndarray = Y) -> np.ndarray:
    """Return activations (layers, positions, N, D), with the classes apart along DIRECTION where told."""
    X = np.random.default_rng(3).standard_normal((len(LAYERS), len(POSITIONS), N, D)) + 100
    for (layer, position), by in strength.items():
        X[LAYERS.index(layer), POSITIONS.index(position)] += by * y[:, None] * DIRECTION
    return X.astype(np.float32)


def _contrast(y: np.ndarray = Y, part: np.ndarray = PART, name: str = "normative") -> Contrast:
    return Contrast(name, np.arange(N), y, np.arange(N), part)


def _score_loci(grid: ProbeGrid, X: object) -> list[LocusScores]:
    return list(grid.scores_by_locus(X, LAYERS, POSITIONS))


def _same(a: Score, b: Score) -> bool:
    arrays = zip((a.validation, a.separation, a.C), (b.validation, b.separation, b.C), strict=True)
    return a.by_fold == b.by_fold and all(np.array_equal(one, other, equal_nan=True) for one, other in arrays)


@WAYS
def test_the_planted_locus_is_found_on_validation_and_reported_on_test(make: Make) -> None:
    loci = _score_loci(make([_contrast()], Cs=CS), _stream({(2, "post_last"): 4.0, (3, "post_last"): 1.0}))
    for kind in KINDS:
        chosen = choose_locus(loci, kind)
        assert (chosen.contrast, chosen.layer, chosen.position) == ("normative", 2, "post_last")
        by_fold, test = choose_locus_by_fold(loci, kind)
        assert {(locus.layer, locus.position) for locus in by_fold} == {(2, "post_last")}
        assert test == chosen.scores[kind].test
        assert test.auroc.low > 0.85
        assert test.balanced_accuracy > 0.9  # the threshold lies between the classes, not at zero
        tested = PART == "test" if make == ProbeGrid.held_out else np.full(N, True)
        assert (test.n_positive, test.n_negative) == (Y[tested].sum(), (~Y)[tested].sum())


def test_validation_chooses_and_test_rows_have_no_say() -> None:
    """At layer 1 only the test rows tell the classes apart; at layer 3 all others do."""
    X = _stream({})
    X[1] += 5 * ((PART == "test") & Y)[:, None] * DIRECTION
    X[3] += 5 * ((PART != "test") & Y)[:, None] * DIRECTION
    loci = _score_loci(ProbeGrid.held_out([_contrast()], Cs=CS), X)
    for kind in KINDS:
        chosen = choose_locus(loci, kind)
        assert chosen.layer == 3
        assert chosen.scores[kind].validation[0] > 0.95
        assert chosen.scores[kind].test.auroc.estimate < 0.75


def test_the_figure_of_the_selected_locus_is_not_chosen_on() -> None:
    """Every fold's test rows tell the classes apart at a layer of their own, where its training rows do not."""
    grid = ProbeGrid.cross_validated([_contrast()], n_folds=4, n_inner=2, Cs=CS)
    X = _stream({})
    for layer, fold in enumerate(grid.folds[0]):
        inside = np.isin(np.arange(N), fold.test) & Y
        X[layer] += 6 * inside[:, None] * DIRECTION
    loci = _score_loci(grid, X)
    for kind in KINDS:
        by_fold, _ = choose_locus_by_fold(loci, kind)
        assert all(locus.layer != fold for fold, locus in enumerate(by_fold))


def test_fits_and_choices_use_their_own_rows_only() -> None:
    """Test rows replaced by others of another size change nothing but the test figure; nor do validation rows fits."""
    X, contrast = _stream({(0, "inst_last"): 3.0}), _contrast()
    grid = ProbeGrid.held_out([contrast], Cs=CS, estimators={"mass_mean": MassMean()})
    spoiled, blind = X.copy(), X.copy()
    spoiled[:, :, PART == "test"] = 30 * np.random.default_rng(1).standard_normal((N, D))[PART == "test"]
    blind[:, :, PART == "validation"] = -70
    loci = zip(*(_score_loci(grid, x) for x in (X, spoiled, blind)), strict=True)
    for of, kind in product(loci, (*KINDS, "mass_mean")):
        one, other, third = (locus.scores[kind] for locus in of)
        assert one.validation == other.validation
        assert one.separation == pytest.approx(other.separation, rel=1e-3)  # fits end within their tolerance
        assert np.array_equal(one.C, other.C, equal_nan=True)
        assert one.test != other.test  # the control
        assert one.test == third.test
    for fit in (grid.fit(x[0, 0], "normative", C=0.1) for x in (spoiled, blind)):
        clean = grid.fit(X[0, 0], "normative", C=0.1)
        assert np.linalg.norm(fit.weight - clean.weight) < 1e-3 * np.linalg.norm(clean.weight)


@WAYS
def test_every_figure_is_a_plain_reckoning_with_sklearn(make: Make) -> None:
    """Fold by fold and C by C with a pipeline, standardised on the rows of each fit."""
    contrast, X = _contrast(), _stream({(1, "inst_last"): 1.0})
    grid = make([contrast], Cs=CS)
    score = next(c for c in _score_loci(grid, X) if (c.layer, c.position) == (1, "inst_last")).scores[LOGISTIC]

    def fit(rows: np.ndarray, C: float) -> np.ndarray:
        model = LogisticRegression(C=C, class_weight="balanced", tol=1e-8, max_iter=5000)
        return make_pipeline(StandardScaler(), model).fit(X[1, 0, rows], Y[rows]).decision_function(X[1, 0])

    for k, fold in enumerate(grid.folds[0]):
        inner = np.array([[roc_auc_score(Y[b], fit(a, C)[b]) for C in CS] for a, b in fold.inner]).mean(axis=0)
        c = int(np.flatnonzero(inner >= inner.max() - 1e-3)[0])
        own = fit(fold.train, CS[c])
        assert score.C[k] == CS[c]
        expected = inner[c] if fold.validation is None else roc_auc_score(Y[fold.validation], own[fold.validation])
        assert score.validation[k] == pytest.approx(expected, abs=1e-3)
        assert score.by_fold[k].auroc.estimate == pytest.approx(roc_auc_score(Y[fold.test], own[fold.test]), abs=1e-3)


@WAYS
def test_rows_and_parts_left_out_have_no_say(make: Make) -> None:
    part = np.where(np.arange(N) % 5 == 0, "calibration", PART)
    kept = np.flatnonzero(part != "calibration")
    fewer = Contrast("normative", kept, Y[kept], kept, part[kept])
    X = _stream({(0, "inst_last"): 3.0})
    spoiled = X.copy()
    spoiled[:, :, part == "calibration"] = np.nan  # outside the contrast's rows, so nobody minds
    for a, b in zip(*(_score_loci(make([fewer], Cs=CS), x) for x in (X, spoiled)), strict=True):
        assert all(_same(a.scores[kind], b.scores[kind]) for kind in KINDS)
    if make == ProbeGrid.held_out:
        for a, b in zip(*(_score_loci(make([c], Cs=CS), X) for c in (fewer, _contrast(part=part))), strict=True):
            assert a.scores[MEANS].by_fold == b.scores[MEANS].by_fold
            one, other = (scores.scores[LOGISTIC].test.auroc.estimate for scores in (a, b))
            assert one == pytest.approx(other, abs=2e-3)


def test_the_simplest_c_within_a_thousandth_is_taken() -> None:
    y = np.arange(N) % 2 == 0
    X = _stream({}, y)
    X[0] += 20 * y[:, None]
    apart, noise = (c.scores[LOGISTIC].C[0] for c in _score_loci(ProbeGrid.held_out([_contrast(y)]), X)[::2][:2])
    assert apart == 1e-4
    assert noise in (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
    scores = _score_loci(ProbeGrid.cross_validated([_contrast(y)], n_folds=3), X)[0].scores
    assert scores[LOGISTIC].C.tolist() == [1e-4] * 3
    assert np.isnan(scores[MEANS].C).all()


@WAYS
def test_large_c_are_tried_while_the_largest_so_far_is_taken(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a small difference of two like features a weak penalty reads more; in one strong feature none does."""
    like, noise = np.random.default_rng(3).standard_normal((2, N))
    subtle = np.stack([like, like + 0.02 * (2 * Y - 1 + noise)], axis=1)
    strong = np.stack([like, 20 * Y + noise], axis=1)
    X, tried = np.stack([subtle, strong])[:, None], list[int]()

    def fit(*given: Any, **more: Any) -> Any:
        tried[-1] += len(given[3])
        return fit_logistic_batch(*given, **more)

    def chosen() -> list[list[float]]:
        loci = list[list[float]]()
        scored = make([_contrast()]).scores_by_locus(X, range(2), ["a"])
        while True:
            tried.append(0)
            if (locus := next(scored, None)) is None:
                return loci
            loci.append(locus.scores[LOGISTIC].C.tolist())

    monkeypatch.setattr(probe_grid, "fit_logistic_batch", fit)
    some = chosen()
    assert tried[:2] == [len(SHIPPED), FIRST]
    monkeypatch.setattr(probe_grid, "FIRST", len(SHIPPED))
    assert some == chosen()
    assert max(some[0]) == SHIPPED[-1]


def test_c_is_chosen_on_held_out_groups_not_on_copies_of_the_training_rows() -> None:
    """Six copies of each row with labels of noise: with copies on both sides of a fold, memorising (large C) wins."""
    rng = np.random.default_rng(0)
    base, noise = rng.standard_normal((60, 80)), rng.permutation(np.arange(60) % 2 == 0)
    X = np.repeat(base, 6, axis=0) + 0.01 * rng.standard_normal((360, 80))
    y, copies = np.repeat(noise, 6), np.repeat(np.arange(60), 6)

    def score(groups: np.ndarray) -> Score:
        contrast = Contrast("noise", np.arange(360), y, groups, np.full(360, "train", dtype=object))
        grid = ProbeGrid.cross_validated([contrast], n_folds=3, Cs=CS)
        return next(grid.scores_by_locus(X[None, None], [0], ["last"])).scores[LOGISTIC]

    separated, leaking = score(copies), score(np.arange(360))
    assert leaking.validation.min() > 0.95  # the control: leaking folds do reward memorising
    assert leaking.test.auroc.low > 0.9
    assert separated.validation.max() < 0.75
    assert separated.test.auroc.low < 0.5 < separated.test.auroc.high


def _made_up_scores(layer: int, validation: list[float], separation: list[float], test: list[float]) -> LocusScores:
    y, noise = np.arange(40) < 20, norm.ppf((np.arange(40) % 20 + 0.5) / 20)
    by_fold = tuple(discrimination(y, noise + np.sqrt(2) * norm.ppf(auroc) * y, np.arange(40)) for auroc in test)
    score = Score(*map(np.array, (validation, separation)), by_fold, np.full(2, np.nan))
    return LocusScores("c", layer, "last", {MEANS: score})


def test_selected_takes_each_folds_own_best_and_choose_the_best_on_average() -> None:
    loci = [
        _made_up_scores(0, [0.9, 0.6], [1.0, 1.0], [0.6, 0.99]),
        _made_up_scores(1, [0.8, 0.8], [2.0, 1.0], [0.9, 0.9]),
        _made_up_scores(2, [0.9, 0.8], [3.0, -2.0], [0.7, 0.5]),
    ]
    by_fold, test = choose_locus_by_fold(loci, MEANS)
    assert [locus.layer for locus in by_fold] == [2, 1]  # both by the gap
    expected = [loci[2].scores[MEANS].by_fold[0], loci[1].scores[MEANS].by_fold[1]]
    assert test.auroc.estimate == np.mean([d.auroc.estimate for d in expected])
    assert choose_locus(loci, MEANS).layer == 2
    assert choose_locus_by_fold(loci[:1], MEANS)[1] == loci[0].scores[MEANS].test


def test_hdf5_and_float16_activations_read_as_arrays_do(tmp_path: Path) -> None:
    X, grid = _stream({(2, "post_last"): 2.0}).astype(np.float16), ProbeGrid.held_out([_contrast()], Cs=CS)
    wide = _score_loci(grid, X.astype(np.float64))
    with h5py.File(tmp_path / "activations.h5", "w") as file:
        stored = _score_loci(grid, file.create_dataset("resid_post", data=X))
    for a, b, c in zip(wide, stored, _score_loci(grid, X), strict=True):
        assert all(_same(a.scores[kind], b.scores[kind]) and _same(a.scores[kind], c.scores[kind]) for kind in KINDS)


def test_several_contrasts_in_one_pass_are_each_alone() -> None:
    rows = np.random.default_rng(4).permutation(N)[:150]
    other = Contrast("epistemic", rows, rows % 2 == 0, rows // 2, PART[rows // 2 * 2])
    X = _stream({(2, "post_last"): 2.0})
    together = _score_loci(ProbeGrid.cross_validated([_contrast(), other], 3, Cs=CS), X)
    for contrast in (_contrast(), other):
        alone = _score_loci(ProbeGrid.cross_validated([contrast], 3, Cs=CS), X)
        for a, b in zip(alone, [c for c in together if c.contrast == contrast.name], strict=True):
            assert all(_same(a.scores[kind], b.scores[kind]) for kind in KINDS)


def test_each_locus_is_read_once_and_only_if_needed() -> None:
    X, reads = _stream({}), list[tuple[int, int]]()

    class CountingActivations:
        def __getitem__(self, key: tuple[int, int], /) -> np.ndarray:
            reads.append(key)
            return X[key]

    rows = np.arange(100)
    early = Contrast("early", rows, Y[rows], rows, PART[rows])
    present = np.ones((2, N), dtype=bool)
    present[1, 150] = False
    both = ProbeGrid.held_out([_contrast(), early], Cs=CS)
    loci = list(both.scores_by_locus(CountingActivations(), LAYERS, POSITIONS, present=present))
    assert [(c.position, c.contrast) for c in loci[:3]] == [
        ("inst_last", "normative"), ("inst_last", "early"), ("post_last", "early")]  # fmt: skip
    assert len(loci) == 3 * len(LAYERS)
    assert reads == [(i, j) for i in range(4) for j in range(2)]
    present[1] = False
    reads.clear()
    of_early = ProbeGrid.held_out([early], Cs=CS)
    loci = list(of_early.scores_by_locus(CountingActivations(), LAYERS, POSITIONS, present=present))
    assert {locus.position for locus in loci} == {"inst_last"}
    assert reads == [(i, 0) for i in range(4)]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_activations_that_are_no_numbers_are_named_by_their_prompts(value: float) -> None:
    X = _stream({})
    X[2, 1, [7, 30]] = value
    contrast = Contrast("normative", np.arange(10, N), Y[10:], np.arange(10, N), PART[10:])
    ids = [f"prompt-{i}" for i in range(N)]
    message = ("layer 2, post_last: activations of 1 of 230 prompts are NaN or infinite: prompt-30; "
               r"leave them out \(present=\) or extract again")  # fmt: skip
    with pytest.raises(ValueError, match=message):
        _score_loci(ProbeGrid.held_out([contrast], Cs=CS, names=ids), X)
    X[0, 0] = value
    with pytest.raises(ValueError, match=r"layer 0, inst_last: activations of 230 of 230 .*: 10, 11, 12, 13, 14, …;"):
        _score_loci(ProbeGrid.held_out([contrast], Cs=CS), X)


@WAYS
@pytest.mark.parametrize("value", [0.0, 0.1, -1e4 / 3])
def test_constant_activations_tell_nothing(make: Make, value: float) -> None:
    """Also where the mean of equal numbers is off by a rounding error, which must not become a direction."""
    for n in (240, 239, 173):
        contrast = Contrast("normative", np.arange(n), Y[:n], np.arange(n), PART[:n])
        locus = next(make([contrast], Cs=[1.0]).scores_by_locus(np.full((1, 1, n, 37), value), [0], ["last"]))
        for kind in KINDS:
            assert locus.scores[kind].validation.tolist() == [0.5] * len(locus.scores[kind].validation)
            assert not locus.scores[kind].separation.any()
            assert locus.scores[kind].test.auroc.estimate == 0.5
            assert locus.scores[kind].test.balanced_accuracy == 0.5


def test_difference_in_means_scores_are_what_the_formula_gives() -> None:
    X, rng = _stream({(2, "post_last"): 1.0})[2, 1], np.random.default_rng(5)
    train = rng.random((3, N)) < 0.5
    scores = mean_scores(X, train, np.tile(Y, (3, 1)))
    for inside, score in zip(train, scores, strict=True):
        theta = difference_in_means(X[inside], Y[inside])
        midpoint = (X[inside & Y].mean(axis=0, dtype=float) + X[inside & ~Y].mean(axis=0, dtype=float)) / 2
        np.testing.assert_allclose(score, (X - midpoint) @ theta / np.linalg.norm(theta), atol=1e-6)


@WAYS
def test_fit_gives_the_probe_behind_the_scores(make: Make) -> None:
    rows = np.random.default_rng(6).permutation(N)[:200]
    contrast = Contrast("normative", rows, Y[rows], rows, PART[rows])
    X, grid = _stream({(2, "post_last"): 1.5}), make([_contrast(name="first"), contrast], Cs=CS)
    locus = next(c for c in _score_loci(grid, X) if (c.contrast, c.layer, c.position) == ("normative", 2, "post_last"))
    score = locus.scores[LOGISTIC]
    for k, (fold, C) in enumerate(zip(grid.folds[1], score.C, strict=True)):
        probe = grid.fit(X[2, 1], "normative", fold=k, C=float(C))
        assert (probe.weight.dtype, probe.C) == (np.float64, C)
        read = probe.decision_function(X[2, 1][rows])
        again = discrimination(contrast.y[fold.test], read[fold.test], contrast.groups[fold.test])
        assert again.auroc.estimate == pytest.approx(score.by_fold[k].auroc.estimate, abs=1e-3)
        assert again.balanced_accuracy == pytest.approx(score.by_fold[k].balanced_accuracy, abs=0.02)
    with pytest.raises(KeyError, match="epistemic"):
        grid.fit(X[2, 1], "epistemic")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_tensors_read_as_arrays_do(dtype: torch.dtype) -> None:
    tensor = torch.from_numpy(_stream({(2, "post_last"): 2})).to(dtype)
    grid = ProbeGrid.held_out([_contrast()], Cs=CS)
    of_tensor, of_array = (_score_loci(grid, X) for X in (tensor.requires_grad_(), tensor.detach().float().numpy()))
    for a, b in zip(of_tensor, of_array, strict=True):
        assert all(_same(a.scores[kind], b.scores[kind]) for kind in KINDS)


ARRAY = _stream({})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        # layer 0 would be read and called layer 2
        ((ARRAY, (2,), POSITIONS), r"1 layers and 2 positions were named; .*, got shape \(4, 2, 240, 8\)"),
        ((ARRAY, LAYERS, ("post_last",)), "4 layers and 1 positions were named"),
        ((ARRAY[:, 0], LAYERS, POSITIONS), r"\(n_layers, n_positions, n_samples, d_model\), got shape \(4, 240, 8\)"),
        ((ARRAY.astype(str), LAYERS, POSITIONS), r"layer 0, inst_last: .* real numbers; got shape \(240, 8\) of <U"),
        ((ARRAY, LAYERS, POSITIONS, np.ones(N)), r"present must be \(2 positions, n_samples\); got shape \(240,\)"),
        ((ARRAY[:, :, :-1], LAYERS, POSITIONS), "inst_last: got 239 samples, but contrast 'normative' uses row 239;"),
    ],
)
def test_wrong_shapes_and_types_are_refused(given: tuple, message: str) -> None:
    X, layers, positions, *present = given
    with pytest.raises(ValueError, match=message):
        next(ProbeGrid.held_out([_contrast()]).scores_by_locus(X, layers, positions, present=(present or [None])[0]))


def test_ambiguous_and_unknown_names_are_refused() -> None:
    with pytest.raises(KeyError, match="no contrast 'harm'; the grid has normative"):
        ProbeGrid.held_out([_contrast()]).fit(ARRAY[0, 0], "harm")
    with pytest.raises(ValueError, match="contrasts in one grid must have different names, got normative, normative"):
        ProbeGrid.held_out([_contrast(), _contrast(~Y)])
    with pytest.raises(ValueError, match="'logistic' is a built-in probe of every grid; give the estimator"):
        ProbeGrid.held_out([_contrast()], estimators={LOGISTIC: MassMean()})
    with pytest.raises(ValueError, match="got 3 names, but a contrast uses row 239"):
        ProbeGrid.held_out([_contrast()], names=["a", "b", "c"])


def test_a_locus_is_chosen_for_one_contrast() -> None:
    loci = _score_loci(ProbeGrid.held_out([_contrast(), _contrast(~Y, name="epistemic")], Cs=CS), _stream({}))
    for way in (choose_locus, choose_locus_by_fold):
        with pytest.raises(ValueError, match=r"expected scores of one contrast .*; got epistemic, normative"):
            way(loci)
        with pytest.raises(ValueError, match="choose a locus; got none"):
            way([])
