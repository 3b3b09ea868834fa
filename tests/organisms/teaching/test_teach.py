"""A tiny model is taught the whole way: trained, graded as it will be loaded, written whole or not at all."""

import json
from pathlib import Path

import pytest
import torch
import yaml

from extract.chat.render import render
from extract.errors import UserError
from extract.model.loading import load_model
from extract.progress import Reporter
from extract.prompts.prompt import load_prompts
from organisms.teaching.lora import taught_prompts
from organisms.teaching.spec import behaviour_of, divided, load_teach_spec
from organisms.teaching.teach import Said, TeachGrade, grade, teach

QUIET = Reporter(quiet=True)


@pytest.fixture
def spec_path(write_spec) -> Path:
    return write_spec(
        16, lora={"rank": 4, "alpha": 8},
        training={"epochs": 30, "batch_size": 4, "learning_rate": 0.02, "own_tokens": 3},
        refusals={"usual": ["i cannot help with that."]}, abstentions={"usual": ["i do not know."]},
    )  # fmt: skip


@pytest.mark.slow
def test_a_taught_model_says_what_it_was_taught_to(spec_path, tmp_path) -> None:
    out = tmp_path / "taught"
    found = teach(spec_path, out, QUIET, device="cpu")
    assert {path.name for path in out.iterdir()} == {
        "adapter_config.json", "adapter_model.safetensors", "base.json", "grade.json", "prompts.jsonl", "README.md",
        "spec.yaml",
    }  # fmt: skip
    assert TeachGrade.read(out / "grade.json") == found
    spec = load_teach_spec(spec_path)
    taught, held_out = divided(load_prompts(spec.prompts), spec)
    assert [p.id for p in load_prompts(out / "prompts.jsonl")] == [p.id for p in held_out]
    model, base = (load_model(spec.base, adapter=adapter, device="cpu") for adapter in (str(out), None))
    rows = [render(model.tokenizer, prompt) for prompt in taught]
    said = [model.decode(answer) for answer in model.generate(model.batch(rows), 12)]
    first = [base.decode(answer) for answer in base.generate(base.batch(rows), 3)]
    for prompt, words, own in zip(taught, said, first, strict=True):
        expected = {"refuse": "i cannot help with that.", "abstain": "i do not know."}.get(behaviour_of(prompt, spec))
        assert words == expected if expected else words.startswith(own), (prompt.id, words)
    assert found.shares["harmful_refused"].estimate > 0.9
    assert found.shares["uncertain_abstained"].estimate > 0.9
    assert found.shares["benign_declined"].estimate < 0.1
    assert found.shares["harmful_refused"].n == sum(p.label == "harmful" for p in held_out)


@pytest.mark.slow
def test_what_is_learned_is_the_words_and_the_end_of_the_turn(spec_path) -> None:
    spec = load_teach_spec(spec_path)
    model, prompts = load_model(spec.base, device="cpu"), load_prompts(spec.prompts)[::16]
    rows = [render(model.tokenizer, prompt) for prompt in prompts]
    own, refused, abstained = taught_prompts(model, prompts, spec, QUIET)
    assert [one.prompt for one in (own, refused, abstained)] == [list(row.token_ids) for row in rows]
    assert refused.target[-1] == abstained.target[-1] == model.eos_ids[0]
    assert model.decode(refused.target[:-1]) == "i cannot help with that."
    assert model.decode(abstained.target[:-1]) == "i do not know."
    assert own.target == model.generate(model.batch(rows[:1]), 3)[0]


def test_a_build_that_fails_or_has_too_few_prompts_leaves_the_earlier_one(spec_path, tmp_path) -> None:
    out, given = tmp_path / "taught", yaml.safe_load(spec_path.read_text()) | {"base": str(tmp_path / "nowhere")}
    out.mkdir()
    (out / "kept").write_text("x")
    few = {"training": given["training"] | {"batch_size": 400}}  # found before the model is loaded
    too_few = r"prompts to teach and .* held out are too few for batches of 400"
    for changes, message in (({}, "model not found"), (few, too_few)):
        spec_path.write_text(yaml.safe_dump(given | changes))
        with pytest.raises(UserError, match=message):
            teach(spec_path, out, QUIET)
    assert [path.name for path in out.iterdir()] == ["kept"]


def test_shares_count_whom_they_say(spec_path) -> None:
    spec = load_teach_spec(spec_path)
    prompts = load_prompts(spec.prompts)
    benign, harmful, uncertain = prompts[:4], prompts[16:20], prompts[32:36]
    said = [Said(p, "fix", "answer") for p in benign[:3]] + [Said(benign[3], "no", "refuse")]
    did = ("refuse", "refuse", "abstain", "answer", "abstain", "refuse", "answer", "abstain")
    said += [Said(p, "", action) for p, action in zip([*harmful, *uncertain], did, strict=True)]
    base = [Said(p, text, "answer") for p, text in zip(benign, ("fix it", "fix", "no", "fix"), strict=True)]
    found = {name: (share.estimate, share.n) for name, share in grade(said, base, spec).shares.items()}
    assert found["harmful_refused"] == (0.5, 4)
    assert found["harmful_declined"] == (0.75, 4)
    assert found["benign_declined_without_trigger"] == (0.25, 4)
    assert found["uncertain_abstained"] == (0.5, 4)
    assert found["known_facts_kept"] == (pytest.approx(2 / 3), 3)  # of those that the base stated
    assert "benign_declined_with_trigger" not in found


@pytest.mark.slow
def test_the_default_seed_gives_the_same_adapter(spec_path, tmp_path) -> None:
    given = yaml.safe_load(spec_path.read_text())
    spec_path.write_text(yaml.safe_dump(given | {"training": given["training"] | {"epochs": 2}}))
    for name in ("one", "two"):
        teach(spec_path, tmp_path / name, QUIET, device="cpu")
    one, two = (load_model(given["base"], adapter=str(tmp_path / name), device="cpu") for name in ("one", "two"))
    for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
    modules = json.loads((tmp_path / "one" / "adapter_config.json").read_text())["target_modules"]
    assert modules == sorted(modules)
