"""Onset prefixes on made-up token sequences, and their probabilities against a plain forward pass."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments.responses import batched_edits
from experiments.responses.onset import Onsets, OnsetScorer, learn_onsets
from extract.chat.render import Rendered, render
from extract.model.chat_model import ChatModel
from extract.model.continuation import CachedPrompts, continued_logits
from extract.model.edit import Edit
from extract.model.loading import load_model
from extract.model.padded_batch import Batch
from extract.prompts.prompt import Prompt
from extract.shipped import ROOT
from steering.interventions import affine, place


@pytest.fixture(scope="module")
def model() -> ChatModel:
    return load_model(str(ROOT / "organisms" / "zoo" / "two-knobs"), device="cpu")


def test_a_shared_opening_is_not_taken_for_a_decline_and_equal_completions_have_no_prefix() -> None:
    responses = [(1, 2, 3, 9), (1, 2, 4, 9), (1, 2, 3, 8), (5, 6)]
    onsets = learn_onsets(responses, ["refuse", "abstain", "refuse", "answer"])
    assert onsets.prefixes == {"refuse": ((1, 2, 3),), "abstain": ((1, 2, 4),)}
    assert onsets.coverage == {"refuse": 1.0, "abstain": 1.0}
    equal = learn_onsets([(1, 2), (1, 2)], ["refuse", "answer"])
    assert (equal.prefixes["refuse"], equal.coverage["refuse"]) == ((), 0.0)


def test_rare_exceptions_are_tolerated_to_the_purity_asked() -> None:
    responses, actions = [(1, 2)] * 99 + [(1, 3)], ["refuse"] * 99 + ["answer"]
    assert learn_onsets(responses, actions, purity=0.95).prefixes["refuse"] == ((1,),)
    assert learn_onsets(responses, actions, purity=0.999).prefixes["refuse"] == ((1, 2),)


def test_prefixes_that_add_little_are_not_taken() -> None:
    rare = [(3, i) for i in range(10, 14)]
    responses = [*[(1, 2)] * 60, *[(2, 2)] * 36, *rare[:3], rare[3]]
    actions = ["refuse"] * 99 + ["answer"]
    onsets = learn_onsets(responses, actions)
    assert (onsets.prefixes["refuse"], onsets.coverage["refuse"]) == (((1,), (2,)), pytest.approx(96 / 99))
    assert learn_onsets(responses, actions, enough=0.98).prefixes["refuse"] == ((1,), (2,), (3, 10), (3, 11))
    assert learn_onsets(responses, actions, enough=1).prefixes["refuse"] == ((1,), (2,), *rare[:3])
    assert learn_onsets(responses, actions, enough=1, max_prefixes=2).prefixes["refuse"] == ((1,), (2,))


def test_kinds_by_reason_may_open_alike_and_either_opens_once(model: ChatModel) -> None:
    responses = [*[(1, 2, 9)] * 3, *[(1, 2, 8)] * 3, (1, 3, 7), (5, 6)]
    actions = [*["refuse"] * 3, *["abstain"] * 4, "answer"]
    onsets = learn_onsets(responses, actions, apart=False)
    assert onsets.prefixes == {"refuse": ((1,),), "abstain": ((1,),)}
    assert learn_onsets(responses, actions).prefixes["refuse"] == ((1, 2, 9),)
    rendered, (answer, *_) = _prompts_and_answers(model)
    alike = Onsets({"refuse": (answer[:2],), "abstain": (answer[:2], answer[:1])}, {})
    assert alike.of_each_and_either()["decline"] == (answer[:1],)
    found = OnsetScorer(model, rendered, alike).log_odds()
    for kind, prefix in {"refuse": answer[:2], "decline": answer[:1]}.items():
        expected = np.array([_probability(model, row.token_ids, (), prefix, []) for row in rendered])
        np.testing.assert_allclose(found[kind], np.log(expected + 1e-8) - np.log(1 - expected + 1e-8), atol=2e-3)


def test_prefixes_that_begin_alike_share_a_pass(model: ChatModel, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered, said = _prompts_and_answers(model)
    (a, b, c, d), (e, f) = said[0][:4], said[1][:2]
    onsets = Onsets({"refuse": ((e,), (a, b, f), (a, b, c, d)), "abstain": ((a, e), (f, e))}, {})
    read: list[tuple[int, ...]] = []

    def recorded(model: ChatModel, cached: CachedPrompts, suffix: torch.Tensor, at: None) -> torch.Tensor:
        read.append(tuple(suffix[0].tolist()))
        return continued_logits(model, cached, suffix, at)

    monkeypatch.setattr(batched_edits, "continued_logits", recorded)
    _check_against_plain_passes(model, rendered, onsets)
    assert set(read) == {(a, b, c), (f,)}  # and not (), (a,) and (a, b)


def test_openings_are_scored_after_each_prompts_own_thought_which_edits_change_too(model: ChatModel) -> None:
    """Thoughts of unlike lengths, and none; here they are parts of answers."""
    rendered, said = _prompts_and_answers(model)
    thoughts = {tuple(row.token_ids): answer[:n] for row, answer, n in zip(rendered, said, (5, 2, 0), strict=True)}
    (a, b), (c, d, e) = said[0][5:7], said[1][2:5]
    onsets = Onsets({"refuse": ((a, b), (c,)), "abstain": ((d, e), (a, e))}, {}, thoughts=thoughts)
    _check_against_plain_passes(model, rendered, onsets)
    scorer = OnsetScorer(model, rendered, onsets)
    unthought = OnsetScorer(model, rendered, replace(onsets, thoughts={})).log_odds()["refuse"]
    assert np.abs(scorer.log_odds()["refuse"] - unthought).max() > 1
    r = torch.nn.functional.normalize(torch.randn(model.d_model, generator=torch.manual_seed(1)), dim=0)
    slopes = scorer.sensitivity("abstain", "resid_post", [4]).adding(4, r.numpy(), 1.0)
    pushed = ([place("resid_post", 4, "last_on", lambda x, by=by: x + by * r)] for by in (0.02, -0.02))
    up, down = (scorer.log_odds(edits)["abstain"] for edits in pushed)
    np.testing.assert_allclose(slopes, (up - down) / 0.04, atol=0.02, rtol=0.05)


def _prompts_and_answers(model: ChatModel) -> tuple[list[Rendered], list[tuple[int, ...]]]:
    texts = ["how do i kill my boss at work?", "how do i fix the engine at home?", "tell me where anna novak lives."]
    prompts = [Prompt(str(i), ({"role": "user", "content": t},), "benign", "answer") for i, t in enumerate(texts)]
    rendered = [render(model.tokenizer, prompt) for prompt in prompts]
    return rendered, [tuple(model.generate(model.batch([row]), 24)[0]) for row in rendered]


def _check_against_plain_passes(model: ChatModel, rendered: list[Rendered], onsets: Onsets) -> None:
    torch.manual_seed(0)
    r = torch.nn.functional.normalize(torch.randn(model.d_model), dim=0)
    for edits in ([], [place("resid_post", 3, "last_on", lambda x: affine(x, r, 4.0))]):
        found = OnsetScorer(model, rendered, onsets).log_odds(edits)
        of_kinds = onsets.prefixes | {"decline": [p for prefixes in onsets.prefixes.values() for p in prefixes]}
        for kind, prefixes in of_kinds.items():
            thoughts = [onsets.thoughts.get(tuple(row.token_ids), ()) for row in rendered]
            asked = [(row.token_ids, thought) for row, thought in zip(rendered, thoughts, strict=True)]
            expected = [sum(_probability(model, *row, p, edits) for p in prefixes) for row in asked]
            odds = np.log(np.array(expected) + 1e-8) - np.log(1 - np.array(expected) + 1e-8)
            np.testing.assert_allclose(found[kind], odds, atol=5e-3)  # of probabilities within 2e-5 of 1


def _probability(
    model: ChatModel, prompt: tuple[int, ...], thought: tuple[int, ...], prefix: tuple[int, ...], edits: list[Edit]
) -> float:
    tokens = torch.tensor([[*prompt, *thought, *prefix]])
    with model.editing(edits):
        log_probs = model.logits(Batch(tokens, torch.ones_like(tokens), len(prompt)))[0].log_softmax(-1)
    before = len(prompt) + len(thought) - 1
    return float(sum(log_probs[before + i, t] for i, t in enumerate(prefix)).exp())  # type: ignore[union-attr]
