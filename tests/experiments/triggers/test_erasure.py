"""Erasure of the trigger label: properties of the eraser, and the eraser as an edit of a model."""

import numpy as np
import pytest
import torch

from experiments.triggers.erasure import fit_eraser
from extract.model.edit import Pass

RNG = np.random.default_rng(0)
N, D = 400, 12
Y = np.arange(N) % 2 == 0
X = RNG.standard_normal((N, D)) @ RNG.standard_normal((D, D)) + np.outer(Y, RNG.standard_normal(D)) * 3 + 5


def test_class_means_are_alike_afterwards_one_dimension_is_taken_once_and_less_is_changed_than_by_projecting() -> None:
    eraser = fit_eraser(X, Y, 0).eraser
    erased = eraser(X)
    assert np.abs(X[Y].mean(0) - X[~Y].mean(0)).max() > 1
    assert erased[Y].mean(0) == pytest.approx(erased[~Y].mean(0), abs=1e-8)
    assert erased.mean(0) == pytest.approx(X.mean(0), abs=1e-8)
    assert eraser(erased) == pytest.approx(erased, abs=1e-8)
    assert np.linalg.matrix_rank(X - erased, tol=1e-6) == 1
    theta = X[Y].mean(0) - X[~Y].mean(0)
    projected = X - np.outer((X - X.mean(0)) @ theta, theta) / (theta @ theta)
    assert ((eraser(X) - X) ** 2).sum() < ((projected - X) ** 2).sum()


def test_the_edit_is_the_same_map_from_the_last_prompt_token_on() -> None:
    eraser = fit_eraser(X, Y, 3)
    edit = eraser.edit("resid_post")
    stream = torch.tensor(X[:6].reshape(2, 3, D), dtype=torch.float32)
    out = edit.function(stream, Pass(0, 3, 3))
    assert torch.equal(out[:, :2], stream[:, :2])
    assert out[:, 2].numpy() == pytest.approx(eraser.eraser(stream[:, 2].numpy()), abs=1e-3)
    assert (edit.layer, edit.site) == (3, "resid_post")
    assert "LEACE" in edit.key
    assert edit.key != fit_eraser(X, np.roll(Y, 7), 3).edit("resid_post").key


def test_labels_that_nothing_follows_are_erased_to_almost_nothing_lost() -> None:
    """The control: an eraser of a label by chance leaves the streams nearly as they were."""
    noise = RNG.standard_normal((2000, D))
    assert ((fit_eraser(noise, RNG.random(2000) < 0.5, 0).eraser(noise) - noise) ** 2).sum() < 0.12 * (noise**2).sum()
