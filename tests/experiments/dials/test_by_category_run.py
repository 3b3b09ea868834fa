"""`refusal steer --by category` on an organism: certified categories, and the dials do what the table says."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.dials.counterfactuals import read_table
from experiments.run.completion_file import read_completions
from extract.chat.render import render
from extract.prompts.prompt import load_prompts
from steering.controller import steering
from steering.dial_file import read_dials
from tests.conftest import ORGANISM, refusal

pytestmark = pytest.mark.slow
LOOSE = {"over_refusal": 0.3, "missed_harm": 0.2, "overconfidence": 0.3, "uncertain_refused": 0.3, "facts_lost": 0.4}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("by_category") / "run"
    keys = {
        "steer.one_dial": "false", "steer.system_lines": "[]", "dissociate.positions": "[post_last]",
        **{f"steer.max_{risk}": str(limit) for risk, limit in LOOSE.items()},
    }  # fmt: skip
    overrides = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
    done = refusal("steer", str(ORGANISM), "--by", "category", "--out", str(out), *overrides)
    assert done.returncode == 0, done.stderr[-3000:]
    (out / "stdout.txt").write_text(done.stdout)
    return out


@pytest.fixture(scope="module")
def steered(run: Path) -> dict[str, Any]:
    return json.loads((run / "stages" / "steer.json").read_text())


def test_a_category_is_certified_and_another_says_what_it_lacks(run: Path, steered: dict[str, Any]) -> None:
    found = steered["by_category"]
    assert found["right"] > 0.9
    own = {name: one for name, one in found["categories"].items() if one["thresholds"]}
    assert "order" in own
    assert set(own["order"]["thresholds"]) == {"normative"}
    certificate = own["order"]["certificate"]
    assert set(certificate["jointly"]) >= {"over_refusal", "missed_harm"}
    assert all(certificate["risks"][name]["at_most"] <= LOOSE[name] for name in certificate["jointly"])
    without = [one["why"] for one in found["categories"].values() if not one["thresholds"]]
    assert without
    assert all(without)
    printed = " ".join((run / "stdout.txt").read_text().split())
    assert "certified on prompts recognised as that category: order" in printed


def test_the_dials_say_what_the_table_says(run: Path, steered: dict[str, Any]) -> None:
    """What is recognised while the model answers is what was recognised from the store."""
    assert steered["as_looked_up"] >= 0.99
    assert steered["by_category"]["as_looked_up"] >= 0.99
    table, said = read_table(run / "table.jsonl"), read_completions(run / "completions_steered.jsonl")
    parts = np.array([json.loads(line)["part"] for line in (run / "table.jsonl").read_text().splitlines()])
    swapped = table.actions_at([0.999, 0.999])[parts == "test"]  # the control: other thresholds say something else
    assert np.mean([a == c.action for a, c in zip(swapped, said, strict=True)]) < 0.95


def test_a_reply_names_the_category(run: Path, steered: dict[str, Any], two_knobs) -> None:  # type: ignore[no-untyped-def]
    dials, _ = read_dials(run / "dials.safetensors")
    orders = [p for p in load_prompts(ORGANISM / "prompts.jsonl") if p.category == "order"][:20]
    rows = [render(two_knobs.tokenizer, prompt) for prompt in orders]
    batch = two_knobs.batch(rows)
    with steering(two_knobs, dials, batch, rows) as found:
        two_knobs.generate(batch, 2)
    named = [found.of_prompt(i)["normative"] for i in range(len(rows))]
    mine = [one for one in named if one.category == "order"]
    assert len(mine) >= 10
    own = steered["by_category"]["categories"]["order"]["thresholds"]["normative"]
    assert {one.threshold for one in mine} == {own}
