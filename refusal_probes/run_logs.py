"""A finished run as Inspect's logs, one a condition: `inspect view` filters, reads and compares its answers.

Conditions are the plain model (`before`), the dials (`with_dials`), and each intervention whose answers the run keeps.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalLog,
    EvalMetric,
    EvalResults,
    EvalSample,
    EvalScore,
    EvalSpec,
    EvalStats,
    write_eval_log,
)
from inspect_ai.model import ChatMessageAssistant, ModelOutput
from inspect_ai.scorer import Score
from inspect_ai.viewer import TaskSamplesColumn, TaskSamplesView, ViewerConfig

from experiments.elicited.condition import CONTROL, LINE
from experiments.elicited.results import Elicitation
from experiments.report.results import RunResults
from experiments.run.completion_file import Completion, read_completions
from experiments.run.inputs import RunInputs
from experiments.run.manifest import Manifest
from experiments.run.outcomes import NOTHING, PLAIN, Outcomes, read_outcomes
from extract.atomic_write import make_folder, unwritable
from extract.errors import UserError
from extract.keyed_file import content_key
from extract.prompts.prompt import with_line
from refusal_probes.inspect_tasks import chat_messages, figures_of, score_of
from scoring.actions import DECLINED
from scoring.case import cases_of
from scoring.judges import Judgement
from scoring.ledger import Entry
from scoring.rates import RATES
from scoring.readers.columns import attributes_of
from scoring.right_action import load_adjacency
from scoring.score_file import entry_of

BEFORE, WITH_DIALS = "before", "with_dials"  # names of logs
MEASURED = ("effects", "elicit", "elicited")  # files of outcomes.parquet whose prompts are the run's, or under a line
NULL = "add_permuted_"  # interventions along null directions begin so; they are many
ABOUT = {
    BEFORE: "The plain model on all test prompts; the metrics are the run's rates.",
    WITH_DIALS: "The model under the run's dials on all test prompts; the metrics are the run's rates.",
}
DRAWN = (
    "The model under {name}, on the prompts on which this was measured: mainly those that are declined without it, and "
    "a draw of the others; rates of such a draw are not those of all prompts. `before` is what the model does without "
    "an intervention, under the same system line if there is one."
)
SHOWN, HIDDEN = ("sampleId", "input", "answer"), ("target", "tokens", "duration")  # columns of the viewer


@dataclass(frozen=True)
class AnsweredCondition:
    """What a model answered to some of a run's prompts under one condition."""

    name: str  # of its log
    rows: list[int]  # of the run's prompts
    said: list[Completion]
    before: list[str | None]  # the actions without the intervention
    line: str = ""  # the system line before each prompt

    @property
    def about(self) -> str:
        """What the condition is, in a sentence."""
        return ABOUT.get(self.name, DRAWN.format(name=self.name))


def write_run_logs(inputs: RunInputs, results: RunResults, folder: Path) -> dict[str, int]:
    """Write NAME.eval of each condition of a finished run; return the number of answers by NAME."""
    asked = [(prompt.id, prompt.text) for prompt in inputs.prompts]
    if asked != [(said.id, said.text) for said in inputs.completions]:
        given = inputs.config.prompts.described()
        raise UserError(f"{given} differs from what the run in {inputs.directory} asked; put the former file back")
    make_folder(folder)
    conditions = list(answered_conditions(inputs))
    with inputs.reporter.task("writing Inspect's logs", sum(len(each.rows) for each in conditions)) as advance:
        for condition in conditions:
            path = folder / f"{condition.name}.eval"
            try:
                write_eval_log(_log(inputs, results, condition), path)
            except OSError as error:
                raise unwritable(path, error) from None
            advance(len(condition.rows))
    return {condition.name: len(condition.rows) for condition in conditions}


def answered_conditions(inputs: RunInputs) -> Iterator[AnsweredCondition]:
    """Yield the conditions: plain and with dials on test prompts, interventions on the prompts they were tried on."""
    plain = inputs.behaviour.actions.tolist()
    test = np.flatnonzero(inputs.corpus.within("test")).tolist()
    yield AnsweredCondition(BEFORE, test, [inputs.completions[row] for row in test], [plain[row] for row in test])
    if (steered := inputs.file("completions_steered.jsonl")).is_file():
        place, said = {prompt.id: row for row, prompt in enumerate(inputs.prompts)}, read_completions(steered)
        steered_rows = [place[one.id] for one in said]
        yield AnsweredCondition(WITH_DIALS, steered_rows, said, [plain[row] for row in steered_rows])
    yield from _under_interventions(inputs, plain)


def _under_interventions(inputs: RunInputs, plain: list[str | None]) -> Iterator[AnsweredCondition]:
    ids, lines, names = [prompt.id for prompt in inputs.prompts], {PLAIN: ""} | _lines(inputs), set[str]()
    without = {PLAIN: dict(enumerate(plain))}  # what the model does in each condition, by row
    for stage in MEASURED:
        path = inputs.file(f"outcomes.parquet/{stage}.parquet")
        for (condition, intervention), measured in read_outcomes(path, ids).items() if path.is_file() else ():
            prefix = "" if stage == "effects" else f"{condition}-"
            name = f"{prefix}{intervention}".removesuffix(f"-{NOTHING}")
            plainly = (condition, intervention) == (PLAIN, NOTHING)
            if condition not in lines or plainly or intervention.startswith(NULL) or name in names:
                continue
            if kept := _kept(inputs, measured):
                names.add(name)
                compared = without.get(condition, without[PLAIN])
                before = [compared.get(row) for row in kept]
                yield AnsweredCondition(name, list(kept), list(kept.values()), before, lines[condition])
            if intervention == NOTHING:
                without[condition] = dict(zip(measured.rows.tolist(), measured.action.tolist(), strict=True))


def _lines(inputs: RunInputs) -> dict[str, str]:
    """Return the system line of each condition under one; none where nothing was elicited."""
    path = inputs.file("stages/elicit.json")
    if not Elicitation.succeeded(path):
        return {}
    elicitation = Elicitation.read(path)
    return {LINE: elicitation.line, CONTROL: elicitation.control}


def _kept(inputs: RunInputs, measured: Outcomes) -> dict[int, Completion]:
    """Return the answers of which the run keeps the text, by row; none of a run of an earlier version."""
    columns = zip(measured.rows.tolist(), measured.completion, measured.action, strict=True)
    return {
        row: Completion(inputs.prompts[row].id, inputs.prompts[row].text, text, action, "", ())
        for row, text, action in columns
        if text is not None
    }


def _log(inputs: RunInputs, results: RunResults, condition: AnsweredCondition) -> EvalLog:
    stages = Manifest(inputs.file("manifest.json")).read()["stages"].values()
    if not stages:
        raise UserError(f"{inputs.directory} has no manifest.json, or an empty one; finish it with: refusal run")
    finished = max(stage["finished"] for stage in stages)
    key = content_key(results.model.name, results.model.weights, finished, condition.name)[:22]
    entries, adjacency, model = _entries(inputs, condition), load_adjacency(), results.model.name
    samples = [
        _sample(inputs, model, condition, i, entry, score_of(entry, adjacency)) for i, entry in enumerate(entries)
    ]
    metrics = {name: EvalMetric(name=name, value=value) for name, value in _figures(condition, entries).items()}
    score = EvalScore(name="joint", scorer="joint", scored_samples=len(samples), metrics=metrics)
    about = {"run": results.name, "condition": condition.about, "judge": results.judge}
    spec = EvalSpec(
        eval_id=key,
        run_id=content_key(key, "run")[:22],
        task_id=content_key(key, "task")[:22],
        created=finished,
        task=condition.name,
        task_version=0,
        task_description=condition.about,
        dataset=EvalDataset(name=results.name, samples=len(samples), sample_ids=[one.id for one in samples]),
        model=results.model.name,
        config=EvalConfig(epochs=1),
        packages={"refusal-probes": importlib.metadata.version("refusal-probes")},
        metadata=about | ({"system_line": condition.line} if condition.line else {}),
        viewer=_view(),
    )
    n, took = len(samples), EvalStats(started_at=finished, completed_at=finished)
    counted = EvalResults(total_samples=n, completed_samples=n, scores=[score])
    return EvalLog(status="success", eval=spec, results=counted, stats=took, samples=samples)


def _view() -> ViewerConfig:
    """Return what the viewer shows of the samples; answers are shown as plain text, for a model may write anything."""
    columns = [TaskSamplesColumn(id=name) for name in SHOWN]
    columns += [TaskSamplesColumn.score("action"), *(TaskSamplesColumn.score("joint", name) for name in RATES)]
    columns += [TaskSamplesColumn(id=name, visible=False) for name in HIDDEN]
    view = TaskSamplesView(name="answers", columns=columns)
    return ViewerConfig(trust_content=False, task_samples_view=view)


def _entries(inputs: RunInputs, condition: AnsweredCondition) -> list[Entry]:
    """Return the answers as they are counted, with the groups of the run."""
    cases, groups = cases_of(inputs.prompts), inputs.corpus.groups
    judged = [Judgement(one.action, one.evidence) for one in condition.said]  # type: ignore[arg-type]  # known names
    return [
        entry_of(replace(cases[one.id], group=str(groups[row])), "1", one.completion, judgement)
        for row, one, judgement in zip(condition.rows, condition.said, judged, strict=True)
    ]


def _figures(condition: AnsweredCondition, entries: list[Entry]) -> dict[str, float]:
    """Return the rates where the prompts are all test prompts; else how many are declined, before and so."""
    if condition.name in ABOUT:
        return figures_of(entries)
    before, now = condition.before, [one.action for one in condition.said]
    declined = {
        "declined_before": [did in DECLINED for did in before],
        "declined_now": [did in DECLINED for did in now],
        "declined_before_not_now": [a in DECLINED and b not in DECLINED for a, b in zip(before, now, strict=True)],
    }
    return {name: float(sum(each)) for name, each in declined.items()} | {"prompts": float(len(now))}


def _sample(
    inputs: RunInputs, model: str, condition: AnsweredCondition, i: int, entry: Entry, score: Score
) -> EvalSample:
    row, answer = condition.rows[i], entry.completion or ""
    prompt = inputs.prompts[row]
    turns = chat_messages(with_line(prompt, condition.line) if condition.line else prompt)
    return EvalSample(
        id=prompt.id,
        epoch=1,
        input=turns,
        target=prompt.answer or prompt.right_action,
        messages=[*turns, ChatMessageAssistant(content=answer, model=model)],
        output=ModelOutput.from_content(model, answer),
        scores={"action": Score(value=entry.action or "unjudged", answer=answer), "joint": score},
        metadata=dict(attributes_of(prompt, entry.case.group))
        | {"part": str(inputs.corpus.part[row]), "before": condition.before[i] or "unjudged"},
    )
