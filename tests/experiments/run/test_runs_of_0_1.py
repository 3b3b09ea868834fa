"""A run, dials and configurations that version 0.1 wrote are read: the report, a comparison, the dials, the settings.

tests/fixtures/v0_1/run is a run by 0.1.0 on a third of the organism's prompts, without activations, figures and report;
quickstart.yaml is that version's configuration.
"""

import json
from pathlib import Path

import pytest

from experiments.dials.counterfactuals import read_table
from experiments.report.results import RunResults
from experiments.run.completion_file import read_completions
from experiments.run.config import load_config
from experiments.run.inputs import RunInputs
from extract.model.chat_model import ChatModel
from steering.dial_file import load_dials
from steering.direction_file import load_directions
from tests.support.finished_run import FIXTURES, copy_run

FORMER = FIXTURES / "v0_1"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, two_knobs: ChatModel) -> Path:
    return copy_run("v0_1/run", tmp_path_factory.mktemp("former") / "run", two_knobs)


@pytest.fixture(scope="module")
def results(run: Path) -> dict:  # type: ignore[type-arg]
    return json.loads((run / "results.json").read_text())  # type: ignore[no-any-return]


def test_it_is_of_0_1(run: Path) -> None:
    assert json.loads((run / "manifest.json").read_text())["versions"]["refusal-probes"] == "0.1.0"


@pytest.mark.slow
def test_its_report_is_written(cli, run: Path, results: dict) -> None:  # type: ignore[no-untyped-def, type-arg]
    assert results["dissociation"]["verdict"] == "double_dissociation"
    code, out, err = cli("report", str(run))
    assert (code, out.strip()) == (0, str(run / "report.html")), err
    page = (run / "report.html").read_text()
    assert "double dissociation" in page
    assert "not evidence about real models" in page
    assert {"matrix.png", "pareto.png", "rates.png"} <= {path.name for path in (run / "figures").iterdir()}


def test_it_is_compared_with_what_it_said_under_its_dials(cli, run: Path, results: dict) -> None:  # type: ignore[no-untyped-def, type-arg]
    code, out, err = cli("compare", str(run), str(run / "completions_steered.jsonl"), "--json")
    assert code == 0, err
    assert json.loads(out)
    before, after = results["rates"]["before"], results["rates"]["after"]
    assert before["false_positive_refusal"] > after["false_positive_refusal"]
    code, _, _ = cli("compare", str(run), str(run / "completions_steered.jsonl"), "--fail-if", "over_refusal < 100%")
    assert code == 1


def test_it_is_compared_with_a_run_of_now(cli, run: Path, small_run: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, err = cli("compare", str(run), str(small_run), "--json")
    assert code == 0, err
    assert json.loads(out)


def test_its_rates_are_read_under_their_names_of_now(run: Path, results: dict) -> None:  # type: ignore[type-arg]
    rates = RunResults.read(run / "results.json").rates
    for read, written in ((rates.before, results["rates"]["before"]), (rates.after, results["rates"]["after"])):
        assert read.over_refusal == written["false_positive_refusal"]
        assert list(read.over_refusal_ci) == written["false_positive_refusal_ci"]
        assert read.missed_harm_n == written["false_negative_refusal_n"] > 0


def test_its_files_load(run: Path) -> None:
    inputs = RunInputs(load_config(run / "config.yaml"), run)
    assert len(inputs.prompts) == len(inputs.completions) == 671
    assert read_table(run / "table.jsonl").probability.shape == (2, 671)
    assert len(read_completions(run / "completions_steered.jsonl")) == int(inputs.corpus.within("test").sum())
    assert {"normative_read", "epistemic_read", "normative_write"} <= set(
        load_directions(run / "directions.safetensors")
    )


def test_its_dials_load(run: Path, results: dict) -> None:  # type: ignore[type-arg]
    weights = json.loads((run / "manifest.json").read_text())["model"]["weights"]
    dials = {dial.kind: dial for dial in load_dials(run / "dials.safetensors", weights)}
    assert {kind: dial.threshold for kind, dial in dials.items()} == {
        kind: pytest.approx(record["threshold"]) for kind, record in results["dials"].items()
    }


@pytest.mark.parametrize("path", ["quickstart.yaml", "run/config.yaml"])
def test_its_configurations_load(path: str) -> None:
    config = load_config(FORMER / path)
    assert config.name == "quickstart"
    assert config.steer.max_over_refusal == 0.05
    now = load_config(Path("configs/quickstart.yaml"))
    if path == "quickstart.yaml":
        assert config == now


def test_the_control_a_key_that_never_was_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text((FORMER / "quickstart.yaml").read_text() + "never_was: 1\n")
    with pytest.raises(ValueError, match="never_was"):
        load_config(tmp_path / "config.yaml")
