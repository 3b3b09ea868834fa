"""Sampling: token frequencies, the same response for the same seed, and log-probabilities equal to a full pass."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.decoding import SampledResponse, draw, nucleus
from extract.model.padded_batch import Batch
from tests.extract.conftest import Build, pushed, quick_and_slow, rows
from tests.support.one_line import mistake

STEPS = 12


def distribution(weights: list[float]) -> Tensor:
    return torch.tensor([weights]) / sum(weights)


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=30), st.floats(0.05, 1.0))
def test_the_nucleus_is_the_fewest_tokens_that_reach_top_p(weights: list[float], top_p: float) -> None:
    p = distribution(weights)
    kept = nucleus(p, top_p)
    inside = kept[0] > 0
    assert torch.equal(kept[0][inside], p[0][inside])
    assert float(kept.sum()) >= top_p - 1e-4
    assert float(kept.sum() - kept[0][inside].min()) < top_p + 1e-4
    assert bool(p[0][inside].min() >= p[0][~inside].max()) if bool((~inside).any()) else True


@given(st.lists(st.sampled_from([0.0, 0.1, 0.3, 1.0]), min_size=2, max_size=12).filter(any))
def test_tokens_are_drawn_as_often_as_they_are_probable(weights: list[float]) -> None:
    n, p = 4000, distribution(weights)
    uniform = (torch.arange(n) + 0.5) / n
    found = torch.bincount(draw(p.expand(n, -1), uniform), minlength=len(weights)) / n
    assert bool(((found - p[0]).abs() <= 2 / n).all())
    assert not found[p[0] == 0].any()


def test_no_impossible_token_is_drawn_at_either_end() -> None:
    p = torch.tensor([[0.0, 0.7, 0.3, 0.0, 0.0]]).expand(2, -1)
    assert draw(p, torch.tensor([0.0, 1 - 2**-24])).tolist() == [1, 2]
    assert draw(p, torch.tensor([0.999, 0.999]), top_p=0.5).tolist() == [1, 1]


def sampled(model: ChatModel, rows: list[Rendered], seeds: list[int], **given: object) -> list[SampledResponse]:
    return model.sample(model.batch(rows), STEPS, seeds, **given)


def forced(model: ChatModel, row: Rendered, response: SampledResponse) -> Tensor:
    """What a whole pass gives the tokens, and the end if there was one."""
    end = [model.eos_ids[0]] if response.ended else []
    tokens = torch.tensor([[*row.token_ids, *response.token_ids, *end]])
    log_probs = model.logits(Batch(tokens, torch.ones_like(tokens), len(row.token_ids))).float().log_softmax(-1)
    first = len(row.token_ids)
    return log_probs[0, first - 1 : -1].gather(1, tokens[0, first:, None])[:, 0]


@pytest.mark.parametrize("name", quick_and_slow("llama gpt2 organism", "gemma2 qwen3 mistral"))
def test_log_probabilities_are_those_of_a_whole_pass_also_under_edits(name: str, tiny: Build) -> None:
    model = tiny(name)
    prompts, plain = rows(model), None
    for edits in ([], [pushed(model)]):
        with model.editing(edits):
            drawn = sampled(model, prompts, [1, 2, 3, 4], temperature=1.7, top_p=0.9)
            expected = [forced(model, row, one) for row, one in zip(prompts, drawn, strict=True)]
        for one, known in zip(drawn, expected, strict=True):
            assert len(one.log_probs) == len(one.token_ids) + one.ended
            assert one.ended or len(one.token_ids) == STEPS
            torch.testing.assert_close(torch.tensor(one.log_probs), known, atol=2e-4, rtol=1e-4)
        assert drawn != plain
        plain = drawn


def test_all_backends_draw_the_same(tiny: Build) -> None:
    ours = sampled(tiny("organism"), rows(tiny("organism")), [1, 2, 3, 4])
    for backend in ("nnsight", "transformer_lens"):
        model = tiny("organism", backend)
        theirs = sampled(model, rows(model), [1, 2, 3, 4])
        assert [one.token_ids for one in theirs] == [one.token_ids for one in ours]
        for one, other in zip(ours, theirs, strict=True):
            assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)


@pytest.mark.parametrize("name", quick_and_slow("llama gpt2", "organism"))
def test_the_same_seed_gives_the_same_response_in_any_batch(name: str, tiny: Build) -> None:
    model = tiny(name)
    prompts, seeds = rows(model), [11, 12, 13, 14]
    together = sampled(model, prompts, seeds)
    alone = [sampled(model, [row], [seed])[0] for row, seed in zip(prompts, seeds, strict=True)]
    backwards = sampled(model, prompts[::-1], seeds[::-1])[::-1]
    assert [one.token_ids for one in together] == [one.token_ids for one in alone]
    assert [one.token_ids for one in together] == [one.token_ids for one in backwards]
    assert [one.token_ids for one in sampled(model, prompts, [21, 22, 23, 24])] != [one.token_ids for one in together]


def test_first_tokens_come_as_the_model_has_them_and_not_where_all_seeds_are_one(tiny: Build) -> None:
    model, n = tiny("organism"), 400
    row = rows(model)[3]
    expected = model.logits(model.batch([row]))[0, -1].div(3.0).softmax(-1)  # a flat enough distribution
    tokens = expected.topk(3).indices

    def distance(seeds: list[int]) -> float:
        drawn = model.sample(model.batch([row] * n), 1, seeds, temperature=3.0)
        first = torch.tensor([(*one.token_ids, model.eos_ids[0])[0] for one in drawn])
        found = torch.stack([(first == token).float().mean() for token in tokens])
        spread = (expected[tokens] * (1 - expected[tokens]) / n).sqrt()
        return float(((found - expected[tokens]) / spread).abs().max())

    assert distance(list(range(n))) < 4
    assert distance([7] * n) > 4  # a broken control: one number for all


def test_each_row_has_its_own_temperature_and_nucleus(tiny: Build) -> None:
    model, seeds = tiny("llama"), [5, 6, 7, 8]
    prompts = rows(model)
    mixed = sampled(model, prompts, seeds, temperature=[0.0, 1.0, 2.0, 1.0], top_p=[1.0, 1.0, 1.0, 0.5])
    assert list(mixed[0].token_ids) == model.generate(model.batch(prompts), STEPS)[0]
    for i, own in ((1, {}), (2, {"temperature": 2.0}), (3, {"top_p": 0.5})):
        assert mixed[i].token_ids == sampled(model, prompts, seeds, **own)[i].token_ids
    assert mixed[2].token_ids != sampled(model, prompts, seeds)[2].token_ids


def test_nearly_no_temperature_or_a_tiny_nucleus_is_greedy(tiny: Build) -> None:
    model = tiny("llama")
    prompts = rows(model)
    greedy = [tuple(tokens) for tokens in model.generate(model.batch(prompts), STEPS)]
    for settings in ({"temperature": 1e-4}, {"temperature": 1e-40}, {"top_p": 1e-6}, {"top_p": 5e-324}):
        assert [one.token_ids for one in sampled(model, prompts, [1, 2, 3, 4], **settings)] == greedy


def test_any_of_several_ends_ends(tiny: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    prompts, ends = rows(model), list(range(0, model.model.config.vocab_size, 3))
    monkeypatch.setattr(ChatModel, "eos_ids", ends)
    found = sampled(model, prompts, [1, 2, 3, 4])
    assert sum(one.ended for one in found) >= 2
    for one in found:
        assert not set(one.token_ids) & set(ends)
        assert len(one.log_probs) == len(one.token_ids) + one.ended
        assert one.log_prob == pytest.approx(sum(one.log_probs))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"temperature": -1.0}, "temperature is -1; give a finite number, 0 (the likeliest token) or above"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"top_p": 0.0}, "top_p is 0; give a probability above 0 and at most 1"),
        ({"top_p": 1.5}, "top_p is 1.5; give a probability"),
    ],
)
def test_invalid_sampling_settings_are_refused(given: dict[str, float], message: str, tiny: Build) -> None:
    model = tiny("llama")
    assert message in mistake(sampled, model, rows(model), [1, 2, 3, 4], **given)
