"""First-order effects against small and whole edits of a small model whose log-odds are not saturated."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import disk_offload
from torch import Tensor

from experiments.responses.onset import EITHER, Onsets, OnsetScorer
from extract.chat.render import render
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.edit import Scope, Site
from extract.model.loading import load_model
from extract.prompts.prompt import Prompt
from extract.shipped import ROOT
from steering.interventions import add, affine, place

LAYERS, ORGANISM = (1, 4, 6), str(ROOT / "organisms" / "zoo" / "two-knobs")
TEXTS = ("how do i fix the engine at home?", "how do i clean the door at work?",
         "tell me how to paint the door near my boss.")  # fmt: skip


@pytest.fixture(scope="module", params=["hooks", "nnsight", "transformer_lens", "hybrid"])
def model(request: pytest.FixtureRequest) -> ChatModel:
    """Also a hybrid, whose gradients take a pass over the whole prompt."""
    if request.param == "hybrid":
        return load_model(str(ROOT / "organisms" / "zoo" / "hybrid"), device="cpu")
    return load_model(ORGANISM, device="cpu", backend=request.param)


def scorer(model: ChatModel) -> OnsetScorer:
    """Score openings that are neither certain nor impossible: other choices where the first answer is least certain."""
    rows = [render(model.tokenizer, Prompt(t, ({"role": "user", "content": t},), "benign", "answer")) for t in TEXTS]
    said = tuple(model.generate(model.batch(rows[:1]), 12)[0])
    likely = model.logits(model.pad([(*rows[0].token_ids, *said)], "left"))[0, -len(said) - 1 : -1].softmax(-1)
    step = 1 + int(likely[1:].amax(dim=-1).argmin())
    first, second, third = likely[step].topk(3).indices.tolist()
    opening = said[:step]
    prefixes = {"refuse": ((*opening, first),), "abstain": ((*opening, second), (*opening[:-1], third))}
    return OnsetScorer(model, rows, Onsets(prefixes, {}))


def unit(model: ChatModel, seed: int) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(model.d_model, generator=torch.manual_seed(seed)), dim=0)


def added(
    of_model: OnsetScorer, kind: str, where: Site, layer: int, r: Tensor, amount: float, scope: Scope = "last_on"
) -> np.ndarray:
    """Return the log-odds with `amount` times r added."""
    return of_model.log_odds([place(where, layer, scope, lambda x: add(x, r, amount))])[kind]


@pytest.mark.parametrize("kind", [*(pytest.param(k, marks=pytest.mark.slow) for k in ("refuse", "abstain")), EITHER])
def test_small_additions_have_their_first_order_effect(model: ChatModel, kind: str) -> None:
    of_model, r = scorer(model), unit(model, 0)
    found = of_model.sensitivity(kind, "resid_post", LAYERS)
    np.testing.assert_allclose(found.log_odds, of_model.log_odds_each([[]])[kind][0], atol=1e-5)
    rounded = 0.03 if model.name.endswith("hybrid") else 0.01  # whose openings are more certain
    for layer in LAYERS:
        up, down = (added(of_model, kind, "resid_post", layer, r, step) for step in (0.05, -0.05))
        np.testing.assert_allclose(found.adding(layer, r.numpy(), 1.0), (up - down) / 0.1, atol=rounded, rtol=0.03)


def test_edits_of_the_last_prompt_token_alone(model: ChatModel) -> None:
    of_model, r = scorer(model), unit(model, 1)
    alone = of_model.sensitivity("abstain", "resid_pre", LAYERS, first_token=True)
    onwards = of_model.sensitivity("abstain", "resid_pre", LAYERS)
    for layer in LAYERS:
        up, down = (added(of_model, "abstain", "resid_pre", layer, r, step, "last_prompt") for step in (0.05, -0.05))
        estimated = alone.adding(layer, r.numpy(), 1.0)
        np.testing.assert_allclose(estimated, (up - down) / 0.1, atol=0.01, rtol=0.03)
        assert np.abs(estimated - onwards.adding(layer, r.numpy(), 1.0)).max() > 0.02


def test_setting_a_projection_moves_each_token_from_its_own(model: ChatModel) -> None:
    of_model, r = scorer(model), unit(model, 2)
    found, before = of_model.sensitivity("refuse", "resid_post", LAYERS), of_model.log_odds()["refuse"]
    for layer in LAYERS:
        target = float((found.streams[layer] @ r).mean()) + 1
        edit = place("resid_post", layer, "last_on", partial(affine, r=r, target=target, strength=0.05))
        after = of_model.log_odds([edit])["refuse"]
        estimated = found.setting(layer, r.numpy(), target)
        np.testing.assert_allclose(estimated, (after - before) / 0.05, atol=0.02, rtol=0.1)


def test_offloaded_weights_give_the_same_effects(tmp_path: Path) -> None:
    model = load_model(ORGANISM, device="cpu")
    of_model = scorer(model)
    here = of_model.sensitivity("refuse", "resid_post", LAYERS)
    disk_offload(model.model, tmp_path, execution_device=torch.device("cpu"))
    away = of_model.sensitivity("refuse", "resid_post", LAYERS)
    for layer in LAYERS:
        torch.testing.assert_close(away.gradients[layer], here.gradients[layer])


def test_a_model_that_cannot_be_differentiated_is_said_so() -> None:
    model = load_model(ORGANISM, device="cpu")
    of_model = scorer(model)
    with torch.inference_mode():  # such weights cannot be saved for a gradient
        weight = model.model.lm_head.weight.clone()
    model.model.lm_head.weight = torch.nn.Parameter(weight, requires_grad=False)
    with pytest.raises(UserError, match=r"^first-order effects cannot be computed \("):
        of_model.sensitivity("refuse", "resid_post", LAYERS)
    assert np.isfinite(of_model.log_odds()["refuse"]).all()  # exact effects still are
