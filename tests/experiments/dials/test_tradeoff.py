"""Policies compared: hypervolumes on test, frontiers chosen off test, differences with intervals."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.dials.counterfactuals import Counterfactuals, reachable_outcomes
from experiments.dials.surface import Surface, axes_of, rates_of
from experiments.dials.text import two_dials_line
from experiments.dials.tradeoff import (
    MOST_POINTS,
    Policy,
    draw_groups,
    evaluate_policy,
    frontier,
    hypervolume_difference,
    hypervolume_estimate,
)
from experiments.run.corpus import Corpus
from probes.statistics.threshold_candidates import candidate_thresholds
from scoring.estimate import Estimate
from tests.experiments.dials.test_operating_point import corpus_of, risks, surface_of, table_of


def one_knob(corpus: Corpus, table: Counterfactuals, *, mixes: bool) -> Counterfactuals:
    """One dial on the more suspicious of both reads; where it `mixes`, permitting leaves half of all declining."""
    p = table.probability.max(axis=0)
    declined = np.where(corpus.uncertain, "abstain", "refuse")
    permitted = np.where(np.arange(len(corpus)) % 2 == 0, declined, "answer") if mixes else np.full(len(p), "answer")
    actions = np.stack([declined, permitted], axis=1).astype(object)
    return Counterfactuals(
        ("either",), reachable_outcomes(1, dead_band=False), p[None], actions, np.zeros(actions.shape, bool)
    )


def measured(corpus: Corpus, table: Counterfactuals, surface: Surface, name: str) -> Policy:
    test = np.flatnonzero(corpus.within("test"))
    weights = np.zeros((len(corpus), 100))
    weights[test] = draw_groups(corpus.groups[test], 100, 0)
    kept = frontier(surface, risks(table, corpus, "train"))
    return evaluate_policy(name, surface.at(kept), risks(table, corpus, "test"), weights)


def single(corpus: Corpus, table: Counterfactuals, *, mixes: bool) -> Policy:
    made = one_knob(corpus, table, mixes=mixes)
    chosen = corpus.within("train")
    thresholds = candidate_thresholds(made.probability[0][chosen], ~corpus.benign[chosen], 24)
    return measured(corpus, made, Surface.over(made, [thresholds]), "one_dial")


def test_two_dials_that_do_what_one_does_buy_nothing() -> None:
    corpus = corpus_of(120)
    table = table_of(corpus, spread=0.3)
    difference = hypervolume_difference(
        measured(corpus, table, surface_of(table, corpus), "two"), single(corpus, table, mixes=False)
    )
    assert difference.interval.low <= 0 <= difference.interval.high
    assert abs(difference.interval.estimate) < 0.02
    assert "Two dials do not do better than one" in two_dials_line(difference)


def test_two_dials_that_do_more_are_found_out() -> None:
    corpus = corpus_of(120)
    table = table_of(corpus, spread=0.3)
    difference = hypervolume_difference(
        measured(corpus, table, surface_of(table, corpus), "two"), single(corpus, table, mixes=True)
    )
    assert difference.interval.low > 0.1
    assert two_dials_line(difference).startswith("Two dials do better than one: hypervolume +0.")
    found = difference.interval
    turned = Estimate(estimate=-found.estimate, low=-found.high, high=-found.low)
    assert two_dials_line(turned).startswith("One dial does better than two here: hypervolume -0.")


def test_the_frontier_is_chosen_without_test() -> None:
    corpus = corpus_of(80)
    table = table_of(corpus)
    surface, choice = surface_of(table, corpus), risks(table, corpus, "train")
    kept = frontier(surface, choice)
    spoiled = replace(table, actions=table.actions.copy())
    spoiled.actions[corpus.within("test")] = "other"
    np.testing.assert_array_equal(frontier(surface, risks(spoiled, corpus, "train")), kept)
    assert 1 < len(kept) <= MOST_POINTS
    points, all_points = axes_of(rates_of(surface.at(kept), choice)), axes_of(rates_of(surface, choice))
    for point in points:
        assert not ((all_points <= point).all(axis=1) & (all_points < point).any(axis=1)).any()


def test_groups_are_drawn_whole() -> None:
    groups = np.array([3, 3, 3, 5, 5, 9])
    counts = draw_groups(groups, 400, 0)
    assert counts.shape == (6, 400)
    assert (counts[0] == counts[1]).all()
    assert (counts[3] == counts[4]).all()
    assert (counts[[0, 3, 5]].sum(axis=0) == 3).all()
    assert counts.mean() == pytest.approx(1.0, abs=0.1)


def test_the_plain_model_is_a_point_of_every_policy() -> None:
    corpus = corpus_of(60)
    table = table_of(corpus)
    two = measured(corpus, table, surface_of(table, corpus), "two")
    plain = Policy("plain", np.array([[0.2, 0.1, 0.6]]), np.full((100, 1, 3), [0.2, 0.1, 0.6]))
    both = two.with_plain(plain)
    assert len(both.points) == len(two.points) + 1
    assert both.volume >= max(two.volume, plain.volume)
    record = hypervolume_estimate(plain)
    assert record.estimate == record.low == record.high == pytest.approx(0.8 * 0.9 * 0.4)
