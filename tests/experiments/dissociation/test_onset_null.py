"""The null direction sampler takes the best-ranked direction that does not break the model; p values of the null."""

from types import SimpleNamespace

import numpy as np
import pytest

from experiments.dissociation.measured_effects import NullEffects, numbers
from experiments.dissociation.onset_null import NullDirectionSampler
from probes.direction import Direction, Locus


def direction(layer: int) -> Direction:
    return Direction("d", np.eye(4)[0], Locus("resid_post", layer, "post_last"), 1.0, -1.0)


@pytest.mark.parametrize(
    ("harm", "chosen"), [([0.0, 0.0, 0.0], 0), ([0.5, 0.05, 0.0], 1), ([0.5, 0.9, 0.1], 2), ([3.0, 0.4, 2.0], 1)]
)
def test_a_direction_that_breaks_the_model_is_skipped(
    harm: list[float], chosen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order of rank; if all break the model, the one with the least harm."""
    ranked = [direction(layer) for layer in range(3)]
    samples = SimpleNamespace(declined=np.array([True, False]), strata=np.array(["a", "a"]))
    sampler = object.__new__(NullDirectionSampler)
    sampler._fitter = SimpleNamespace(samples=samples, fit=lambda labels: ranked)  # type: ignore[assignment]
    sampler._rng, sampler._config = np.random.default_rng(0), SimpleNamespace(max_kl=0.1)  # type: ignore[assignment]
    monkeypatch.setattr(NullDirectionSampler, "_ranked", lambda self, fitted: list(fitted))
    monkeypatch.setattr(NullDirectionSampler, "_harm", lambda self, direction: harm[direction.locus.layer])
    assert sampler.draw() is ranked[chosen]


def test_p_counts_the_direction_itself_and_ties() -> None:
    null = NullEffects(observed=3.0, drawn=(1.0, 3.0, 5.0, 2.0), generated=())
    assert null.p == pytest.approx(3 / 5)


def test_what_is_not_finite_is_null_in_json() -> None:
    null = NullEffects(observed=3.0, drawn=numbers([1.0, float("nan"), 5.0, float("nan")]), generated=())
    assert null.drawn == (1.0, None, 5.0, None)


@pytest.mark.parametrize(
    ("observed", "drawn", "p"),
    [(3.0, (1.0, 2.0, 4.0), 0.5), (None, (1.0, 2.0, 4.0), 1.0), (3.0, (1.0, None, 2.0), 0.5), (3.0, (1.0, 2.0), 1 / 3)],
)
def test_what_is_not_finite_never_makes_an_effect_rarer(
    observed: float | None, drawn: tuple[float | None, ...], p: float
) -> None:
    assert NullEffects(observed=observed, drawn=drawn, generated=()).p == pytest.approx(p)
