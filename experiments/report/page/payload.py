"""The data of the page's script, which looks all up: prompts, gates at each threshold tried, and the rates there."""

from __future__ import annotations

import shlex
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow.parquet

from experiments.charts.points import shape_of
from experiments.dials.counterfactuals import read_table
from experiments.dials.results import COUNTED, TOKEN_READINGS, TokenReadings
from experiments.dials.surface import RISKS, comparable
from experiments.report.page.document import shortened
from experiments.report.page.summary import KNOWN_FACTS, before_and_now
from experiments.report.results import RunResults
from experiments.run.behaviour import KINDS
from experiments.run.completion_file import read_completions
from experiments.run.config import set_at
from experiments.run.inputs import RunInputs
from experiments.triggers.results import AttributedRequest
from probes.statistics.intervals import Estimate
from scoring.actions import ACTIONS, ANSWERED
from steering.dial import decide
from steering.direction_file import load_directions
from steering.gates import DECISIONS

Payload = Mapping[str, Any]  # JSON for the page's script
Surface = Mapping[str, np.ndarray]  # the columns of surface.parquet
Line = TypeVar("Line", AttributedRequest, TokenReadings)
MOST_CHARACTERS = 400  # of a prompt or a completion
DIGITS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
MOST_WORDS = 200  # of an attributed request
LOW_OVER_REFUSAL = 0.02
ENDS = ("", "_low", "_high")  # of the columns of a rate
VIEWER = "http://127.0.0.1:7575/#/logs"  # of `inspect view`, at the port that it takes unless told otherwise
RATE_OF = {"uncertain_mistaken": "overconfidence"}  # a rate of the same prompts


def payload(inputs: RunInputs, results: RunResults) -> Payload:
    """Return the data of one run, ready for JSON."""
    labels = list(inputs.corpus.counts())
    data = {
        "actions": list(ACTIONS),
        "shapes": [shape_of(action) for action in ACTIONS],
        "behaviours": behaviours(),
        "labels": labels,
        "prompts": _prompts(inputs, results, labels),
        "inspect": inspect_logs(inputs.directory),
        "dials": [],
    }
    if not results.dials:
        return data
    table = read_table(inputs.file("table.jsonl"))
    read = pyarrow.parquet.read_table(inputs.file("surface.parquet"))
    surface = {name: read.column(name).to_numpy() for name in read.column_names}
    band = next(iter(results.dials.values())).band
    stops = [np.unique(surface[f"{kind}_threshold"]) for kind in table.dials]  # the thresholds tried, increasing
    # of a prompt, a dial declines at its first stops (so many), leaves up to another stop, and permits from there on
    gates = [decide(p[None, :, None], tau, band)[0] for p, tau in zip(table.probability, stops, strict=True)]
    outcomes = ["+".join(DECISIONS[each] for each in outcome) for outcome in table.outcomes]
    model, dials = shlex.quote(results.model.name), shlex.quote(str(inputs.file("dials.safetensors")))
    return data | {
        "dials": list(table.dials),
        "band": band,
        "stops": {kind: taus.tolist() for kind, taus in zip(table.dials, stops, strict=True)},
        "set": {kind: dial.threshold for kind, dial in results.dials.items()},
        "read": [probability.tolist() for probability in table.probability],
        "gate": [{"declines": (g > 0).sum(axis=1).tolist(), "leaves": (g >= 0).sum(axis=1).tolist()} for g in gates],
        "outcome_of": {outcome: place for place, outcome in enumerate(outcomes)},
        "done": [_indices(column) for column in table.actions.T],
        "surface": _rates(surface, results),
        "presets": _presets(surface, results),
        "commands": {  # to which the page appends the thresholds
            "answer": f'refusal generate {model} "PROMPT" --dials {dials}',
            "serve": f"refusal serve {model} --dials {dials}",
        },
    }


def inspect_logs(run: Path) -> Payload:
    """Return the addresses of the run's logs in Inspect's viewer, by name, and the command that shows or makes them."""
    logs = {path.stem: f"{VIEWER}/{path.name}" for path in sorted((run / "inspect").glob("*.eval"))}
    view = f"inspect view --log-dir {shlex.quote(str(run / 'inspect'))}"
    return {"logs": logs, "command": view if logs else f"refusal export {shlex.quote(str(run))} --inspect && {view}"}


def behaviours() -> dict[str, list[int]]:
    """Return the behaviours whose shares the page shows by group: the indices of their actions."""
    own = {"answered": ANSWERED, "refused": {"refuse"}, "abstained": {"abstain"}}
    return {name: sorted(ACTIONS.index(action) for action in actions) for name, actions in own.items()}


def _rates(surface: Surface, results: RunResults) -> Payload:
    """Return each rate at every setting: its distinct cells (value, text, n), and which one each setting has."""
    column = {name: values.tolist() for name, values in surface.items()}
    n = {name: results.rates.before.of(RATE_OF.get(name, name)).n for name in COUNTED}
    n |= {"right_action": results.right_action.before.score.n, KNOWN_FACTS: results.known_facts_right.n}
    text = {
        name: [f"{Estimate(*ends):.1%}" for ends in zip(*(column[f"test_{name}{end}"] for end in ENDS), strict=True)]
        for name in COUNTED
    }
    text["right_action"] = ["none" if isnan(score) else f"{score:.3f}" for score in column["test_right_action"]]
    text[KNOWN_FACTS] = ["none judged" if isnan(share) else f"{share:.1%}" for share in column["test_known_facts"]]
    column["test_known_facts_n"] = [n[KNOWN_FACTS]] * len(text[KNOWN_FACTS])
    shown = {}
    for name, texts in text.items():
        rows = zip(column[f"test_{name}"], texts, column[f"test_{name}_n"], strict=True)
        cells = [
            (None if isnan(value) else value, words, before_and_now(n[name] or 0, int(now)))
            for value, words, now in rows
        ]
        places = {cell: place for place, cell in enumerate(dict.fromkeys(cells))}
        shown[name] = {"cells": list(places), "at": [places[cell] for cell in cells]}
    return shown


def _prompts(inputs: RunInputs, results: RunResults, labels: Sequence[str]) -> Payload:
    """Return the prompts by columns; x and y are the projections on the two write directions."""
    prompts, steered_file = inputs.prompts, inputs.file("completions_steered.jsonl")
    completions = read_completions(inputs.file("completions.jsonl"))
    steered = {c.id: c for c in read_completions(steered_file)} if steered_file.is_file() else {}
    after = [steered.get(prompt.id) for prompt in prompts]
    columns = {
        "id": [shortened(p.id, 80) for p in prompts],
        "text": [shortened(_text(p.messages), MOST_CHARACTERS) for p in prompts],
        "label": [labels.index(p.label) for p in prompts],
        "category": [p.category or "" for p in prompts],
        "trigger": [p.trigger or "" for p in prompts],
        "part": inputs.corpus.part.tolist(),
        "before": _indices(inputs.behaviour.actions),
        "said": [shortened(c.completion, MOST_CHARACTERS) for c in completions],
        "why": [shortened(c.evidence, MOST_CHARACTERS) for c in completions],
        "after": _indices(c.action if c else None for c in after),
        "steered": [shortened(c.completion, MOST_CHARACTERS) if c else "" for c in after],
        "why_steered": [shortened(c.evidence, MOST_CHARACTERS) if c else "" for c in after],
        "words": {  # of each attributed request, with their scores in nats
            place: [[shortened(word, 80), round(score, 2)] for word, score in zip(words, request.scores, strict=False)]
            for place, request in _by_place(inputs, "attributions.jsonl", AttributedRequest)
            if (words := request.words[:MOST_WORDS])
        },
        "tokens": {
            place: _tokens(readings, list(results.dials))
            for place, readings in _by_place(inputs, TOKEN_READINGS, TokenReadings)
            if set(readings.log_odds) <= set(results.dials)
        },
    }
    directions = load_directions(inputs.file("directions.safetensors"))
    for axis, kind in zip("xy", KINDS, strict=True):
        if direction := directions.get(f"{kind}_write"):
            where = direction.locus.layer, set_at(direction.locus.position)
            along = direction.project(inputs.store.read(*where)).tolist()
            columns[axis] = [None if isnan(value) else value for value in along]  # of prompts without such a token
            columns[f"{axis}_layer"] = direction.locus.layer
    return columns


def _by_place(inputs: RunInputs, name: str, line_type: type[Line]) -> Iterator[tuple[str, Line]]:
    """Yield each line of a file about single prompts, with the prompt's place as JSON has it as a key."""
    path, place = inputs.file(name), {prompt.id: i for i, prompt in enumerate(inputs.prompts)}
    for text in path.read_text(encoding="utf-8").split("\n") if path.is_file() else []:
        if text and (line := line_type.model_validate_json(text)).id in place:
            yield str(place[line.id]), line


def _tokens(readings: TokenReadings, dials: Sequence[str]) -> list[Any]:
    """Return a prompt's shown tokens, how many are the user's and how many of these left out, and each dial's readings.

    A dial has its readings (`encoded`), the places of the tokens at which it reads, and their number.
    """
    lengths = np.cumsum([len(token) for token in readings.tokens[: readings.words]])
    kept = int(np.searchsorted(lengths, MOST_CHARACTERS, side="right"))
    shown = [*range(kept), *range(readings.words, len(readings.tokens))]
    by_dial: list[Any] = [None for _ in dials]
    for i, kind in enumerate(dials):
        if kind in readings.log_odds:
            read_at, log_odds = readings.read_at[kind], [readings.log_odds[kind][k] for k in shown]
            by_dial[i] = [encoded(log_odds), [shown.index(k) for k in read_at if k in shown], len(read_at)]
    return [[readings.tokens[k] for k in shown], kept, readings.words - kept, by_dial]


def encoded(log_odds: Sequence[float]) -> str:
    """Return numbers as two characters each: hundredths from -20.48 to 20.47, in base 64."""
    levels = np.clip(np.rint(100 * np.array(log_odds)), -2048, 2047).astype(int) + 2048
    return "".join(DIGITS[level // 64] + DIGITS[level % 64] for level in levels)


def _text(messages: Sequence[Mapping[str, str]]) -> str:
    """Return a conversation as one text; a single turn without its role."""
    if len(messages) == 1:
        return messages[0]["content"]
    return "\n".join(f"{message['role']}: {message['content']}" for message in messages)


def _indices(actions: Iterable[str | None]) -> list[int]:
    """Return actions as indices into ACTIONS, -1 where unjudged."""
    return [-1 if action is None else ACTIONS.index(action) for action in actions]


def _presets(surface: Surface, results: RunResults) -> Sequence[Payload]:
    """Return the settings with a button; none was chosen on test prompts."""
    chosen = {kind: dial.threshold for kind, dial in results.dials.items()}
    presets = [{"name": "thresholds of this run", "thresholds": chosen}]
    least = results.steer.least_regret
    if least and set(least.thresholds) == set(chosen):
        presets.append({"name": "least regret", "thresholds": least.thresholds})
    rates = {name: surface[f"choice_{name}"] for name in RISKS}
    low = np.flatnonzero(rates["over_refusal"] <= LOW_OVER_REFUSAL)
    if len(low):
        mistakes = comparable(np.stack(list(rates.values()), axis=1)).sum(axis=1)
        best = low[np.argmin(mistakes[low].round(9))]
        taus = {kind: float(surface[f"{kind}_threshold"][best]) for kind in chosen}
        presets.append({"name": f"over_refusal ≤ {LOW_OVER_REFUSAL:.0%}", "thresholds": taus})
    return presets
