"""`refusal probe` on the organism: its files, its output, and its errors for unsuitable prompts."""

import json
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet
import pytest

from experiments.probing.read_probes import best_loci
from experiments.probing.results import GridRow, ProbeResults, SiteRecord, WriteRecord
from experiments.probing.text import print_probe
from experiments.run.config import load_config
from extract.shipped import ROOT
from probes.direction import Locus
from probes.grid.nulls import NullAUROC
from steering.direction_file import load_directions

ROWS = [json.loads(line) for line in (ROOT / "organisms/zoo/two-knobs/prompts.jsonl").read_text().splitlines()]


def test_fewer_groups_than_folds(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """All uncertain training prompts belong to one pair: one group cannot make two inner folds."""
    by_label = defaultdict(list)
    for row in ROWS:
        by_label[row["label"]].append(row)
    harmful, requests = by_label["harmful"][:40], [r for r in by_label["benign"] if r.get("intent")][:40]
    uncertain = [row | {"pair": None, "entity": None} for row in by_label["uncertain"]]
    parts = ("train", "validation", "calibration", "test")
    rows = [row | {"pair": f"{row['label']}{i}", "split": parts[i % 4]} for i, row in enumerate(harmful + requests)]
    rows += [row | {"id": f"u{i}", "text": f"{row['text'][:-1]} {i}?", "pair": f"u{i % 4}", "split": parts[i % 4]}
             for i, row in enumerate(uncertain[:40])]  # fmt: skip
    path, out = tmp_path / "prompts.jsonl", tmp_path / "run"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, _, err = cli("probe", "configs/quickstart.yaml", "--set", f"prompts.path={path}", "--out", str(out))
    [message] = [line for line in err.splitlines() if line.startswith("refusal:")]
    assert (code, "Traceback" in err, out.exists()) == (2, False, False)  # the error comes before extraction
    assert "contrast 'epistemic' has 1 positive group, too few for 2 inner folds of its train part" in message
    assert "use fewer folds or more prompts" in message


def test_an_infinite_d_prime_and_absent_results_are_printed_and_are_json(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    """One validation prompt of a class has no spread, so that d' is infinite; JSON knows no such number."""
    row = GridRow(
        contrast="epistemic", site="resid_post", layer=0, position="trigger_last", probe="logistic", chosen=True, C=1.0,
        validation_auroc=1.0, validation_d_prime=float("inf"), auroc=0.5, auroc_ci=(0.1, 0.9),
        balanced_accuracy=0.5, recall_at_1pct_fpr=0.0, n_positive=100, n_negative=100, groups_positive=9.0,
        groups_negative=9.0,
    )  # fmt: skip
    null = NullAUROC(observed=0.5, mean=0.5, p_permutation=0.5, p_fitted=0.5, p_tested=0.5, permutation_95=0.9, n=199)
    site = SiteRecord(
        **row.model_dump(), ece=None, brier=None, bag_of_words_auroc=0.5, length_auroc=0.5, beats_bag_of_words=False,
        p_permutation=0.5, control_auroc=None, selectivity=None, refitted_on_permuted_labels=null,
        difference_in_means=null,
    )  # fmt: skip
    reason = "the model does not refuse often enough (0 times)"
    writes = {
        "normative": WriteRecord(available=False, reason=reason),
        "epistemic": WriteRecord(available=True, locus=Locus("resid_post", 3, "post_1"), meets_selection_rules=False),
    }
    sites = {"normative": site, "epistemic": site}
    sites["intent"] = site.model_copy(update={"n_positive": 1, "n_negative": 40})
    few = row.model_copy(update={"contrast": "intent", "layer": 1, "n_positive": 1, "n_negative": 40})
    ProbeResults(best_loci=tuple(best_loci([row, few])), sites=sites, writes=writes).write(tmp_path / "probe.json")
    print_probe(tmp_path, ProbeResults.read(tmp_path / "probe.json"))
    printed = capsys.readouterr().out
    assert " inf  0.500 [0.100, 0.900]" in printed
    assert "intent: layer 0, trigger_last, test AUROC too few (1 + 40); a bag of words" in printed  # nor in the table:
    assert printed.count("0.500 [0.100, 0.900]") == 3
    assert f"normative write direction: none, {reason}; its cosines" in printed
    assert "epistemic write direction: layer 3, post_1; no locus met the selection rules" in printed


@pytest.mark.slow
def test_the_table_holds_every_locus_of_three_contrasts(quickstart: Path) -> None:
    rows = pyarrow.parquet.read_table(quickstart / "probes.parquet").to_pylist()
    loci = {(row["layer"], row["position"]) for row in rows if row["contrast"] == "normative"}
    assert loci == {(layer, p) for layer in range(8) for p in ("inst_last", "post_1", "post_last", "inst_mean")}
    assert {row["contrast"] for row in rows} == {"normative", "epistemic", "intent"}
    assert {row["probe"] for row in rows} == {"logistic", "difference_in_means"}
    for row in rows:
        assert row["auroc_ci"][0] <= row["auroc"] <= row["auroc_ci"][1]
        assert (row["C"] is None) == (row["probe"] != "logistic")
    chosen = {row["contrast"]: row for row in rows if row["chosen"]}
    assert len(chosen) == sum(row["chosen"] for row in rows) == 3
    for contrast, row in chosen.items():
        best = max(r["validation_auroc"] for r in rows if r["contrast"] == contrast and r["probe"] == "logistic")
        assert row["validation_auroc"] == best


@pytest.mark.slow
def test_the_ten_best_loci_are_ranked_on_validation_and_printed(quickstart: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    record = json.loads((quickstart / "stages/probe.json").read_text())
    best = record["best_loci"]
    keys = [(row["validation_auroc"], row["validation_d_prime"]) for row in best]
    assert len(best) == 10
    assert keys == sorted(keys, reverse=True)
    print_probe(quickstart, ProbeResults.model_validate(record))
    printed = capsys.readouterr().out
    assert printed.count("post_last") >= 10
    assert "epistemic: layer" in printed
    assert "geometry.json" in printed
    for contrast in record["sites"]:
        assert (quickstart / f"figures/grid_{contrast}.png").stat().st_size > 10_000
        assert "<svg" in (quickstart / f"figures/grid_{contrast}.svg").read_text()


@pytest.mark.slow
def test_geometry_is_measured_at_every_layer_with_permuted_labels(quickstart: Path) -> None:
    tables = json.loads((quickstart / "stages/geometry.json").read_text())
    assert sorted({locus["layer"] for locus in tables["loci"]}) == [*range(8)]
    pairs = [(row["a"], row["b"]) for row in tables["loci"][0]["cosines"]]
    assert ("normative", "epistemic") in pairs
    assert [len(locus["cosines"]) for locus in tables["loci"]] == [len(pairs)] * len(tables["loci"])
    own = [row for locus in tables["loci"] for row in locus["erasures"] if row["erased"] == row["read"]]
    assert all(abs(row["after"]["estimate"] - 0.5) < 0.02 for row in own)  # refitted on what was erased reads nothing
    (planted,) = [g for g in tables["loci"] if g["layer"] == 4 and g["position"] == tables["loci"][0]["position"]]
    before = {row["erased"]: row["before"]["estimate"] for row in planted["erasures"] if row["erased"] == row["read"]}
    assert before["normative"] > 0.95
    across = {(row["fitted_on"], row["tested_on"]): row["auroc"]["estimate"] for row in planted["transfers"]}
    assert across["intent", "normative"] > 0.95  # intent without words still tells harmful from benign
    written = {(row["kind"], row["layer"]): row for row in tables["read_against_write"]}
    assert abs(written["epistemic", 4]["cosine"]) > 0.5
    assert min(row["p"] for row in tables["read_against_write"] if row["kind"] == "epistemic") <= 0.05
    assert {row["n_permuted"] for row in tables["read_against_write"]} == {199}


@pytest.mark.slow
def test_over_refused_prompts_are_placed_at_every_layer(quickstart: Path) -> None:
    found = ProbeResults.read(quickstart / "stages" / "probe.json")
    rows = found.geometry.over_refused_place
    assert [row.layer for row in rows] == list(range(8))
    assert {row.position for row in rows} == {found.sites["normative"].position}
    completions = [json.loads(line) for line in (quickstart / "completions.jsonl").read_text().splitlines()]
    declined = {row["id"] for row in completions if row["action"] in ("refuse", "abstain")}
    assert {row.n for row in rows} == {sum(one["label"] == "benign" and one["id"] in declined for one in ROWS)}
    for row in rows[4:]:  # after both decisions they are nearer to what is refused than at the embedding
        assert row.low is not None
        assert rows[0].high is not None
        assert row.low > rows[0].high
    assert "Where over-refused prompts lie" in (quickstart / "report.html").read_text()


@pytest.mark.slow
def test_the_auroc_of_a_probe_exceeds_its_permutation_null(quickstart: Path) -> None:
    sites = json.loads((quickstart / "results.json").read_text())["sites"]
    for site in sites.values():
        assert site["refitted_on_permuted_labels"]["n"] == 199
        assert site["p_permutation"] <= 0.01
        assert 0 <= site["ece"] < 0.2
        assert 0 <= site["brier"] < 0.2
    assert sites["epistemic"]["refitted_on_permuted_labels"]["p_permutation"] <= 0.05
    assert sites["normative"]["selectivity"] == pytest.approx(
        sites["normative"]["auroc"] - sites["normative"]["control_auroc"]
    )
    directions = load_directions(quickstart / "directions.safetensors")
    for name, direction in directions.items():
        assert direction.provenance["model"] == "organisms/zoo/two-knobs"
        assert {"weights", "prompts", "seed", "estimator", "positive_class"} <= set(direction.provenance), name
    assert directions["epistemic_read"].provenance["negative_class"] == "known twin"
    assert {"normative_read", "epistemic_read", "intent_read"} <= set(directions)
    assert load_config(quickstart / "config.yaml").name == "quickstart"
