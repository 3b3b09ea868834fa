"""Reads of dials: cross-fitted scores, and prompts of the other dial's label as negatives."""

from types import SimpleNamespace

import numpy as np
import pytest

from experiments.dials.read import cross_fitted_scores, fit_read
from experiments.run.corpus import Corpus
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from probes.contrast import Contrast
from probes.grid.logistic import LinearProbe, fit_platt
from probes.grid.solver import fit_logistic_batch
from probes.statistics.metrics import brier

LABELS = ("benign", "harmful", "uncertain")
N, D = 60, 200  # more dimensions than prompts: a probe fits any labels


def test_scores_of_unseen_prompts_do_not_boast() -> None:
    """Labels that nothing tells, in groups of two."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2 * N, D)).astype(np.float32), np.repeat(rng.random(N) < 0.5, 2)
    part = np.where(np.arange(2 * N) < N, "train", "validation").astype(object)
    contrast = Contrast("noise", np.arange(2 * N), y, np.repeat(np.arange(N), 2), part)
    train, others = contrast.within("train"), contrast.within("validation")
    fit = fit_logistic_batch(X, (part == "train")[None], y[None], [1.0])
    probe = LinearProbe(fit.weight[0, 0], float(fit.intercept[0, 0]), 1.0)
    own, unseen = probe.decision_function(X), cross_fitted_scores(X, contrast, probe, 0, "cpu")
    assert ((own[train] > 0) == y[train]).all()  # the control: it looks perfect
    assert np.mean((unseen[train] > 0) == y[train]) < 0.75
    np.testing.assert_array_equal(unseen[others], own[others])
    boasting = brier(y[others], fit_platt(own[train], y[train]).probability(own[others]))
    assert brier(y[others], fit_platt(unseen[train], y[train]).probability(unseen[others])) < boasting - 0.05


def unusual(n_groups: int = 40) -> tuple[SimpleNamespace, np.ndarray]:
    """Return a run of harmful, uncertain and benign prompts, and the activations of its prompts, (prompts, 6).

    Harmful and uncertain prompts share strong features, and each has a weaker one of its own.
    """
    rng, labels = np.random.default_rng(0), np.tile(LABELS, 4 * n_groups)
    X = rng.normal(size=(len(labels), 6))
    X[:, 3:] += 12 * (labels != "benign")[:, None]
    X[:, 1] += 5 * (labels == "harmful")
    X[:, 2] += 5 * (labels == "uncertain")
    prompts = tuple(
        Prompt(str(i), ({"role": "user", "content": f"{i}?"},), label, "answer") for i, label in enumerate(labels)
    )
    groups = np.arange(len(labels)) // 12
    part = np.array(["train", "validation", "calibration", "test"], dtype=object)[groups % 4]
    store = SimpleNamespace(site="resid_post", layers=[0], positions=["post_last"],
                            present=np.ones((1, len(labels)), dtype=bool), read=lambda layer, position: X)  # fmt: skip
    run = SimpleNamespace(
        store=store, corpus=Corpus(prompts, groups, part), prompts=prompts, config=SimpleNamespace(seed=0),
        probe_device="cpu", reporter=Reporter(quiet=True),
    )  # fmt: skip
    return run, X


@pytest.mark.parametrize(("kind", "own", "other"), [("normative", "harmful", "uncertain"),
                                                    ("epistemic", "uncertain", "harmful")])  # fmt: skip
def test_prompts_of_the_other_label_are_negatives(kind, own, other) -> None:
    run, X = unusual()
    corpus = run.corpus
    read = fit_read(run, kind, corpus.labelled(own), first_write=0)
    for label, probability in ((own, 1.0), (other, 0.0), ("benign", 0.0)):
        assert np.mean(read.probability[corpus.labelled(label)]) == pytest.approx(probability, abs=0.05)
    pair = (corpus.labelled(own) | corpus.benign) & (corpus.part == "train")  # the control: one pair of labels
    fit = fit_logistic_batch(X[pair], np.ones((1, pair.sum()), bool), corpus.labelled(own)[pair][None], [1.0])
    alone = LinearProbe(fit.weight[0, 0], float(fit.intercept[0, 0]), 1.0)
    assert np.mean(alone.decision_function(X[corpus.labelled(other)]) > 0) > 0.9
