"""Attributions of a run's requests: which prompts are looked at, what is kept, and how often the trigger word fired."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from experiments.factors.removal import choose
from experiments.probing.stage import context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.run.inputs import RunInputs
from experiments.triggers.attribution import Attribution, attribute
from extract.atomic_write import write_jsonl
from probes.statistics.bounded_mean import mean_interval

SHOWN = 8  # examples that stand in the record
MOST = 24  # refused requests of each label; over-refused ones first, being what is asked after


@dataclass(frozen=True)
class Attributed:
    """A prompt of the run with its attribution."""

    row: int
    attribution: Attribution
    fired: bool | None  # the word that speaks most for refusing is the trigger; None where the prompt has none


def attributed(loaded: LoadedRun) -> list[Attributed]:
    """Attribute refused requests, benign and harmful, and keep them in attributions.jsonl.

    None are where refusals have no onset to score, as with a model that thinks first.
    """
    corpus, onsets = loaded.corpus, context_onsets(loaded)
    refused = loaded.behaviour.did("refuse") & (not onsets.lacking("refuse"))
    asked = [np.flatnonzero(label & refused) for label in (corpus.requests, corpus.harmful)]
    rows = [int(row) for some in asked for row in choose(corpus, some, loaded.config.seed, MOST)]
    rendered = [loaded.rendered[row] for row in rows]
    if rows:
        with loaded.reporter.task("attributing refusals to words", len(rows)) as advance:
            found = attribute(loaded.model, rendered, onsets, advance)
    else:
        found = []
    kept = [Attributed(row, one, _fired(loaded, row, one)) for row, one in zip(rows, found, strict=True)]
    write_jsonl(loaded.file("attributions.jsonl"), (line(loaded, one) for one in kept))
    return kept


def line(inputs: RunInputs, one: Attributed) -> dict[str, Any]:
    """Return what attributions.jsonl holds of a prompt; scores are in nats of onset log-odds."""
    prompt, found = inputs.prompts[one.row], one.attribution
    return {
        "id": prompt.id, "label": prompt.label, "trigger": prompt.trigger, "log_odds": found.log_odds,
        "words": list(found.words), "scores": list(found.scores), "tokens": [list(t) for t in found.tokens],
        "top": None if found.top is None else found.words[found.top], "fired_by_trigger": one.fired,
    }  # fmt: skip


def attribution_record(loaded: LoadedRun) -> dict[str, Any]:
    """Return, by label, how often the trigger is the word that speaks most for refusing, over groups."""
    corpus, kept = loaded.corpus, attributed(loaded)
    if not kept:
        lacking = context_onsets(loaded).lacking("refuse")
        return {"applicable": False, "reason": lacking or "no request is refused"}
    record: dict[str, Any] = {}
    for label, mask in (("benign", corpus.requests), ("harmful", corpus.harmful)):
        own = [one for one in kept if mask[one.row] and one.fired is not None]
        if not own:
            record[label] = None
            continue
        index = np.unique([corpus.groups[one.row] for one in own], return_inverse=True)[1].reshape(-1)
        size = np.bincount(index)
        fired, chance = (np.bincount(index, values) / size for values in (
            [float(bool(one.fired)) for one in own], [_chance(loaded, one) for one in own]))  # fmt: skip
        interval = mean_interval(fired, 0.0, 1.0)
        record[label] = {
            "fired_by_trigger": asdict(interval),
            "by_chance": float(chance.mean()), "n": len(own), "n_groups": len(size),
        }  # fmt: skip
    ordered = [one for mask in (corpus.requests, corpus.harmful) for one in kept if mask[one.row]]
    shown = ordered[:: max(1, len(kept) // SHOWN)][:SHOWN]
    return {"applicable": True, "n": len(kept), "by_label": record, "examples": [line(loaded, one) for one in shown]}


def _chance(loaded: LoadedRun, one: Attributed) -> float:
    """Return the share of the request's words that belong to the trigger."""
    trigger = set(loaded.rendered[one.row].trigger)
    return float(np.mean([bool(set(tokens) & trigger) for tokens in one.attribution.tokens]))


def _fired(loaded: LoadedRun, row: int, one: Attribution) -> bool | None:
    trigger = loaded.rendered[row].trigger
    if not len(trigger):
        return None
    return one.top is not None and bool(set(one.tokens[one.top]) & set(trigger))
