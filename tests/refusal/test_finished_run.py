"""A finished run as tables and charts: what results.json holds; certificates of a rate, and what is no count."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta

import refusal
from experiments.report.page.summary import tiles
from experiments.run.basis import declines_by_reason, declines_sentence
from experiments.run.config import load_config
from experiments.run.inputs import RunInputs
from experiments.run.wording import VERDICTS
from extract.errors import UserError
from refusal.cli.print_results import print_summary
from scoring.rates import RATES


@pytest.fixture(scope="module")
def run(notebook: Path) -> refusal.Run:
    return refusal.load_run(str(notebook / "runs" / "quickstart"))


@pytest.fixture(scope="module")
def written(run: refusal.Run) -> dict:
    return json.loads((run.path / "results.json").read_text(encoding="utf-8"))


def test_rates_verdicts_and_certificates_are_those_of_the_file(run: refusal.Run, written: dict) -> None:
    for state, key in (("before", "before"), ("with dials", "after")):
        rates = written["rates"][key]
        for name in RATES:
            row = run.rates[state].loc[name]
            assert row["value"] == pytest.approx(rates[name]["estimate"])
            assert [row["low"], row["high"]] == pytest.approx([rates[name]["low"], rates[name]["high"]])
            assert row["n"] == rates[name]["n"]
    two, word = run.verdicts.loc["one refusal or two"], run.verdicts.loc["trigger word or intent"]
    assert (two["verdict"], two["basis"]) == (written["dissociation"]["verdict"], "wording")
    assert word["verdict"] == written["triggers"]["verdict"]
    assert word["meaning"] == VERDICTS[word["verdict"]]
    assert word["trigger_share"] == written["triggers"]["trigger_share"]
    assert [word["low"], word["high"]] == written["triggers"]["trigger_share_ci"]
    assert np.isnan(two["trigger_share"])
    certified = run.results.steer.certified
    assert run.certificates["at_most"].to_dict() == {name: one.at_most for name, one in certified.risks.items()}
    assert set(run.certificates["confidence"]) == {certified.confidence}


def test_completions_are_those_of_the_files(run: refusal.Run) -> None:
    frame = run.completions.set_index("id")
    prompts = pd.read_json(run.path / "completions.jsonl", lines=True, dtype={"id": str}).set_index("id")
    assert len(frame) == len(prompts) == sum(run.results.prompts.values())
    assert frame.loc[prompts.index, "completion"].tolist() == prompts["completion"].tolist()
    assert frame.loc[prompts.index, "action"].tolist() == prompts["action"].tolist()
    steered = pd.read_json(run.path / "completions_steered.jsonl", lines=True, dtype={"id": str}).set_index("id")
    assert frame.loc[steered.index, "completion_with_dials"].tolist() == steered["completion"].tolist()
    assert frame["completion_with_dials"].notna().sum() == len(steered) < len(frame)
    assert set(frame["part"][frame["completion_with_dials"].notna()]) == {"test"}
    assert frame.groupby("label").size().to_dict() == run.results.prompts


@pytest.mark.parametrize("what", ["rates", "grid", "matrix"])
def test_a_chart_is_a_valid_specification(run: refusal.Run, what: str) -> None:
    spec = run.plot(what).to_dict()  # validates against Vega-Lite's schema
    assert spec["$schema"].startswith("https://vega.github.io/schema/vega-lite/")


def test_charts_are_saved_as_pictures(run: refusal.Run, tmp_path: Path) -> None:
    words = refusal.WordScores("a", ("it's", "a\\b", "burn", "burn"), (0.1, -0.2, 3.0, 2.0), 1.5, "burn")
    run.plot().save(tmp_path / "rates.png")
    words.plot().save(tmp_path / "words.svg")
    assert (tmp_path / "rates.png").read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / "words.svg").read_text()
    assert "<svg" in drawn[:200]
    assert "it's" in drawn.replace("&#39;", "'")
    assert "a\\b" in drawn


@pytest.mark.slow
def test_every_chart_renders(run: refusal.Run, found: refusal.Activations, tmp_path: Path) -> None:
    labels = [label == "harmful" for label in found.labels]
    probes = refusal.probe_layers(found, labels, n_folds=2, progress=False)
    charts = [run.plot("grid"), run.plot("grid", "epistemic"), run.plot("matrix"), probes.plot(),
              probes.plot("difference_in_means")]  # fmt: skip
    for chart in charts:
        for end in ("png", "svg", "html"):
            chart.save(tmp_path / f"chart.{end}")
            assert (tmp_path / f"chart.{end}").stat().st_size > 1000


def test_mistakes_are_named(run: refusal.Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no results\.json; a finished run is written by: refusal run CONFIG"):
        refusal.load_run(tmp_path)
    with pytest.raises(UserError, match="no such picture: 'pareto'; expected rates, grid or matrix"):
        run.plot("pareto")
    with pytest.raises(UserError, match="there is no contrast 'harm'; there are normative"):
        run.plot("grid", "harm")


@pytest.mark.parametrize(("failures", "n"), [(0, 60), (3, 100), (np.int64(1), np.int64(20))])
def test_the_limit_is_that_of_clopper_and_pearson(failures: int, n: int) -> None:
    found = refusal.certify(failures=failures, n=n)
    assert found.at_most == pytest.approx(beta.ppf(0.95, failures + 1, n - failures))
    assert (found.failures, found.n, found.confidence) == (failures, n, 0.95)
    assert refusal.certify(failures, n) == found
    assert refusal.certify(n, n).at_most == 1.0  # all failed


@pytest.mark.parametrize("limit", [0.05, 0.01, 0.2])
def test_so_many_draws_suffice_and_one_less_does_not(limit: float) -> None:
    n = refusal.n_for(limit)
    assert refusal.certify(0, n).at_most <= limit < refusal.certify(0, n - 1).at_most


@pytest.mark.parametrize("given", [(1.5, 60), (-1, 60), (61, 60), (0, 0), ("0", 60), (0.0, 60)])
def test_what_is_no_count_or_no_share_is_refused(given: tuple) -> None:
    with pytest.raises(UserError, match="failures are 0 to n"):
        refusal.certify(*given)
    with pytest.raises(UserError, match="a confidence is between 0 and 1; got 95"):
        refusal.certify(0, 60, confidence=95)
    with pytest.raises(UserError, match="limit and confidence are between 0 and 1; got 5 and"):
        refusal.n_for(5)


def test_declines_by_reason_and_wording_are_in_the_file_on_the_terminal_and_on_the_page(
    run: refusal.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = declines_by_reason(RunInputs(load_config(run.path / "config.yaml"), run.path).behaviour)
    rates = run.results.rates.model_copy(update={"by_reason": table})
    run.results.model_copy(update={"rates": rates}).write(tmp_path / "results.json")
    again = refusal.load_run(tmp_path)
    assert list(again.declines.index.unique("reason")) == [
        "harmful", "uncertain", "twins", "known twins", "other benign"
    ]  # fmt: skip
    share = table.shares["uncertain"]["abstained"]
    assert tuple(again.declines.loc[("uncertain", "abstained")]) == (*share.limits(), share.n)
    sentence = declines_sentence(table, "epistemic")
    assert sentence in tiles(again.results, 0)[0].lines
    print_summary(tmp_path, as_json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert f"Reason and words: {sentence}" in said
    assert "All answered prompts by the reason to decline, answers by their words (95 %)" in said
