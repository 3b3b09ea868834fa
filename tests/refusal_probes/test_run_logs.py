"""A run's answers as Inspect's logs: its rates again from them, what interventions changed, lines, the viewer."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import yaml
from inspect_ai.log import EvalLog, list_eval_logs, read_eval_log

from experiments.elicited.condition import LINE
from experiments.elicited.results import Elicitation
from experiments.report.page.payload import inspect_logs
from experiments.report.results import RunResults
from experiments.run.config import load_config
from experiments.run.inputs import RunInputs
from experiments.run.outcomes import NOTHING, PLAIN, Outcomes, write_outcomes
from extract.shipped import resolve_shipped
from refusal_probes.run_logs import BEFORE, WITH_DIALS, answered_conditions, write_run_logs
from scoring.judges import CompletionToJudge
from scoring.judges.rules import RuleJudge
from scoring.rates import RATES
from scoring.score_file import score_file
from tests.support.browser import needs_browser, started

pytestmark = pytest.mark.slow

SMALL_RUN = Path(__file__).resolve().parents[1] / "fixtures" / "small_run"
UNDER = {f"{how}_{kind}" for how in ("ablate", "add", "ablate_random") for kind in ("normative", "epistemic")}


def run_in(directory: Path) -> RunInputs:
    return RunInputs(load_config(directory / "config.yaml"), directory)


def exported(run: Path, folder: Path) -> dict[str, int]:
    return write_run_logs(run_in(run), RunResults.read(run / "results.json"), folder)


def copied(folder: Path) -> Path:
    return Path(shutil.copytree(SMALL_RUN, folder / "run"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("logs")
    logs = exported(SMALL_RUN, made)
    assert {path.stem for path in made.iterdir()} == logs.keys()
    return made


def figures(log: EvalLog) -> dict[str, float]:
    assert log.results is not None
    return {name: metric.value for name, metric in log.results.scores[0].metrics.items()}


@pytest.mark.parametrize(("name", "state"), [(BEFORE, "before"), (WITH_DIALS, "after")])
def test_the_rates_of_the_run_come_out_of_its_logs_again(folder: Path, tmp_path: Path, name: str, state: str) -> None:
    """In the log's header, and from its answers, which the rules judge again."""
    own = getattr(RunResults.read(SMALL_RUN / "results.json").rates, state)
    card = score_file(folder / f"{name}.eval", tmp_path)
    shown = figures(read_eval_log(str(folder / f"{name}.eval"), header_only=True))
    assert card.rates is not None
    for rate in RATES:
        again = card.rates.of(rate)
        assert (again.limits(), again.n) == (own.of(rate).limits(), own.of(rate).n)
        assert [shown[f"{rate}{end}"] for end in ("", "_low", "_high")] == pytest.approx(own.of(rate).limits())
    assert own.overconfidence.estimate > 0


def test_a_log_of_an_intervention_counts_what_it_changed(tmp_path: Path) -> None:
    """Of six prompts: three refusals of which one stops, an answer that becomes one, and two that stay."""
    run = copied(tmp_path)
    inputs = run_in(run)
    declined, answered = (inputs.behaviour.did("refuse"), inputs.behaviour.did("answer"))
    rows = np.sort([*np.flatnonzero(declined)[:3], *np.flatnonzero(answered)[:3]])
    now = ["answer" if row == np.flatnonzero(declined)[0] else "refuse" if declined[row] else "answer" for row in rows]
    now[int(np.flatnonzero(answered[rows])[0])] = "refuse"
    under = Outcomes.of(rows, now, completion=[f"said {row}" for row in rows])
    effects = {(PLAIN, "ablate_normative"): under, (PLAIN, "ablate_epistemic"): Outcomes.of(rows, now)}
    write_outcomes(run / "outcomes.parquet" / "effects.parquet", [one.id for one in inputs.prompts], effects)
    assert exported(run, tmp_path / "logs").keys() == {BEFORE, WITH_DIALS, "ablate_normative"}
    log = read_eval_log(str(tmp_path / "logs" / "ablate_normative.eval"))
    counted = {"declined_before": 3, "declined_now": 3, "declined_before_not_now": 1, "prompts": 6}
    assert figures(log) == counted
    assert [sample.output.completion for sample in log.samples or []] == [f"said {row}" for row in rows]
    assert [(sample.scores or {})["action"].value for sample in log.samples or []] == now
    assert "draw of the others" in (log.eval.task_description or "")


def test_the_answers_under_each_intervention_are_those_that_were_judged(quickstart: Path) -> None:
    conditions = {condition.name: condition for condition in answered_conditions(run_in(quickstart))}
    assert conditions.keys() == {BEFORE, WITH_DIALS} | UNDER
    prompts = run_in(quickstart).prompts
    for name in UNDER:
        rows, said = conditions[name].rows, conditions[name].said
        asked = [CompletionToJudge(one.completion, prompts[row].text) for row, one in zip(rows, said, strict=True)]
        assert [judged.action for judged in RuleJudge().judge_all(asked)] == [one.action for one in said]
        assert len(rows) > 100


def test_samples_have_what_the_viewer_filters_by(folder: Path) -> None:
    prompts = {prompt.id: prompt for prompt in run_in(SMALL_RUN).prompts}
    for sample in read_eval_log(str(folder / f"{BEFORE}.eval")).samples or []:
        prompt, scores = prompts[str(sample.id)], sample.scores or {}
        assert sample.metadata["label"] == prompt.label
        assert sample.metadata["category"] == prompt.category
        assert sample.metadata["part"] == "test"
        assert isinstance(sample.input, list)
        assert sample.input[-1].text == prompt.text
        assert scores["action"].value == scores["joint"].answer == sample.metadata["before"]


def test_inspect_lists_them_and_shows_what_a_model_wrote_as_plain_text(folder: Path) -> None:
    assert {Path(log.name).stem for log in list_eval_logs(str(folder))} == {BEFORE, WITH_DIALS}
    header = read_eval_log(str(folder / f"{BEFORE}.eval"), header_only=True)
    assert header.eval.viewer is not None
    assert header.eval.viewer.trust_content is False


def test_a_line_is_in_the_conversation_of_answers_under_it(tmp_path: Path) -> None:
    run = copied(tmp_path)
    inputs = run_in(run)
    Elicitation(line="Say so if you do not know.", control="Be brief.").write(run / "stages" / "elicit.json")
    ids = [prompt.id for prompt in inputs.prompts]
    answers = Outcomes.of(np.arange(2), ["abstain", "answer"], completion=["i cannot say.", "it is a cat."])
    stopped = Outcomes.of(np.arange(2), ["answer", "answer"], completion=["it is a dog.", "it is a cat."])
    write_outcomes(run / "outcomes.parquet" / "elicit.parquet", ids, {(LINE, NOTHING): answers})
    under = {(LINE, "ablate_elicited"): stopped, (PLAIN, "add_permuted_0"): stopped}
    write_outcomes(run / "outcomes.parquet" / "elicited.parquet", ids, under)
    assert exported(run, tmp_path / "logs").keys() == {BEFORE, WITH_DIALS, "line", "line-ablate_elicited"}
    log = read_eval_log(str(tmp_path / "logs" / "line.eval"))
    said = [[message.text for message in sample.messages] for sample in log.samples or []]
    line, plain = "Say so if you do not know.", [inputs.completions[row].action for row in range(2)]
    assert said == [[line, inputs.prompts[0].text, "i cannot say."], [line, inputs.prompts[1].text, "it is a cat."]]
    assert [sample.metadata["before"] for sample in log.samples or []] == plain
    ablated = read_eval_log(str(tmp_path / "logs" / "line-ablate_elicited.eval"))
    assert [sample.metadata["before"] for sample in ablated.samples or []] == ["abstain", "answer"]
    assert figures(ablated)["declined_before_not_now"] == 1


def test_answers_are_not_put_to_prompts_that_the_run_did_not_ask(cli, tmp_path: Path) -> None:
    run = copied(tmp_path)
    config = yaml.safe_load((run / "config.yaml").read_text())
    rows = [json.loads(line) for line in resolve_shipped(Path(config["prompts"]["path"])).read_text().splitlines()]
    rows[0]["text"] = "how do i bake bread?"
    (tmp_path / "others.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config["prompts"]["path"] = str(tmp_path / "others.jsonl")
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    code, _, err = cli("export", str(run), "--inspect", "--out", str(tmp_path / "logs"))
    assert (code, "differs from what the run in" in err) == (2, True), err
    assert not (tmp_path / "logs").exists()


def test_a_run_that_keeps_no_answers_under_interventions_says_so(cli, tmp_path: Path) -> None:
    code, out, _ = cli("export", str(SMALL_RUN), "--inspect", "--out", str(tmp_path))
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert (code, lines[:2]) == (0, ["before 342 answers", "with_dials 342 answers"])
    assert "which kept no answers" in lines[2]
    assert lines[3] == f"Read them: inspect view --log-dir {tmp_path}"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nowhere", "--inspect"], "refusal: nowhere holds no results.json; a finished run is written by: refusal run"),
        ([str(SMALL_RUN)], "refusal: say for which viewer: "),
    ],
)
def test_a_mistake_is_one_line(cli, arguments: list[str], line: str) -> None:
    code, _, err = cli("export", *arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(line)


@needs_browser
def test_the_viewer_opens_a_sample_at_the_reports_address_and_filters(tmp_path: Path) -> None:
    run, port = copied(tmp_path), free_port()
    exported(run, run / "inspect")
    answered = json.loads((run / "completions_steered.jsonl").read_text().splitlines()[0])
    address = inspect_logs(run)["logs"][WITH_DIALS].replace("7575", str(port))
    viewer = [sys.executable, "-m", "inspect_ai", "view", "--log-dir", str(run / "inspect"), "--port", str(port)]
    serving = subprocess.Popen(viewer, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{port}/")
        with started() as browser:
            page = browser.new_page()
            page.goto(f"{address}/samples/sample/{answered['id']}/1")
            page.get_by_text(answered["completion"]).first.wait_for()
            page.goto(address)
            page.locator(".cm-content").first.click()
            page.keyboard.type('metadata.label == "uncertain" and overconfidence == 1')
            page.get_by_text("7 / 342 Samples").wait_for()
    finally:
        serving.terminate()
        serving.wait()


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def wait_for(address: str) -> None:
    for _ in range(100):
        try:
            urllib.request.urlopen(address, timeout=1)
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"{address} does not answer")
