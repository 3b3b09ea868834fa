"""Policies compared: frontiers chosen off test, hypervolumes described, expected costs tested."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.simulations.two_dials import SAME, compare, draw
from experiments.dials.surface import (
    AXES,
    COST_RATIOS,
    MOST_POINTS,
    added_mistakes,
    axes_of,
    cheapest,
    cost_saved,
    cost_shares,
    frontier,
    least_losses,
    rates_of,
)
from experiments.dials.text import WORTH
from tests.experiments.dials.test_operating_point import risks, sample, surface_of
from tests.support.draws import draws

EQUAL = {"over_refusal": 1.0, "missed_harm": 1.0, "overconfidence": 1.0}


@pytest.mark.parametrize("case", SAME)
@draws(6, 200)
def test_two_dials_are_not_praised_for_their_many_settings(case, n_draws) -> None:
    """Both policies have one true frontier. The control: on noise the hypervolume of two dials is still larger."""
    made = [compare(draw(case, 60, seed), case == "noise") for seed in range(n_draws)]
    assert np.mean([saved.low > WORTH for saved, _ in made]) <= 0.025
    assert np.mean([saved.low > 0 for saved, _ in made]) <= 0.025 + 2 * np.sqrt(0.025 * 0.975 / n_draws)
    assert all(saved.high > saved.low for saved, _ in made)
    if case == "noise":
        assert np.mean([volume for _, volume in made]) > 0.01


def test_mistakes_add_up_over_labels_and_their_change_is_paired() -> None:
    labels = ["benign"] * 40 + ["harmful"] * 20 + ["uncertain"] * 20 + ["dual_use"] * 5
    before = np.array(
        ["refuse"] * 4 + ["answer"] * 36 + ["answer"] * 10 + ["refuse"] * 10 + ["answer"] * 25, dtype=object
    )
    after = before.copy()
    after[60:72] = "abstain"  # uncertain ones
    after[0] = "answer"
    after[45] = None  # unjudged: it counts at neither time
    found = added_mistakes(labels, before, after, np.arange(85))
    assert found is not None
    assert (found.before, found.after) == pytest.approx((0.1 + 9 / 19 + 1, 0.075 + 9 / 19 + 0.4))
    assert found.change.estimate == pytest.approx(found.after - found.before)
    assert found.change.low < found.change.estimate < found.change.high < 0
    assert found.change.n == 79
    assert added_mistakes(["benign"] * 40, before[:40], after[:40], np.arange(40)) is None


@pytest.mark.parametrize(("group_size", "correlation"), [(4, 0.3), (4, 1.0)])
@pytest.mark.parametrize("case", SAME)
@pytest.mark.simulation
def test_nor_in_clustered_prompts(case, group_size, correlation) -> None:
    made = [compare(draw(case, 120, seed, group_size, correlation), False)[0] for seed in range(120)]
    assert np.mean([saved.low > WORTH for saved in made]) <= 0.025


@draws(3, 60)
@pytest.mark.slow
def test_two_dials_that_do_more_are_found_out(n_draws) -> None:
    made = [compare(draw("real", 200, seed), False)[0] for seed in range(n_draws)]
    assert np.mean([saved.low > WORTH for saved in made]) > 0.9
    assert np.mean([saved.estimate for saved in made]) == pytest.approx(0.085, abs=0.02)


def test_the_frontier_is_chosen_without_test_and_settings_are_the_cheapest_on_the_choice_prompts() -> None:
    corpus, table = sample(80)
    surface, choice = surface_of(table, corpus), risks(table, corpus, "train")
    kept = frontier(surface, choice)
    spoiled = replace(table, actions=table.actions.copy())
    spoiled.actions[corpus.within("test")] = "other"
    np.testing.assert_array_equal(frontier(surface, risks(spoiled, corpus, "train")), kept)
    assert 1 < len(kept) <= MOST_POINTS
    points, all_points = axes_of(rates_of(surface.at(kept), choice)), axes_of(rates_of(surface, choice))
    for point in points:
        assert not ((all_points <= point).all(axis=1) & (all_points < point).any(axis=1)).any()
    shares = cost_shares(EQUAL)
    costs = axes_of(rates_of(surface, choice)) @ shares.T
    chosen = cheapest(surface, choice, shares)
    np.testing.assert_allclose(costs[chosen, range(len(shares))], costs.min(axis=0))
    found = least_losses(surface, choice, risks(table, corpus, "test"), EQUAL)
    on_test = axes_of(rates_of(surface.at(chosen), risks(table, corpus, "test")))
    assert found.expected_cost() == pytest.approx((on_test * shares).sum(axis=1).mean())
    assert sum(found.most.values()) == pytest.approx(1)


def test_cost_shares_keep_the_given_costs_at_every_ratio() -> None:
    shares = cost_shares({"over_refusal": 2.0, "missed_harm": 6.0, "overconfidence": 1.0})
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_allclose(shares[:, 1] / shares[:, 2], 6)
    np.testing.assert_allclose(shares[:, 0] / shares[:, 2], 2 * np.array(COST_RATIOS))
    np.testing.assert_allclose(cost_shares({"missed_harm": 0.0}), cost_shares(EQUAL))


def test_saved_costs_are_paired_and_leave_out_what_one_policy_has_unjudged() -> None:
    corpus, table = sample(50, spread=2.0)
    surface, choice, test = surface_of(table, corpus), risks(table, corpus, "train"), risks(table, corpus, "test")
    own = least_losses(surface, choice, test, EQUAL)
    same = cost_saved(own, own, corpus.groups)
    assert same.estimate == 0
    assert same.low < 0 < same.high
    worse = replace(own, loss=np.where(own.axis == AXES[0], own.most[AXES[0]], own.loss))
    lost = own.most[AXES[0]] - own.loss[own.axis == AXES[0]].mean()
    assert cost_saved(own, worse, corpus.groups).estimate == pytest.approx(lost)
    unjudged = replace(worse, loss=np.where(own.axis == AXES[0], np.nan, worse.loss))
    assert np.isnan(cost_saved(own, unjudged, corpus.groups).estimate)
    judged = np.arange(len(own.rows)) % 2 == 0
    half = replace(worse, loss=np.where(judged, worse.loss, np.nan))
    mine = (own.axis == AXES[0]) & judged
    assert cost_saved(own, half, corpus.groups).estimate == pytest.approx((worse.loss - own.loss)[mine].mean())
