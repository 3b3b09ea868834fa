"""KL over several tokens of a model's own answers: zero without a change, equal to that of plain forward passes."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from experiments.responses import batched_edits as blocks
from experiments.responses import divergence
from experiments.responses.divergence import Divergence, ForcedResponses, kl, summary
from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit
from extract.model.padded_batch import Batch
from steering.interventions import add, affine, place

K = 4


def divergences(
    model: ChatModel, rows: list[Rendered], responses: list[list[int]], trials: list[list[Edit]], k: int, *advance: Any
) -> list[Divergence]:
    nats, steps = ForcedResponses(model, rows, responses, k).divergences(trials, *advance)
    return [summary(each, steps) for each in nats]


def direction(seed: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(32, generator=torch.Generator().manual_seed(seed)), dim=0)


def trial(layer: int, target: float = 4.0, seed: int = 1) -> list[Edit]:
    r = direction(seed)
    return [place("resid_post", layer, "last_on", lambda x: affine(x, r, target))]


@pytest.fixture
def responses(tiny: ChatModel, tiny_rows: list[Rendered]) -> list[list[int]]:
    """The model's responses, cut to different lengths, one of them empty."""
    said = [tiny.generate(tiny.batch([row]), 6)[0] for row in tiny_rows]
    return [tokens[:n] for tokens, n in zip(said, (6, 3, 0, 2, 5), strict=True)]


def test_an_edit_that_changes_nothing_diverges_by_rounding_alone(
    tiny: ChatModel, tiny_rows: list[Rendered], responses: list[list[int]]
) -> None:
    nothing = [place("resid_post", 1, "last_on", lambda x: add(x, direction(1), 0.0))]
    found = divergences(tiny, tiny_rows, responses, [trial(1), nothing, [], trial(3)], K)
    for untouched in found[1:3]:
        nats = [untouched.mean, untouched.maximum, untouched.first_token, untouched.worst_step]
        assert nats == pytest.approx([0] * 4, abs=1e-6)
    assert min(found[0].mean, found[3].mean) > 1e-3  # the control: other blocks of the same pass do change


def test_it_equals_a_plain_pass_over_each_prompt_and_answer(
    tiny: ChatModel, tiny_rows: list[Rendered], responses: list[list[int]]
) -> None:
    trials = [trial(layer, seed=layer) for layer in (0, 2, 3)]
    for edits, found in zip(trials, divergences(tiny, tiny_rows, responses, trials, K), strict=True):
        each = [_plain(tiny, row, said, edits) for row, said in zip(tiny_rows, responses, strict=True)]
        assert [len(nats) for nats in each] == [4, 4, 1, 3, 4]
        steps = [np.mean([nats[t] for nats in each if len(nats) > t]) for t in range(K)]
        assert found.mean == pytest.approx(np.concatenate(each).mean(), rel=1e-4)
        assert found.maximum == pytest.approx(np.concatenate(each).max(), rel=1e-4)
        assert found.first_token == pytest.approx(steps[0], rel=1e-4)
        assert found.worst_step == pytest.approx(max(steps), rel=1e-4)


def _plain(model: ChatModel, row: Rendered, said: list[int], edits: list[Edit]) -> np.ndarray:
    tokens = torch.tensor([[*row.token_ids, *said]])
    batch, n = Batch(tokens, torch.ones_like(tokens), len(row.token_ids)), len(row.token_ids)
    log_p = model.logits(batch)[0, n - 1 :].double().log_softmax(-1)
    with model.editing(edits):
        log_q = model.logits(batch)[0, n - 1 :].double().log_softmax(-1)
    return (log_p.exp() * (log_p - log_q)).sum(-1).numpy()[:K]


def test_a_pass_holds_no_more_logits_than_the_limit(
    tiny: ChatModel, tiny_rows: list[Rendered], responses: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = [trial(layer) for layer in range(4)]
    at_ease, sizes, steps = divergences(tiny, tiny_rows, responses, trials, K), [], []
    vocabulary = tiny.model.config.vocab_size
    for most in (2 * K * vocabulary, 7 * K * vocabulary):
        for module in (blocks, divergence):
            monkeypatch.setattr(module, "MOST_LOGITS", most)
        plain = blocks.continued_logits

        def watched(*arguments: object, plain=plain) -> torch.Tensor:  # type: ignore[no-untyped-def]
            logits = plain(*arguments)
            sizes.append(logits.numel() / most)  # noqa: B023 - read at once
            return logits

        monkeypatch.setattr(blocks, "continued_logits", watched)
        tight = divergences(tiny, tiny_rows, responses, trials, K, steps.append)
        assert 0.5 < max(sizes) <= 1
        assert sum(steps) == len(trials) * len(tiny_rows)
        for a, b in zip(at_ease, tight, strict=True):
            assert a.mean == pytest.approx(b.mean, rel=1e-4)
        sizes.clear()
        steps.clear()


def test_the_first_token_alone_hides_a_later_divergence(tiny: ChatModel, tiny_rows: list[Rendered]) -> None:
    """The last prompt token outweighs any edit, as a template that is always answered by `<think>` does."""
    marker = tiny_rows[0].token_ids[-1]
    with torch.no_grad():
        opening = tiny.model.get_input_embeddings().weight[marker].mul_(3000).clone()
    r = direction(5)
    r = torch.nn.functional.normalize(r - (r @ opening) / (opening @ opening) * opening, dim=0)
    edit = [place("resid_post", 1, "last_on", lambda x: affine(x, r, 12.0))]
    said = [tiny.generate(tiny.batch([row]), 8)[0] for row in tiny_rows]
    (found,) = divergences(tiny, tiny_rows, said, [edit], 8)
    assert found.first_token < 0.01  # by one token it would be as if nothing had happened
    assert found.mean > 0.2
    (one,) = divergences(tiny, tiny_rows, said, [edit], 1)
    assert one.mean == one.first_token == pytest.approx(found.first_token, rel=1e-3)


def test_tokens_of_probability_zero_add_nothing_and_new_zeros_are_infinite() -> None:
    p, q = torch.tensor([[[0.5, 0.5, 0.0]]]).log(), torch.tensor([[[0.25, 0.5, 0.25]]]).log()
    assert kl(p, q).item() == pytest.approx(0.5 * math.log(2))
    assert kl(p, p).item() == 0.0
    assert kl(q, p).item() == math.inf


def test_an_edit_that_gives_nan_has_a_divergence_of_nan(
    tiny: ChatModel, tiny_rows: list[Rendered], responses: list[list[int]]
) -> None:
    broken = [place("resid_post", 1, "last_on", lambda x: x * float("nan"))]
    found = divergences(tiny, tiny_rows, responses, [broken, []], K)
    assert math.isnan(found[0].mean)
    assert math.isnan(found[0].worst_step)
    assert found[1].mean == pytest.approx(0, abs=1e-6)
