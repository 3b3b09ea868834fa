"""Products of directions are told from directions and from nothing."""

import numpy as np
import pytest

from probes.nonlinear_read import NonlinearRead, nonlinear_read

N, D = 160, 24


def read(kind: str, seed: int) -> NonlinearRead:
    """Plant two binary coordinates at the second of two layers; the label is one of them, their product, or neither."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(N // 2), 2)
    a, b = rng.choice([-1.0, 1.0], (2, N))
    layers = [rng.standard_normal((N, D)) for _ in range(2)]
    layers[1][:, 0] += 3 * a
    layers[1][:, 1] += 3 * b
    label = {"direction": a, "product": a * b, "nothing": rng.choice([-1.0, 1.0], N)}[kind] > 0
    strata = np.where(rng.random(N) < 0.5, "x", "y")
    for layer in layers:
        layer[strata == "x"] += 5.0  # content that differs between strata reads nothing within them
    return nonlinear_read(layers, label, groups, strata, n=99, seed=seed)


@pytest.mark.parametrize(("kind", "only_products"), [("product", 1.0), ("direction", 0.0), ("nothing", 0.0)])
def test_only_a_product_is_read_by_products_alone(kind: str, only_products: float) -> None:
    found = [read(kind, seed) for seed in range(12)]
    assert np.mean([of.only_products for of in found]) == pytest.approx(only_products, abs=0.2)


def test_each_read_sees_what_it_can() -> None:
    product, direction = read("product", 1), read("direction", 1)
    assert product.quadratic > 0.9
    assert product.linear < 0.7
    assert direction.linear > 0.9
    assert direction.p_linear == 0.01


@pytest.mark.simulation
def test_p_values_are_uniform_without_information() -> None:
    found = [read("nothing", seed) for seed in range(100)]
    for p in ([of.p_linear for of in found], [of.p_quadratic for of in found]):
        for level in (0.05, 0.2, 0.5):
            assert np.mean(np.array(p) <= level) == pytest.approx(level, abs=2.8 * np.sqrt(level * (1 - level) / 100))
