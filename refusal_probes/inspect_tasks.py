"""Suites, the joint scorer and the joint rates for Inspect: `inspect eval refusal_probes/joint --model MODEL`.

Samples are judged and counted by the code that `refusal score` runs on the log afterwards: the numbers are the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, cast

from anyio import to_thread
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageSystem, ChatMessageUser
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, Value, metric, scorer
from inspect_ai.solver import TaskState, generate

from extract.prompts.prompt import Prompt
from judging.judge_by_name import open_judge
from probes.statistics.seeds import named_rng
from scoring.abstaining import worded
from scoring.case import Case, case_of_row, cases_of, sample_of
from scoring.evaluation.suite import load_suite, prompts_of
from scoring.judges.structured_refusal import refused
from scoring.ledger import Entry, Ledger, workspace
from scoring.rates import RATES, mistakes
from scoring.readers.answers import read_sample
from scoring.readers.columns import attributes_of
from scoring.right_action import Adjacency, credit_of, load_adjacency
from scoring.score_file import entry_of, to_judge
from scoring.scorecard import Scorecard, scorecard

Counted = dict[str, Any]  # unchecked: what a score keeps for the metric, as the log gives it back
TURNS = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
KEPT = tuple(field.name for field in fields(Case) if field.name not in ("text", "messages"))  # what counting needs
JUDGED = ("action", "fields", "confidence", "thought", "by")  # and what was judged


@task
def joint(
    suite: str = "core",
    sets: str | None = None,
    limit: int | None = None,
    judge: str = "rules",
    state_target: float | None = None,
    ask_confidence: bool = False,
) -> Task:
    """Ask a suite of labelled prompts; score missed harm, over-refusal and overconfidence together.

    Args:
        suite: core, public, or a YAML file of sets.
        sets: folder of the sets' files: SETS/NAME/FILE, or SETS/FILE.
        limit: most prompts of each label of a set.
        judge: rules, reader, or a YAML file.
        state_target: a confidence target that questions with a known answer state, 0 to below 1.
        ask_confidence: ask in questions with a known answer how sure the model is.
    """
    drawn = prompts_of(load_suite(suite), None if sets is None else Path(sets), limit)
    prompts = worded(drawn, state_target, ask_confidence)
    cases = cases_of(prompts)
    rng = named_rng(0, "order of an Inspect task")  # so that Inspect's own --limit takes some of every label
    samples = [_sample(prompts[row], cases[prompts[row].id]) for row in rng.permutation(len(prompts))]
    return Task(dataset=MemoryDataset(samples, name=Path(suite).stem), solver=generate(), scorer=joint_scorer(judge))


def _sample(prompt: Prompt, case: Case) -> Sample:
    metadata = dict(attributes_of(prompt, case.group))
    target = prompt.answer or prompt.right_action
    return Sample(chat_messages(prompt), target=target, id=prompt.id, metadata=metadata)


def chat_messages(prompt: Prompt) -> list[ChatMessage]:
    """Return the conversation of a prompt as Inspect's messages."""
    return [TURNS[turn["role"]](content=turn["content"]) for turn in prompt.messages]


@metric(scores="unreduced")
def joint_rates() -> Metric:
    """Return the rates of `refusal score` with 95 % intervals over independent groups; every epoch counts."""

    def entry(one: SampleScore) -> Entry:
        record: Counted = one.score.metadata or {}
        case = Case(**record["case"] | {"acceptable": tuple(record["case"]["acceptable"])})
        return Entry(evidence="", case=case, sample=record["epoch"], **{name: record[name] for name in JUDGED})

    def count(scores: list[SampleScore]) -> Value:  # Inspect reads the annotations
        return dict(figures_of(map(entry, scores)))

    return count


def figures_of(entries: Iterable[Entry]) -> dict[str, float]:
    """Count judged completions: the rates and scores of `refusal score` with their limits."""
    with workspace() as connection:
        ledger = Ledger(connection)
        for entry in entries:
            ledger.add(entry)
        return dict(_figures(scorecard(ledger, load_adjacency())))


@scorer(metrics=[joint_rates()], name="joint")
def joint_scorer(judge: str = "rules") -> Scorer:
    """Judge what each answer did, and whether that was right for its prompt.

    A score has, for each rate, 1 for a mistake, 0 for none, NaN where the rate does not count this prompt or the answer
    could not be judged; the credit of the action (`right_action`); and `unjudged`.

    Args:
        judge: rules, reader, or a YAML file such as configs/judges/endpoint.yaml.
    """
    opened, adjacency = open_judge(judge), load_adjacency()

    async def score(state: TaskState, target: Target) -> Score:
        messages, output = [turn.model_dump() for turn in state.messages], state.output.model_dump()
        about = {"id": state.sample_id, "epoch": state.epoch, "metadata": state.metadata}
        row = read_sample({**about, "messages": messages, "output": output})  # as the log will hold it
        case, completion = case_of_row(row), cast(str | None, row["completion"])
        asked = to_judge(case, completion)
        judgement = refused(row)
        if judgement is None:
            judgement = await to_thread.run_sync(lambda: next(iter(opened.judge_all([asked]))))
        return score_of(entry_of(case, sample_of(row), completion, judgement), adjacency)

    return score


def score_of(entry: Entry, adjacency: Adjacency) -> Score:
    """Return the score of a judged completion, as `joint_scorer` describes it."""
    case, credit, did = entry.case, math.nan, entry.action
    if did and case.right_action:
        credit = credit_of((case.right_action, case.acceptable, did), adjacency)
    return Score(
        value=mistakes(case.label, did) | {"right_action": credit, "unjudged": float(did is None)},
        answer=did,
        explanation=entry.evidence,
        reason="refusal" if did == "refuse" else "grader_failed" if did is None else None,
        metadata=_record(entry),
    )


def _record(entry: Entry) -> Counted:
    """Return what the metric counts, as JSON holds it."""
    case = {name: value for name, value in asdict(entry.case).items() if name in KEPT and value is not None}
    return {"case": case, "epoch": entry.sample, **{name: getattr(entry, name) for name in JUDGED}}


def _figures(card: Scorecard) -> Iterator[tuple[str, float]]:
    estimates = {} if card.rates is None else {name: card.rates.of(name) for name in RATES}
    estimates |= {"right_action_score": card.right_action.score}
    estimates |= {"score_over_targets": card.confidence.score} if card.confidence else {}
    scores = card.penalty.scores if card.penalty else {}
    estimates |= {f"score_at_{target}": score for target, score in scores.items()}
    for name, estimate in estimates.items():
        yield from zip((name, f"{name}_low", f"{name}_high"), estimate.limits(), strict=True)
    yield "unjudged", float(card.actions.get("unjudged", 0))
    for by, n in card.refused_by.items():
        yield f"refused_by_{by}", float(n)
