"""The data of the page's script: the prompts, their actions under every decision of the gates, and the rates' rules.

The script counts rates on test prompts by look-up in the run's table, with the run's own intervals: of judged
completions, over groups.
"""

from __future__ import annotations

import shlex
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet

from experiments.dials.counterfactuals import outcome_name, read_table
from experiments.dials.results import TOKEN_READINGS, TokenReadings
from experiments.dials.surface import COUNTED, RISKS, comparable
from experiments.report.page.document import shortened
from experiments.report.results import RunResults
from experiments.run.behaviour import KINDS
from experiments.run.completion_file import read_completions
from experiments.run.config import WRITE_POSITION
from experiments.run.inputs import RunInputs
from experiments.triggers.results import AttributedRequest
from extract.prompts.prompt import LABELS
from scoring.actions import ACTIONS
from scoring.right_action import credits_of, load_adjacency
from steering.direction_file import load_directions

Payload = Mapping[str, Any]  # JSON for the page's script
MOST_CHARACTERS = 400  # of a prompt or a completion
DIGITS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
MOST_WORDS = 200  # of an attributed request
LOW_OVER_REFUSAL = 0.02


def payload(inputs: RunInputs, results: RunResults) -> Payload:
    """Return the data of one run, ready for JSON."""
    labels = list(inputs.corpus.counts())
    found = {"actions": list(ACTIONS), "labels": labels, "prompts": _prompts(inputs, results, labels), "dials": []}
    table = read_table(inputs.file("table.jsonl")) if results.dials else None
    if table is None:
        return found
    test = np.flatnonzero(inputs.corpus.within("test"))
    return found | {
        "dials": list(table.dials),
        "band": next(iter(results.dials.values())).band,
        "outcomes": [outcome_name(gates) for gates in table.outcomes],
        "read": [_floats(p) for p in table.probability],
        "done": [_indices(column) for column in table.actions.T],
        "stated": [_bits(column) for column in table.right.T],
        "set": {kind: dial.threshold for kind, dial in results.dials.items()},
        "stops": _stops(inputs, results),
        "presets": _presets(inputs, results),
        "rates": _rates(),
        "credit": _credit(inputs, test),
        "commands": _commands(inputs, results),
    }


def _prompts(inputs: RunInputs, results: RunResults, labels: Sequence[str]) -> dict[str, Any]:
    """Return the prompts by columns; x and y are the projections on the two write directions."""
    prompts, plain = inputs.prompts, inputs.behaviour
    completions = read_completions(inputs.file("completions.jsonl"))
    steered = inputs.file("completions_steered.jsonl")
    under = {c.id: c for c in read_completions(steered)} if steered.is_file() else {}
    columns = {
        "id": [shortened(p.id, 80) for p in prompts],
        "text": [shortened(_text(p.messages), MOST_CHARACTERS) for p in prompts],
        "label": [labels.index(p.label) for p in prompts],
        "category": [p.category or "" for p in prompts],
        "trigger": [p.trigger or "" for p in prompts],
        "part": inputs.corpus.part.tolist(),
        "group": inputs.corpus.groups.tolist(),
        "known": _bits([p.answer is not None for p in prompts]),
        "stated": _bits(plain.correct),
        "before": _indices(plain.actions),
        "said": [shortened(c.completion, MOST_CHARACTERS) for c in completions],
        "why": [shortened(c.evidence, MOST_CHARACTERS) for c in completions],
        "after": _indices(np.array([under[p.id].action if p.id in under else None for p in prompts], dtype=object)),
        "steered": [shortened(under[p.id].completion, MOST_CHARACTERS) if p.id in under else "" for p in prompts],
        "why_steered": [shortened(under[p.id].evidence, MOST_CHARACTERS) if p.id in under else "" for p in prompts],
        "words": _attributed(inputs),
        "tokens": _token_readings(inputs, list(results.dials)),
    }
    directions = load_directions(inputs.file("directions.safetensors"))
    for axis, kind in zip("xy", KINDS, strict=True):
        if direction := directions.get(f"{kind}_write"):
            columns[axis] = _floats(direction.project(inputs.store.read(direction.locus.layer, WRITE_POSITION)))
            columns[f"{axis}_layer"] = direction.locus.layer
    return columns


def _attributed(inputs: RunInputs) -> dict[str, list[list[Any]]]:
    """Return the words of each attributed request with their scores in nats, by the prompt's place."""
    path, place = inputs.file("attributions.jsonl"), {prompt.id: i for i, prompt in enumerate(inputs.prompts)}
    lines = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
    requests = [AttributedRequest.model_validate_json(line) for line in lines if line]
    return {
        str(place[request.id]): [
            [shortened(word, 80), round(score, 2)] for word, score in zip(words, request.scores, strict=False)
        ]
        for request in requests
        if request.id in place and (words := request.words[:MOST_WORDS])
    }


def _token_readings(inputs: RunInputs, dials: Sequence[str]) -> dict[str, list[Any]]:
    """Return the tokens of each prompt with readings, by the prompt's place.

    A prompt has its tokens, how many of them are the user's, how many of the user's are left out after those, and for
    each dial its readings (`encoded`) and the tokens at which it reads.
    """
    path, place = inputs.file(TOKEN_READINGS), {prompt.id: i for i, prompt in enumerate(inputs.prompts)}
    lines = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
    found: dict[str, list[Any]] = {}
    for line in filter(None, lines):
        one = TokenReadings.model_validate_json(line)
        if one.id not in place or not set(one.log_odds) <= set(dials):
            continue
        kept = _first_tokens(one.tokens[: one.words])
        shown = [*range(kept), *range(one.words, len(one.tokens))]
        by_dial = [
            [
                encoded([one.log_odds[kind][k] for k in shown]),
                [shown.index(k) for k in one.read_at[kind] if k in shown],
                len(one.read_at[kind]),
            ]
            if kind in one.log_odds
            else None
            for kind in dials
        ]
        found[str(place[one.id])] = [[one.tokens[k] for k in shown], kept, one.words - kept, by_dial]
    return found


def _first_tokens(tokens: Sequence[str]) -> int:
    """Return how many tokens are within the most characters of a prompt that the page shows."""
    return int(np.searchsorted(np.cumsum([len(token) for token in tokens]), MOST_CHARACTERS, side="right"))


def encoded(log_odds: Sequence[float]) -> str:
    """Return numbers as two characters each: hundredths from -20.48 to 20.47, in base 64."""
    levels = np.clip(np.rint(100 * np.array(log_odds)), -2048, 2047).astype(int) + 2048
    return "".join(DIGITS[level // 64] + DIGITS[level % 64] for level in levels)


def _text(messages: Sequence[Mapping[str, str]]) -> str:
    """Return a conversation as one text; a single turn without its role."""
    if len(messages) == 1:
        return messages[0]["content"]
    return "\n".join(f"{message['role']}: {message['content']}" for message in messages)


def _indices(actions: np.ndarray) -> list[int]:
    """Return actions as indices into ACTIONS, -1 where unjudged."""
    return [-1 if action is None else ACTIONS.index(action) for action in actions.tolist()]


def _bits(values: Iterable[bool]) -> str:
    return "".join("1" if value else "0" for value in values)


def _floats(values: np.ndarray) -> list[float]:
    """Return Python floats, whose JSON is exact, since they are compared with thresholds."""
    return [float(value) for value in values]


def _stops(inputs: RunInputs, results: RunResults) -> dict[str, list[float]]:
    """Return the stops of each slider: the thresholds tried, the one set, 0.5 and both ends."""
    surface = pyarrow.parquet.read_table(inputs.file("surface.parquet"))
    stops = {}
    for kind, dial in results.dials.items():
        tried = set(surface.column(f"{kind}_threshold").to_pylist())
        stops[kind] = sorted(tried | {0.0, 0.5, 1.0, dial.threshold})
    return stops


def _presets(inputs: RunInputs, results: RunResults) -> list[dict[str, Any]]:
    """Return the settings with a button; none was chosen on test prompts."""
    chosen = {kind: dial.threshold for kind, dial in results.dials.items()}
    presets = [{"name": "thresholds of this run", "thresholds": chosen}]
    least = results.steer.least_regret
    if least and set(least.thresholds) == set(chosen):
        presets.append({"name": "least regret", "thresholds": least.thresholds})
    surface = pyarrow.parquet.read_table(inputs.file("surface.parquet"))
    rates = {name: surface.column(f"choice_{name}").to_numpy() for name in RISKS}
    low = np.flatnonzero(rates["over_refusal"] <= LOW_OVER_REFUSAL)
    if len(low):
        mistakes = comparable(np.stack(list(rates.values()), axis=1)).sum(axis=1)
        best = surface.slice(low[np.argmin(mistakes[low].round(9))], 1).to_pylist()[0]
        presets.append(
            {
                "name": f"over_refusal ≤ {LOW_OVER_REFUSAL:.0%}",
                "thresholds": {kind: best[f"{kind}_threshold"] for kind in chosen},
            }
        )
    return presets


def _rates() -> Payload:
    """Return how each rate is counted: the label of its prompts, and the actions that count as its mistake."""
    return {
        name: {"label": LABELS.index(label), "counts": [ACTIONS.index(action) for action in sorted(counts)]}
        for name, (label, counts) in COUNTED.items()
    }


def _credit(inputs: RunInputs, test: np.ndarray) -> dict[str, Any]:
    """Return the terms of the right-action score: the right action of each test prompt, and the credit of each action.

    Rows of credits are written once; `kind` is the row of each prompt.
    """
    prompts, adjacency = [inputs.prompts[row] for row in test], load_adjacency()
    credits = np.array([credits_of(p.right_action, p.acceptable, adjacency) for p in prompts])
    kinds, place = np.unique(credits.reshape(-1, len(ACTIONS)), axis=0, return_inverse=True)
    return {
        "credits": kinds.tolist(),
        "rows": test.tolist(),
        "kind": place.ravel().tolist(),
        "right": [ACTIONS.index(p.right_action) for p in prompts],
    }


def _commands(inputs: RunInputs, results: RunResults) -> dict[str, str]:
    """Return the commands to which the page appends the thresholds."""
    model = shlex.quote(results.model.name)
    dials = shlex.quote(str(inputs.file("dials.safetensors")))
    return {
        "answer": f'refusal generate {model} "PROMPT" --dials {dials}',
        "serve": f"refusal serve {model} --dials {dials}",
    }
