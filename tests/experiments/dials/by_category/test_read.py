"""The category of a prompt is recognised as at decode time; a training prompt by a probe that has not seen it."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments.dials.by_category.read import Recognised, fit_category_read
from experiments.run.corpus import Corpus
from extract.prompts.prompt import Prompt
from probes.direction import Locus

LOCUS = Locus("resid_post", 0, "post_last")


def run(name: list[str | None], X: np.ndarray, part: list[str]) -> Any:
    prompts = tuple(Prompt(str(i), ({"role": "user", "content": str(i)},), "benign", "answer", category=one)
                    for i, one in enumerate(name))  # fmt: skip
    corpus = Corpus(prompts, np.arange(len(name)), np.array(part, dtype=object))
    store = SimpleNamespace(read=lambda layer, position: X.astype(np.float32))
    return SimpleNamespace(corpus=corpus, store=store, config=SimpleNamespace(seed=0))


def fitted(loaded: Any) -> Recognised:
    found = fit_category_read(loaded, LOCUS)
    assert found is not None
    return found


@pytest.mark.parametrize("n_categories", [2, 3])
def test_what_is_recognised_offline_is_what_the_dials_recognise(n_categories: int) -> None:
    rng = np.random.default_rng(0)
    kinds = rng.integers(n_categories, size=240)
    X = rng.normal(size=(240, 12))
    X[np.arange(240), kinds] += 4.0
    part = ["train"] * 120 + ["test"] * 120
    loaded = run([f"c{k}" for k in kinds], X, part)
    found = fitted(loaded)
    assert found.read.names == tuple(f"c{k}" for k in range(n_categories))
    online = [name or "" for name in found.read.recognised(X[120:].astype(np.float32))]
    assert found.names[120:].tolist() == online
    share, right = found.right(loaded.corpus, loaded.corpus.within("test"))
    assert share > 0.3
    assert right > 0.95


def test_a_training_prompt_is_not_recognised_by_a_probe_that_has_seen_it() -> None:
    """Where categories are noise, a probe knows its own training prompts by heart, and nothing of others."""
    rng = np.random.default_rng(1)
    n, d = 120, 400
    name = [f"c{k}" for k in rng.integers(2, size=n)]
    loaded = run(name, rng.normal(size=(n, d)), ["train"] * n)
    found = fitted(loaded)
    X = loaded.store.read(0, "post_last")
    by_heart = [one == true for one, true in zip(found.read.recognised(X), name, strict=True)]
    assert np.mean(by_heart) > 0.95  # the control
    cross_fitted = found.names[found.names != ""]
    right = np.mean([one == true for one, true in zip(found.names, name, strict=True) if one])
    assert len(cross_fitted) < n
    assert right < 0.7


def test_small_categories_and_prompts_without_one_are_other() -> None:
    rng = np.random.default_rng(2)
    name = ["a"] * 40 + ["b"] * 40 + ["few"] * 6 + [None] * 6
    X = rng.normal(size=(92, 8))
    for rows, axis in ((slice(0, 40), 0), (slice(40, 80), 1), (slice(80, 92), 2)):
        X[rows, axis] += 6.0
    found = fitted(run(name, X, ["train"] * 92))
    assert found.read.names == ("", "a", "b")
    assert set(found.names[80:]) == {""}
    assert (found.names[:40] == "a").mean() > 0.7


def test_one_large_category_is_not_enough() -> None:
    X = np.zeros((50, 4))
    assert fit_category_read(run(["a"] * 40 + ["b"] * 10, X, ["train"] * 50), LOCUS) is None
    assert fit_category_read(run([None] * 50, X, ["train"] * 50), LOCUS) is None
