"""Steering: zero is the baseline, a step is the class means' distance, blocks nest, and nothing is left behind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import refusal
from extract.chat.render import render
from extract.errors import UserError
from extract.prompts.prompt import Prompt
from tests.refusal.conftest import TEXTS
from tests.support.one_line import mistake


@pytest.fixture(scope="module", params=["organism", "tiny"])
def pair(request, model, harm, tiny) -> tuple[refusal.Model, refusal.Direction]:
    if request.param == "organism":
        return model, harm
    other = refusal.load_model(tiny)
    vector = np.random.default_rng(0).normal(size=other.d_model)
    locus = replace(harm.locus, layer=1)
    return other, replace(harm, vector=(vector / np.linalg.norm(vector)).astype(np.float32), locus=locus,
                          mean_positive=2.0, mean_negative=-1.0)  # fmt: skip


def logits(model: refusal.Model) -> torch.Tensor:
    prompts = [Prompt(text, ({"role": "user", "content": text},), "", "") for text in TEXTS]
    return model.logits(model.batch([render(model.tokenizer, prompt) for prompt in prompts]))


def projections(model: refusal.Model, direction: refusal.Direction, layer: int) -> np.ndarray:
    """Return the projection of every token of prompt and response, as (tokens, prompts)."""
    said = ["sure. start."] * len(TEXTS)
    found = model.activations(TEXTS, positions="all", layers=layer, responses=said, progress=False)
    return np.stack([direction.project(found.read(layer, position)) for position in found.positions])


def last_prompt(model: refusal.Model) -> list[int]:
    prompts = refusal.make_prompts(TEXTS, ["benign"] * len(TEXTS))
    return [len(render(model.tokenizer, prompt).token_ids) - 1 for prompt in prompts]


def test_a_scale_of_zero_is_the_baseline_bitwise(pair: tuple[refusal.Model, refusal.Direction]) -> None:
    model, direction = pair
    plain = logits(model)
    with model.steer(direction, scale=0, layers="all") as same:
        assert same is model
        assert torch.equal(logits(model), plain)
    with model.steer(direction, scale=1):
        assert not torch.equal(logits(model), plain)
    assert torch.equal(logits(model), plain)


@pytest.mark.parametrize("scale", [1.0, -0.5])
def test_adding_moves_the_projection_by_the_distance_from_the_last_prompt_token_on(pair, scale) -> None:
    model, direction = pair
    layer, step = direction.locus.layer, scale
    plain, ends = projections(model, direction, layer), last_prompt(model)
    with model.steer(direction, scale):
        moved = projections(model, direction, layer) - plain
    distance = direction.mean_positive - direction.mean_negative
    for i, end in enumerate(ends):
        np.testing.assert_allclose(moved[:end, i], 0, atol=1e-4)
        tail = moved[end:, i]
        np.testing.assert_allclose(tail[~np.isnan(tail)], step * distance, rtol=1e-4)


def test_affine_sets_the_projection_and_zero_removes_it(pair: tuple[refusal.Model, refusal.Direction]) -> None:
    model, direction = pair
    layer, ends = direction.locus.layer, last_prompt(model)
    plain = projections(model, direction, layer)
    low, high = direction.mean_negative, direction.mean_positive
    cases = [("affine", 0, low), ("affine", 1, high), ("affine", 0.5, (low + high) / 2), ("zero", None, 0.0)]
    for form, scale, expected in cases:
        with model.steer(direction, scale, form=form):
            there = projections(model, direction, layer)
        for i, end in enumerate(ends):
            np.testing.assert_allclose(there[:end, i], plain[:end, i], atol=1e-4)
            tail = there[end:, i]
            np.testing.assert_allclose(tail[~np.isnan(tail)], expected, atol=1e-3)
    with model.steer(direction, form="zero", tokens="all", layers="all"):
        everywhere = projections(model, direction, layer)
    np.testing.assert_allclose(everywhere[~np.isnan(everywhere)], 0, atol=1e-3)


def test_blocks_nest_and_end_in_any_order(model: refusal.Model, harm: refusal.Direction) -> None:
    layer = harm.locus.layer
    plain = projections(model, harm, layer)
    distance = harm.mean_positive - harm.mean_negative
    with model.steer(harm, 1), model.steer(harm, 0.5):
        both = projections(model, harm, layer)
    end = last_prompt(model)[0]
    np.testing.assert_allclose((both - plain)[end, 0], 1.5 * distance, rtol=1e-4)
    first, second = model.steer(harm, 1), model.steer(harm, 0.5)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    np.testing.assert_allclose((projections(model, harm, layer) - plain)[end, 0], 0.5 * distance, rtol=1e-4)
    second.__exit__(None, None, None)
    assert model.edits == ()


def oblique(harm: refusal.Direction, cosine: float) -> refusal.Direction:
    across = np.random.default_rng(1).standard_normal(len(harm.vector))
    across -= (across @ harm.vector) * harm.vector
    vector = cosine * harm.vector + np.sqrt(1 - cosine**2) * across / np.linalg.norm(across)
    return replace(harm, vector=vector.astype(np.float32), mean_positive=4.0, mean_negative=-5.0)


@pytest.mark.parametrize("outer", ["last_prompt", "last_on", "all"])
@pytest.mark.parametrize("inner", ["last_prompt", "last_on", "all"])
def test_an_inner_block_does_not_move_what_an_outer_one_sets(model, harm, outer, inner) -> None:
    other, layer = oblique(harm, -0.5), harm.locus.layer
    with model.steer(harm, form="zero", tokens=outer):
        alone = projections(model, harm, layer)
        with model.steer(other, 1, form="affine", tokens=inner):
            both = {name: projections(model, d, layer) for name, d in (("outer", harm), ("inner", other))}
        assert np.array_equal(projections(model, harm, layer), alone, equal_nan=True)
    end, reach = last_prompt(model)[0], {"last_prompt": (0, 1), "last_on": (0, 3), "all": (-4, 3)}
    for name, tokens, goal in (("outer", outer, 0.0), ("inner", inner, 4.0)):
        first, after = reach[tokens]
        np.testing.assert_allclose(both[name][end + first : end + after, 0], goal, atol=1e-3)


def test_an_outer_block_that_has_ended_is_not_kept(model: refusal.Model, harm: refusal.Direction) -> None:
    other, layer, end = oblique(harm, -0.5), harm.locus.layer, last_prompt(model)[0]
    with model.steer(other, 1, form="affine"):
        wanted = projections(model, harm, layer)
    outer, inner = model.steer(harm, form="zero"), model.steer(other, 1, form="affine")
    outer.__enter__()
    inner.__enter__()
    assert abs(projections(model, harm, layer)[end, 0]) < 1e-3
    outer.__exit__(None, None, None)
    np.testing.assert_allclose(projections(model, harm, layer), wanted)
    inner.__exit__(None, None, None)
    assert model.edits == ()


def test_of_two_blocks_along_one_direction_the_inner_one_sets_it(model: refusal.Model, harm: refusal.Direction) -> None:
    with model.steer(harm, form="zero"), model.steer(harm, 1, form="affine"):
        found = projections(model, harm, harm.locus.layer)
    assert found[last_prompt(model)[0], 0] == pytest.approx(harm.mean_positive, abs=1e-3)


def test_layers_given_twice_are_steered_once(model: refusal.Model, harm: refusal.Direction) -> None:
    with model.steer(harm, 1, layers=[4, np.int64(4)]):
        twice = logits(model)
    with model.steer(harm, 1, layers=4):
        assert torch.equal(logits(model), twice)
    with model.steer(harm, 1, layers=0):  # a layer, not "none given"
        assert not torch.equal(logits(model), twice)


def test_an_exception_leaves_the_model_as_it_was(model: refusal.Model, harm: refusal.Direction) -> None:
    plain = logits(model)
    with pytest.raises(KeyError), model.steer(harm, 1):
        raise KeyError
    assert torch.equal(logits(model), plain)
    with pytest.raises(UserError), model.steer(harm, 1), model.steer(harm, 1, layers=99):
        pass
    assert model.edits == ()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"scale": 1, "layers": 8}, "layer 8 does not exist: organisms/zoo/two-knobs has layers 0 to 7"),
        ({"form": "zero", "scale": 0.5}, "takes no scale"),
        ({"form": "ablate"}, "no such form: 'ablate'; expected add, zero or affine"),
        ({"scale": 1, "tokens": "last"}, "no such scope of tokens: 'last'; expected one of last_prompt, last_on, all"),
        ({"scale": float("nan")}, "give a finite scale, got nan"),
        ({}, "give a finite scale, got None"),
        ({"form": "affine"}, "give a finite scale, got None"),
        ({"direction": np.zeros(128)}, "give one Direction, as of fit_direction; got ndarray"),
    ],
)
def test_a_mistake_is_named(model: refusal.Model, harm: refusal.Direction, arguments: dict, said: str) -> None:
    assert said in mistake(lambda: model.steer(**{"direction": harm} | arguments).__enter__())
    assert model.edits == ()


def test_a_direction_of_another_width_and_a_store_inside_a_block_are_refused(harm, tiny, model, tmp_path) -> None:
    other = refusal.load_model(tiny)
    said = r"the direction 'harmful' has 128 numbers; .* has d_model"
    with pytest.raises(UserError, match=said), other.steer(harm, 1):
        pass
    with model.steer(harm, 1), pytest.raises(UserError, match="leave the block that steers"):
        refusal.extract(model, TEXTS, tmp_path / "a.h5")
    assert not (tmp_path / "a.h5").exists()
