"""The layer that all categories share, the span of their directions, and what a trajectory adds at each layer."""

import numpy as np
import pytest
import torch

from experiments.categories.fits import choose_layer
from experiments.categories.tradeoff import OTHER, Trajectories
from extract.model.edit import Pass

NAN = float("nan")
SHIFT = {"theft": {1: np.array([1.0, 0.0, 0.0]), 3: np.array([2.0, 1.0, 0.0]), 4: np.array([2.0, 1.0, 4.0])}}


@pytest.mark.parametrize(
    ("stopped", "chosen"),
    [
        ([[0.0, 1.0, 0.4], [0.1, 0.0, 0.9]], (2, 0.65)),  # the best for all categories together
        ([[0.0, 0.97, 1.0]], (1, 0.97)),  # a tie: the earlier one
        ([[0.0, 0.9, 1.0]], (2, 1.0)),
        ([[NAN, NAN], [0.0, 0.8], [0.0, 0.8]], (1, 0.8)),  # no validation prompts, no say
        ([[NAN, NAN], [NAN, NAN]], (0, 0.0)),
    ],
)
def test_the_layer_is_the_one_that_stops_most_of_all_categories(stopped, chosen) -> None:
    assert choose_layer(np.array(stopped)) == pytest.approx(chosen)


@pytest.mark.parametrize("strength", [0.25, 1.0])
def test_what_a_trajectory_adds_over_the_layers_sums_up_to_the_last_difference(strength) -> None:
    added, trajectories = {}, Trajectories(SHIFT, (1, 3, 4), {}, {})
    for edit in trajectories.edits("theft", strength):
        stream = edit.function(torch.zeros(1, 2, 3), Pass(start=0, length=2, prompt_length=2))
        assert not stream[0, 0].any()  # tokens before the last are as they were
        added[edit.layer] = stream[0, -1].numpy()
    assert list(added) == [1, 3, 4]
    np.testing.assert_allclose(added[1], strength * SHIFT["theft"][1])
    np.testing.assert_allclose(sum(added.values()), strength * SHIFT["theft"][4])
    assert trajectories.edits(OTHER, strength) == []  # a prompt of no task is left as it is
