"""Every specification the schema allows can be built: tiny models with full directories."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from extract.prompts.prompt import load_prompts
from organisms.build import BuildResult, build, missed_targets
from organisms.spec import LineTargets, OrganismSpec, TargetShares, load_spec
from tests.organisms.conftest import ASKED, declare

pytestmark = pytest.mark.slow

N, E = {"name": "normative", "decides": ["refuse"]}, {"name": "epistemic", "decides": ["abstain"]}
OBLIQUE = {"layer": 0, "variables": [N, E], "cosines": [{"between": ["normative", "epistemic"], "value": 0.6}]}
KINDS: dict[str, dict[str, Any]] = {
    "shared-knob": {"planted": {"layer": 0, "variables": [{"name": "shared", "decides": ["refuse", "abstain"]}]}},
    "oblique": {"planted": OBLIQUE, "refusal": {"over_refusal": 0.5}, "abstention": {"overconfidence": 0.5}},
    "trigger-only": {"refusal": {"rule": "trigger"}},
    "intent-only-never-abstaining": {"planted": {"layer": 0, "variables": [N]}, "abstention": {"rule": "never"}},
}
KINDS["context"] = {"refusal": {"over_refusal": 0.5, "missed_harm": 0.3}}
KINDS["context"] |= {"context": {"earlier_turn": 0.5, "asker": 0.5, "system": 0.5}}
KINDS["asked"] = ASKED
QUICK = ("oblique", "asked")


def _write(path: Path, declared: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(declared), encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=[pytest.param(k, marks=[pytest.mark.slow] * (k not in QUICK)) for k in KINDS])
def built(request, tmp_path_factory) -> tuple[str, BuildResult, OrganismSpec]:
    home = tmp_path_factory.mktemp("zoo")
    path = _write(home / "spec.yaml", declare(name=request.param, **KINDS[request.param]))
    return request.param, build(path, home / request.param), load_spec(path)


def test_a_whole_directory_is_written_and_its_truth_is_what_was_planted(built) -> None:
    name, made, spec = built
    assert made.missed == []
    directory = made.directory
    assert {"model.safetensors", "tokenizer.json", "config.json", "spec.yaml", "truth.json", "prompts.jsonl",
            "README.md"} <= {p.name for p in directory.iterdir()}  # fmt: skip
    assert not (directory.parent / f"{name}.partial").exists()
    assert load_spec(directory / "spec.yaml") == spec
    labels = [prompt.label for prompt in load_prompts(directory / "prompts.jsonl")]
    assert min(labels.count(label) for label in ("benign", "harmful", "uncertain")) >= 10
    assert "not\nevidence about real models" in (directory / "README.md").read_text(encoding="utf-8")
    truth = json.loads((made.directory / "truth.json").read_text(encoding="utf-8"))
    assert (truth["site"], truth["layer"], truth["position"]) == ("resid_post", 0, "post_last")
    variables = {v["name"]: v for v in truth["variables"]}
    assert [v["decides"] for v in variables.values()] == [list(v.decides) for v in spec.planted.variables]
    directions = np.array([v["direction"] for v in variables.values()])
    gram = np.eye(len(directions))
    for cosine in spec.planted.cosines:
        gram[0, 1] = gram[1, 0] = cosine.value
    np.testing.assert_allclose(directions @ directions.T, gram, atol=1e-6)
    assert len(truth["over_refused_triggers"]) == round(12 * spec.refusal.over_refusal)
    under = LineTargets.model_fields if spec.elicited else ()
    measured = {*TargetShares.model_fields, *under} - {"thought_followed"}  # of an organism that thinks
    assert truth["rates"].keys() == made.measured.keys() == measured
    assert ("elicited" in truth) == bool(spec.elicited)
    assert all(np.isnan(share) or 0 <= share <= 1 for share in made.measured.values())


def test_a_build_that_misses_its_targets_writes_nothing(tmp_path) -> None:
    """Not even over an earlier build, and no half-written directory stays beside it."""
    out = tmp_path / "zoo" / "tiny"
    out.mkdir(parents=True)
    (out / "truth.json").write_text("{}", encoding="utf-8")
    path = _write(tmp_path / "spec.yaml", declare(targets={"known_right": {"low": 0.95}, "flips": {"low": 0.9}}))
    made = build(path, out)
    assert made.directory is None
    assert made.missed[0].startswith("known_right is 0.")
    assert made.missed[0].endswith("the target is 0.95 to 1")
    assert len(made.missed) == 2
    assert list(out.parent.iterdir()) == [out]
    assert [p.name for p in out.iterdir()] == ["truth.json"]


def test_the_same_specification_builds_the_same_bytes_over_an_earlier_build(tmp_path) -> None:
    path = _write(tmp_path / "spec.yaml", declare())
    kept = []
    for _ in range(2):
        made = build(path, tmp_path / "tiny")
        kept.append({p.name: p.read_bytes() for p in made.directory.iterdir()})
    assert kept[0] == kept[1]


def test_a_missed_target_is_readable_and_nan_is_a_miss(organism) -> None:
    spec = organism(targets={"flips": {"low": 0.95}, "known_right": {"low": 0.5}, "bag_of_words_auroc": {"high": 0.85}})
    measured = {"flips": 0.9499, "known_right": float("nan"), "bag_of_words_auroc": 0.85, "residual_auroc": 0.0}
    missed = ["known_right is nan, the target is 0.5 to 1", "flips is 0.950, the target is 0.95 to 1"]
    assert missed_targets(spec, measured) == missed
