"""Every shipped organism meets its specification, measured on the shipped weights."""

import json

import numpy as np
import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from extract.model.loading import load_model
from extract.prompts.prompt import load_prompts
from organisms.build import grade, missed_targets
from organisms.grammar import OPENING, Grammar, held_out, prompt_record
from organisms.interchange import draw_vectors
from organisms.listing import ZOO
from organisms.spec import load_spec

ORGANISMS = sorted(path.parent for path in ZOO.glob("*/spec.yaml"))
THREE_ERRORS = 0.2  # standard errors of a rate of one half among sixty prompts, as a sixth of them may be
QUICK = ("two-knobs", "shared-knob", "late", "clustered", "xor")
MOST_SLOW = [pytest.param(path, marks=() if path.name in QUICK else pytest.mark.slow) for path in ORGANISMS]


@pytest.mark.slow
@pytest.mark.parametrize("directory", ORGANISMS, ids=lambda path: path.name)
def test_it_meets_its_specification(directory) -> None:
    """The build measured all held-out prompts, and the targets are asked of these; a sixth is measured again.

    All are where declines go by the name of one of a few askers: of these a sixth would be a few more or less.
    """
    spec = load_spec(directory / "spec.yaml")
    grammar = Grammar(spec)
    every = held_out(grammar)
    pairs = list(dict.fromkeys(row.pair for row in every))  # kinds of requests take turns in them: a sixth by lot
    n = len(pairs) if spec.name == "clustered" else len(pairs) // 6
    pairs = set(np.random.default_rng(0).choice(pairs, n, replace=False).tolist())
    rows = [row for row in every if row.pair in pairs]
    measured = grade(load_model(str(directory), device="cpu"), grammar, rows).rates
    stated = json.loads((directory / "truth.json").read_text())["rates"]
    assert missed_targets(spec, stated) == []
    assert measured == pytest.approx(stated, abs=THREE_ERRORS, nan_ok=True)


@pytest.mark.parametrize("directory", MOST_SLOW, ids=lambda path: path.name)
def test_its_prompts_and_truth_follow_from_its_specification(directory) -> None:
    spec = load_spec(directory / "spec.yaml")
    lines = [json.loads(line) for line in (directory / "prompts.jsonl").read_text().splitlines()]
    assert lines == [json.loads(json.dumps(prompt_record(row))) for row in held_out(Grammar(spec))]
    truth = json.loads((directory / "truth.json").read_text())
    vectors = np.array([variable["direction"] for variable in truth["variables"]])
    planted = draw_vectors(spec.planted, spec.seed, spec.model.d_model).numpy()
    np.testing.assert_allclose(vectors.reshape(planted.shape), planted, atol=1e-6)
    assert truth["layer"] == spec.planted.layer
    if spec.elicited:
        stated = spec.elicited.model_dump(mode="json", include={"lines", "controls"})
        assert truth["elicited"] == stated | spec.verdicts.free.model_dump(mode="json")
    else:
        assert truth.get("elicited") is None


@pytest.mark.parametrize("directory", MOST_SLOW, ids=lambda path: path.name)
def test_plain_transformers_loads_and_talks(directory) -> None:
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory)
    assert 3e5 <= sum(p.numel() for p in model.parameters()) <= 3e6
    chat = [{"role": "user", "content": "how do i fix the engine at home?"}]
    inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    reply = model.float().generate(**inputs, max_new_tokens=40, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    planted = load_spec(directory / "spec.yaml").planted
    opening = f"{OPENING} " if planted.token else ""
    if planted.thought:
        opening = f"{Grammar.thought('refuse' if planted.thought == 'against' else None)} "
    said = tokenizer.decode(reply, skip_special_tokens=True).strip()
    assert said == f"{opening}sure. start with the engine and take your time."


@pytest.mark.parametrize("directory", ORGANISMS, ids=lambda path: path.name)
def test_there_are_enough_held_out_prompts(directory) -> None:
    labels = [prompt.label for prompt in load_prompts(directory / "prompts.jsonl")]
    assert len(labels) >= 600
    assert min(labels.count(label) for label in ("benign", "harmful", "uncertain")) >= 200
