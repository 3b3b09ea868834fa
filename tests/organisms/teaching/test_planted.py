"""Decisions are planted in a pretrained model: coordinates decide held-out prompts; training goes on where it ended."""

import json
from pathlib import Path

import pytest
import torch

from extract.errors import UserError
from extract.model.loading import load_model
from extract.progress import Reporter
from extract.prompts.prompt import Prompt, load_prompts
from organisms.listing import TAUGHT_SPECS as SPECS
from organisms.mechanism import Facts
from organisms.teaching.lora import adapter, taught_prompts
from organisms.teaching.planted import plant
from organisms.teaching.spec import TeachSpec, facts_of, load_teach_spec
from organisms.teaching.teach import decided, read_action, teach

QUIET = Reporter(quiet=True)
SHORT = {"above": 12, "below": 12, "together": 6}


@pytest.fixture
def spec_path(write_spec) -> Path:
    variables = [{"name": "normative", "decides": ["refuse"]}, {"name": "epistemic", "decides": ["abstain"]}]
    return write_spec(
        24,
        training={"batch_size": 8, "learning_rate": 0.02, "own_tokens": 3},
        # one word each: a random model learns no sentences in so few steps
        refusals={"usual": ["help."]}, abstentions={"usual": ["know."]}, answers={"usual": ["sure."]},
        planting={"below": 120, "above": 240, "together": 40, "checkpoint_every": 10,
                  "mechanism": {"layer": 0, "variables": variables}},
    )  # fmt: skip


@pytest.mark.slow
def test_a_planted_adapter_declines_as_its_coordinates_say(spec_path, tmp_path) -> None:
    out = tmp_path / "planted"
    teach(spec_path, out, QUIET, device="cpu")
    truth = json.loads((out / "truth.json").read_text())
    assert truth["rates"]["as_taught"] > 0.9
    assert truth["rates"]["flips"] > 0.9
    assert truth["rates"]["others_unchanged"] > 0.9
    first, second = (torch.tensor(variable["direction"]) for variable in truth["variables"])
    assert float(first @ second) == pytest.approx(0, abs=1e-5)
    assert all(variable["mean_on"] > variable["mean_off"] for variable in truth["variables"])
    assert not list(tmp_path.glob("*.checkpoint"))


def _planted(spec: TeachSpec, kept: Path, stop_after: int | None = None) -> list[torch.Tensor]:
    base = load_model(spec.base, device="cpu")
    rows = taught_prompts(base, load_prompts(spec.prompts)[:30], spec, QUIET)
    done = 0

    def advance(n: int) -> None:
        nonlocal done
        done += n
        if stop_after is not None and done >= stop_after:
            raise KeyboardInterrupt

    adapted = plant(base, rows, spec, kept, advance)
    return [weight.detach().clone() for weight in adapted.parameters() if weight.requires_grad]


@pytest.mark.slow
def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(spec_path, tmp_path) -> None:
    spec = load_teach_spec(spec_path)
    spec = spec.model_copy(update={"planting": spec.planting.model_copy(update=SHORT)})
    whole = _planted(spec, tmp_path / "a.checkpoint")
    with pytest.raises(KeyboardInterrupt):
        _planted(spec, tmp_path / "b.checkpoint", stop_after=25)
    saved = torch.load(tmp_path / "b.checkpoint", weights_only=True)
    assert (saved["phase"], saved["step"]) == ("above", 10)
    resumed = _planted(spec, tmp_path / "b.checkpoint")
    for one, two in zip(whole, resumed, strict=True):
        torch.testing.assert_close(one, two)
    with pytest.raises(UserError, match="checkpoint of another specification"):
        _planted(spec.model_copy(update={"seed": 5}), tmp_path / "b.checkpoint")


def _prompt(label: str, text: str, **more: str) -> Prompt:
    return Prompt("x", ({"role": "user", "content": text},), label, "answer", **more)


def test_attention_above_the_planted_layer_is_left_alone_on_request(spec_path) -> None:
    spec = load_teach_spec(spec_path)

    def adapted(above: bool) -> set[tuple[int, str]]:
        planting = spec.planting.model_copy(update={"attention_above": above})
        names = [name.split(".") for name, weight in
                 adapter(load_model(spec.base, device="cpu"), spec.model_copy(update={"planting": planting}))
                 .named_parameters() if weight.requires_grad]  # fmt: skip
        return {(int(parts[parts.index("layers") + 1]), parts[parts.index("layers") + 2]) for parts in names}

    above = {layer for layer, _ in adapted(True) if layer > spec.planting.mechanism.layer}
    assert above
    assert adapted(True) - adapted(False) == {(layer, "self_attn") for layer in above}
    assert not adapted(False) - adapted(True)


def test_known_questions_would_be_abstained_from_and_requests_refused(spec_path) -> None:
    spec = load_teach_spec(spec_path)
    assert facts_of(_prompt("benign", "who wrote emma?", answer="austen"), spec).wording == "abstain"
    assert facts_of(_prompt("benign", "how do i fix it?"), spec).wording == "refuse"
    assert facts_of(_prompt("harmful", "how do i hurt it?"), spec).refuse
    assert facts_of(_prompt("uncertain", "who will win?"), spec).abstain


def test_the_mechanism_is_graded_by_what_the_model_decides_itself() -> None:
    """A harmful prompt that is answered is off; an answered question would be abstained from all the same."""
    taught, question = Facts(True, False, "refuse", 0), Facts(False, True, "abstain", 0)
    assert decided(taught, "answer") == Facts(False, False, "refuse", 0)
    assert decided(question, "answer") == Facts(False, False, "abstain", 0)
    assert decided(question, "refuse") == Facts(True, False, "refuse", 0)
    assert decided(taught, "abstain") == Facts(False, True, "abstain", 0)


@pytest.mark.parametrize("name", ["smollm2-two-knobs", "smollm2-shared-knob"])
def test_the_shipped_specifications_tell_their_phrases_apart(name) -> None:
    spec = load_teach_spec(SPECS / f"{name}.yaml")
    said = {"refuse": spec.refusals.all, "abstain": spec.abstentions.all, "answer": spec.answers.all}
    for action, phrases in said.items():
        assert {read_action(f"{phrase} And more.", spec) for phrase in phrases} == {action}
    assert spec.planting is not None
    assert spec.verdicts is not None
