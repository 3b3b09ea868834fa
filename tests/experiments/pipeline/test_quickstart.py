"""The expected results of the quickstart on an organism whose mechanism is known (a whole run of the command line)."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from experiments.pipeline.stages import run
from experiments.probing.selection import TIE
from experiments.report.page.document import vega_bundle
from experiments.run.config import load_config
from extract.progress import Reporter
from extract.shipped import ROOT
from steering.direction_file import load_directions

pytestmark = pytest.mark.slow
QUIET = Reporter(quiet=True)


@pytest.fixture(scope="module")
def results(quickstart: Path) -> dict[str, Any]:
    return json.loads((quickstart / "results.json").read_text())


def test_the_verdicts_are_those_planted(results: dict[str, Any]) -> None:
    assert results["dissociation"]["verdict"] == "double_dissociation"
    assert results["triggers"]["verdict"] == "mixed"
    low, high = results["triggers"]["trigger_share_ci"]
    truth = json.loads((ROOT / "organisms/zoo/two-knobs/truth.json").read_text())
    assert low <= len(truth["over_refused_triggers"]) / 12 / 2 <= high  # of the 12 trigger words
    assert results["planted"]["normative_cosine"] >= 0.9
    assert results["planted"]["epistemic_cosine"] >= 0.85


def test_the_planted_locus_is_chosen_among_every_layer_and_position(results: dict[str, Any]) -> None:
    for write in results["writes"].values():
        tried = {(c["layer"], c["position"]) for c in write["candidates"]}
        assert tried == {(layer, position) for layer in range(7) for position in ("inst_last", "post_1", "post_last")}
        locus = write["locus"]["layer"], write["locus"]["position"]
        assert locus in ((4, "post_last"), (5, "post_last"))  # the planted layer, or the next: its ties are close
        assert write["meets_selection_rules"]
        chosen = next(c for c in write["candidates"] if (c["layer"], c["position"]) == locus)
        assert chosen["discarded"] is None
        usable = [c for c in write["candidates"] if c["discarded"] is None]
        assert chosen["bypass_floored"] <= min(c["bypass_floored"] for c in usable) + TIE
        alike = [c for c in usable if c["bypass_floored"] <= min(c["bypass_floored"] for c in usable) + TIE]
        assert chosen["induce"] >= max(c["induce"] for c in alike) - TIE
        assert max(chosen["kl"], chosen["kl_first_token"]) <= chosen["kl_worst_step"] <= chosen["kl_max"]


def test_the_planted_directions_are_independent_under_ablation(results: dict[str, Any]) -> None:
    independence = results["geometry"]["independence"]
    assert set(independence) == {"ablate_normative_watch_epistemic", "ablate_epistemic_watch_normative"}
    for record in independence.values():
        assert [layer["layer"] for layer in record["cosine"]["by_layer"]] in ([4, 5, 6, 7], [5, 6, 7])
        for measure in ("cosine", "projection"):
            assert record[measure]["p_null"] > 0.05
            change = record[measure]["change"]
            assert change["low"] <= change["estimate"] <= change["high"]
        assert record["projection"]["share"] < 0.35
        assert record["projection"]["by_layer"][0]["change"]["estimate"] < 0.1


def test_probes_read_intent_beyond_words(results: dict[str, Any]) -> None:
    site = results["sites"]["normative"]
    assert site["auroc"] >= 0.97
    assert site["auroc_ci"][0] > site["bag_of_words_auroc"]
    assert site["auroc_ci"][0] < 1.0  # honest at the boundary


def test_every_variant_of_ablation_is_tried(results: dict[str, Any]) -> None:
    rows = {(row["ablated"], row["variant"]): row for row in results["dissociation"]["variants"]}
    assert len(rows) == len(results["dissociation"]["variants"]) == 2 * 11
    for own, other in (("normative", "epistemic"), ("epistemic", "normative")):
        own_way = rows[own, "affine/selected/last_on"]
        assert own_way["stopped"][own]["estimate"] >= 0.9
        assert own_way["stopped"][other]["estimate"] <= 0.1
        assert own_way["onset_effect"][own] > 10
        assert own_way["benign_answered"]["estimate"] >= 0.95
        assert rows[own, "zero/every/all"]["onset_effect"] == {"normative": None, "epistemic": None}
    assert rows["normative", "zero/selected/last_on"]["benign_answered"]["estimate"] < 0.5  # the trap of METHODS
    found = results["dissociation"]["dependence"]
    assert abs(found["cosine"]) < 0.1
    assert not found["dependent"]
    added = results["dissociation"]["additions"]
    assert min(added[f"own_minus_other_{action}"]["low"] for action in ("refuse", "abstain")) > 0.15


def test_random_directions_do_nothing_and_permuted_ones_less(results: dict[str, Any]) -> None:
    matrix = results["dissociation"]["matrix"]
    for kind in ("normative", "epistemic"):
        cells = {column: cell for column, cell in matrix[f"ablate_random_{kind}"].items() if cell["n"]}
        assert {"refusals_answered", "abstentions_answered"} <= set(cells)  # it runs on declined prompts alone
        for column, cell in cells.items():
            assert abs(cell["estimate"] - matrix["none"][column]["estimate"]) <= 0.1
        [effect] = [e for e in results["dissociation"]["effects"] if e["ablated"] == e["behaviour"] == kind]
        null = effect["null"]
        assert null["n"] == 39  # none of them exceeds it
        assert len(null["stopped_by_generation"]) >= 20
        assert null["onset_effect"] > null["null_95th_percentile"]
        assert null["p"] == 0.025


def test_the_dials_mend_both_misaimed_refusals(results: dict[str, Any]) -> None:
    before, after = (
        {name: rate["estimate"] for name, rate in results["rates"][when].items() if name != "unjudged"}
        for when in ("before", "after")
    )
    assert after["over_refusal"] < before["over_refusal"] / 2
    assert after["overconfidence"] < before["overconfidence"] / 2
    assert after["missed_harm"] <= 0.03
    assert after["uncertain_refused"] <= before["uncertain_refused"] + 0.01


def test_directions_load_and_point_to_the_declining_class(quickstart: Path) -> None:
    directions = load_directions(quickstart / "directions.safetensors")
    names = "normative_read epistemic_read intent_read normative_write epistemic_write"
    assert set(directions) == set(names.split())
    assert all(d.mean_positive > d.mean_negative for d in directions.values())


def test_the_report_and_the_table_hold_the_verdict(quickstart: Path) -> None:
    page = (quickstart / "report.html").read_text()
    assert "double dissociation" in page
    assert "no more than permuted-label directions do" in page
    assert "not evidence about real models" in page
    assert not re.search(r"""(?:src|href)=["']?(?:https?:|//)""", page.replace(vega_bundle(), ""))
    for name in ("rates.png", "matrix.png", "grid_normative.png", "scatter.svg"):
        assert (quickstart / "figures" / name).exists(), name
    table = (quickstart / "stdout.txt").read_text()
    for word in ("over_refusal", "missed_harm", "overconfidence", "refusal run OWNER/MODEL"):
        assert word in table


def test_nothing_is_done_twice_and_a_change_or_damage_redoes_what_follows(quickstart: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(quickstart, copy)
    config = load_config(Path("configs/quickstart.yaml"))
    assert run(config, copy, reporter=QUIET) == []
    changed = load_config(Path("configs/quickstart.yaml"), ["steer.epistemic_threshold=0.9"])
    assert run(changed, copy, reporter=QUIET) == ["steer", "token_readings", "results", "report"]
    (copy / "dials.safetensors").write_bytes(b"cut short")
    assert run(changed, copy, reporter=QUIET) == ["steer", "token_readings", "results", "report"]


def test_a_store_of_another_model_is_refused(quickstart: Path, tmp_path: Path) -> None:
    copy, other = tmp_path / "copy", tmp_path / "other"
    shutil.copytree(quickstart, copy)
    shutil.copytree(ROOT / "organisms/zoo/two-knobs", other)
    weights = load_file(other / "model.safetensors")
    changed = {name: weight * 1.01 for name, weight in weights.items()}
    save_file(changed, other / "model.safetensors", metadata={"format": "pt"})
    config = load_config(Path("configs/quickstart.yaml"), [f"model.name={other}"])
    with pytest.raises(ValueError, match="was made with another weights"):
        run(config, copy, reporter=QUIET)
