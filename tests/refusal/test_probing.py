"""Probes by layer and directions: those of ProbeGrid and DifferenceInMeans, over whole groups, and blind to noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import refusal
from extract.errors import UserError
from extract.prompts.groups import groups_of
from extract.prompts.prompt import Prompt
from probes import Contrast, DifferenceInMeans, Locus, ProbeGrid, choose_locus, choose_locus_by_fold
from tests.support.one_line import mistake

D = 6


def made_up(n: int = 60, signal: float = 0.0, seed: int = 0, copies: int = 1) -> refusal.Activations:
    """Make activations of n prompts of unlike words, each there so many times; layer 1 holds `signal` of the labels."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(2, 1, n, D)).astype(np.float32)
    positive = rng.permutation(n) < n // 2
    values[1, 0, positive, 0] += signal
    labels = np.where(positive, "harmful", "benign")
    prompts = refusal.make_prompts([f"word{i}" for i in range(n)], labels, id=[str(i) for i in range(n)])
    prompts = [replace(prompt, id=f"{prompt.id}.{k}") for k in range(copies) for prompt in prompts]
    values = np.concatenate([values] * copies, axis=2)
    present = np.ones((1, n * copies), dtype=bool)
    return refusal.Activations(values, present, "resid_post", (2, 5), ("post_last",), "made up", tuple(prompts))


def probe(found: refusal.Activations, y: object = None, **arguments: object) -> refusal.LayerProbes:
    given = {"positive": "harmful", "progress": False} if y is None else {"progress": False}
    return refusal.probe_layers(found, found.labels if y is None else y, **given | arguments)


def test_a_signal_is_found_at_its_layer_and_noise_is_at_chance() -> None:
    found = probe(made_up(signal=4.0))
    assert found.best == Locus("resid_post", 5, "post_last")
    assert found.auroc.auroc.estimate > 0.95
    frame = found.to_frame()
    assert len(frame) == 2 * 2
    noise = frame[(frame["layer"] == 2)]
    assert ((noise["auroc_low"] < 0.5) & (noise["auroc_high"] > 0.5)).all()
    assert (frame["n_positive"] == 30).all()


def test_shuffled_labels_are_at_chance(found: refusal.Activations) -> None:
    labels = np.random.default_rng(1).permutation([label == "harmful" for label in found.labels])
    shuffled = probe(replace(found, values=found.values[1:2, 1:2], present=found.present[1:2], layers=(3,),
                             positions=("post_last",)), labels)  # fmt: skip
    assert shuffled.auroc.auroc.low < 0.5 < shuffled.auroc.auroc.high
    assert abs(shuffled.auroc.auroc.estimate - 0.5) < 0.2


def test_copies_of_a_prompt_are_kept_in_one_fold() -> None:
    """Under random labels a copy in the training folds would give its label away: the groups must not allow that."""
    once = np.random.default_rng(3).normal(size=(1, 1, 60, 60)).astype(np.float32)
    copied = replace(made_up(seed=3, copies=4), values=np.concatenate([once] * 4, axis=2), layers=(2,))
    kept = probe(copied, n_folds=2).auroc.auroc
    assert kept.low < 0.5 < kept.high
    assert kept.estimate < 0.7
    assert probe(copied, groups=range(240), n_folds=2).auroc.auroc.estimate > 0.9  # what happens without


def test_it_is_the_grid_made_by_hand(found: refusal.Activations, prompts: list[Prompt]) -> None:
    labels = ["left out" if i % 5 == 0 else label for i, label in enumerate(found.labels)]
    rows = np.array([i for i, label in enumerate(labels) if label in ("harmful", "benign")])
    y = np.array([labels[i] == "harmful" for i in rows])
    contrast = Contrast("by hand", rows, y, groups_of(prompts)[rows], np.full(len(rows), "any"))
    grid = ProbeGrid.cross_validated([contrast], 3, seed=0)
    positions = ["inst_last", "post_last"]
    loci = list(grid.scores_by_locus(found.values[1:2, :2], (3,), positions))
    later = replace(found, values=found.values[1:2], layers=(3,))
    by_door = probe(later, labels, positive="harmful", negative="benign", n_folds=3)
    frame = by_door.to_frame().set_index(["layer", "position", "probe"])
    for locus in loci:
        for kind, score in locus.scores.items():
            row = frame.loc[(locus.layer, locus.position, kind)]
            assert row["auroc"] == score.test.auroc.estimate
            assert (row["auroc_low"], row["auroc_high"]) == (score.test.auroc.low, score.test.auroc.high)
    best = choose_locus(loci)
    assert (by_door.best.layer, by_door.best.position) == (best.layer, best.position)
    assert by_door.auroc.auroc == choose_locus_by_fold(loci)[1].auroc
    has = found.present[2][rows]  # trigger_last is scored on the prompts that have it, and is not the best
    assert not has.all()
    counts = frame.loc[(3, "trigger_last", "logistic")][["n_positive", "n_negative"]]
    assert counts.tolist() == [(y & has).sum(), (~y & has).sum()]
    assert by_door.best.position != "trigger_last"


def test_positions_that_some_prompts_lack_are_scored_on_the_others() -> None:
    two = made_up(signal=4.0)
    gone = np.arange(60) % 4 == 0
    values = np.concatenate([two.values, two.values], axis=1)
    values[:, 1, gone] = np.nan
    present = np.stack([two.present[0], ~gone])
    some = replace(two, values=values, present=present, positions=("post_last", "trigger_last"))
    found = probe(some, n_folds=2)
    counts = found.to_frame().groupby("position")[["n_positive", "n_negative"]].first().sum(axis=1)
    assert counts.to_dict() == {"post_last": 60, "trigger_last": 45}
    assert found.best.position == "post_last"
    only = replace(some, values=values[:, 1:], present=some.present[1:], positions=("trigger_last",))
    assert probe(only, n_folds=2).best.position == "trigger_last"
    harmful = np.array([label == "harmful" for label in some.labels])
    one_class = replace(some, present=np.stack([some.present[0], harmful]))
    assert probe(one_class, n_folds=2).left_out == ("trigger_last",)
    with pytest.raises(UserError, match="trigger_last: contrast 'y' needs both classes"):
        probe(replace(only, present=harmful[None]))


def test_a_store_gives_the_same_frame(model: refusal.Model, found: refusal.Activations, tmp_path: Path) -> None:
    labels = [label == "harmful" for label in found.labels]
    given = {"positions": ["post_last", "trigger_last"], "layers": 3, "progress": False}
    memory = model.activations(found.prompts, **given)
    with refusal.extract(model, found.prompts, tmp_path / "a.h5", **given) as store:
        by_store, by_memory = (probe(one, labels, n_folds=2).to_frame() for one in (store, memory))
        pd.testing.assert_frame_equal(by_store, by_memory)
        where = {"layer": 3, "position": "trigger_last"}
        assert refusal.fit_direction(store, labels, **where) == refusal.fit_direction(memory, labels, **where)


def test_words_alone_are_measured_on_the_same_folds() -> None:
    found = made_up(signal=4.0)
    assert probe(found, n_folds=2).bag_of_words == pytest.approx(0.5)  # every prompt has a word of its own
    prompts = refusal.make_prompts([f"{label} word{i}" for i, label in enumerate(found.labels)], found.labels)
    assert probe(replace(found, prompts=tuple(prompts)), n_folds=2).bag_of_words == 1.0


@pytest.mark.parametrize(
    "as_given",
    [list, np.array, lambda y: pd.Series(y, index=range(100, 160)), lambda y: (one for one in y), tuple],
    ids=["list", "numpy", "pandas", "generator", "tuple"],
)
def test_labels_and_groups_may_be_of_any_kind(as_given: Callable) -> None:
    found = made_up(signal=2.0)
    found = replace(found, values=found.values[1:], layers=(5,))
    y = [label == "harmful" for label in found.labels]
    groups = [i // 2 for i in range(60)]
    expected = probe(found, y, groups=groups, n_folds=2).to_frame()
    for labels in (y, [int(one) for one in y]):
        again = probe(found, as_given(labels), groups=as_given(groups), n_folds=2)
        pd.testing.assert_frame_equal(again.to_frame(), expected)
    by_name = refusal.fit_direction(found, as_given(found.labels), layer=np.int64(5), positive="harmful", name="x")
    unnamed = refusal.fit_direction(found, as_given(y), layer=5, name="x")
    assert by_name.provenance["positive_class"] == "harmful"
    assert replace(by_name, provenance={}) == replace(unnamed, provenance={})
    assert type(by_name.locus.layer) is int


def test_a_direction_is_the_difference_in_means(found: refusal.Activations, harm: refusal.Direction) -> None:
    rows = [i for i, label in enumerate(found.labels) if label in ("harmful", "benign")]
    y = np.array([found.labels[i] == "harmful" for i in rows])
    X = found.read(4, "post_last")[rows].astype(np.float64)
    mean = X[y].mean(axis=0) - X[~y].mean(axis=0)
    np.testing.assert_allclose(harm.vector, mean / np.linalg.norm(mean), atol=1e-6)
    assert harm.mean_positive == pytest.approx((X[y] @ harm.vector).mean(), rel=1e-5)
    assert harm.mean_negative == pytest.approx((X[~y] @ harm.vector).mean(), rel=1e-5)
    assert harm.mean_positive > harm.mean_negative
    fitted = DifferenceInMeans().fit(found.read(4, "post_last")[rows], y)
    assert np.array_equal(harm.vector, fitted.direction("x", harm.locus, {}).vector)
    assert harm.locus == Locus("resid_post", 4, "post_last")
    assert harm.provenance["fitted_on"] == len(rows)


def test_prompts_that_lack_the_position_are_left_out(found: refusal.Activations) -> None:
    labels = [label == "harmful" for label in found.labels]
    fitted = refusal.fit_direction(found, labels, layer=3, position="trigger_last")
    assert fitted.provenance["fitted_on"] == found.present[2].sum() < 60
    assert np.isfinite(fitted.vector).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"y": [True, False]}, "give one label a prompt; got 2 for 60 prompts"),
        ({"y": ["harmful"] * 60}, "y holds harmful; say which is the positive class, such as positive='harmful'"),
        ({"y": [True] * 60}, "both classes are needed; got 60 positive of 60"),
        ({"y": ["a", "b"] * 30, "positive": "c"}, "no prompt has the label 'c'; there are a, b"),
        ({"y": ["a", "b"] * 30, "positive": "a", "negative": "a"}, "both classes are needed"),
        ({"y": ["a", "b"] * 30, "positive": ["a"]}, "a class has one label; got list"),
        ({"y": ["a", None] * 30, "positive": "a"}, "the label of prompt 1 is missing; leave such prompts out"),
        ({"y": ["a", float("nan")] * 30, "positive": "a"}, "the label of prompt 1 is missing"),
        ({"y": [True, pd.NA] * 30}, "the label of prompt 1 is missing"),
        ({"y": np.zeros((60, 2))}, "a label is one value a prompt; got ndarray"),
        ({"y": "harmful"}, "give one label a prompt, as a list; got str"),
        ({"y": True}, "give one label a prompt, as a list; got bool"),
        ({"y": [0.0, 2.0] * 30}, "y holds 0.0, 2.0; say which is the positive class"),
    ],
)
def test_a_mistake_in_labels_is_named(change: dict, said: str) -> None:
    found = made_up()
    assert said in mistake(refusal.probe_layers, found, **change, progress=False)
    assert said in mistake(refusal.fit_direction, found, **change, layer=2)


def test_other_mistakes_are_named(found: refusal.Activations) -> None:
    noise = made_up()
    for groups, said in (
        ([1, 2], "give one group a prompt; got 2 for 60 prompts"),
        ([1] * 60, "too few for 5 folds"),
        ([1, None] * 30, "the group of prompt 1 is missing"),
        ([1, "a"] * 30, "groups must be all text or all numbers"),
        ([(1, 2)] * 60, "a group is one value a prompt"),
    ):
        with pytest.raises(UserError, match=said):
            probe(noise, groups=groups)
    with pytest.raises(UserError, match="layer 3 was not captured; there are 2, 5"):
        refusal.fit_direction(noise, noise.labels, layer=3, positive="harmful")
    with pytest.raises(UserError, match="position 'post_1' was not captured; give one of inst_last, post_last, trig"):
        refusal.fit_direction(found, found.labels, layer=3, positive="harmful", position="post_1")
    with pytest.raises(UserError, match="no such probe: 'logistc'; expected one of"):
        probe(noise).plot("logistc")
