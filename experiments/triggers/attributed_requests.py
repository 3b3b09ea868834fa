"""Attribution of a run's refused requests to words, and how often the trigger word scores highest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from experiments.factors.decision_change import group_means
from experiments.factors.removal import choose_requests
from experiments.probing.stage import context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.triggers.attribution import Attribution, attribute
from experiments.triggers.results import AttributedRequest, FiredByTrigger, TriggerAttribution
from extract.atomic_write import write_jsonl
from extract.record import NotApplicable, not_applicable
from probes.statistics.means import mean_interval

SHOWN = 8  # examples in stages/triggers.json


@dataclass(frozen=True)
class AttributedRow:
    """A row of the corpus with its attribution."""

    row: int
    scores: Attribution
    fired: bool | None  # the highest-scoring word is the trigger; None where the prompt has no trigger


def measure_attribution(loaded: LoadedRun) -> TriggerAttribution | NotApplicable:
    """Return, by label, how often the trigger is the word with the highest score; write attributions.jsonl."""
    if not loaded.config.triggers.attributed:
        return not_applicable("triggers.attributed is 0")
    corpus, attributed = loaded.corpus, attribute_refusals(loaded)
    write_jsonl(loaded.file("attributions.jsonl"), (_request(loaded, one).to_dict() for one in attributed))
    if not attributed:
        return not_applicable(context_onsets(loaded).lacking("refuse") or "no request is refused")
    labels = {"benign": corpus.requests, "harmful": corpus.harmful}
    ordered = [one for mask in labels.values() for one in attributed if mask[one.row]]
    shown = ordered[:: max(1, len(attributed) // SHOWN)][:SHOWN]
    return TriggerAttribution(
        applicable=True,
        n=len(attributed),
        by_label={
            label: _fired_by_trigger(loaded, [one for one in attributed if mask[one.row]])
            for label, mask in labels.items()
        },
        examples=tuple(_request(loaded, one) for one in shown),
    )


def attribute_refusals(loaded: LoadedRun) -> list[AttributedRow]:
    """Attribute refused requests, benign and harmful, to their words; over-refused ones first.

    The list is empty where refusals have no onset to score, as with a model that thinks first.
    """
    corpus, onsets, most = loaded.corpus, context_onsets(loaded), loaded.config.triggers.attributed
    refused = loaded.behaviour.did("refuse") & (not onsets.lacking("refuse"))
    asked = [np.flatnonzero(label & refused) for label in (corpus.requests, corpus.harmful)]
    rows = [int(row) for some in asked for row in choose_requests(corpus, some, loaded.config.seed, most)]
    if not rows:
        return []
    with loaded.reporter.task("attributing refusals to words", len(rows)) as advance:
        attributions = attribute(loaded.model, [loaded.rendered[row] for row in rows], onsets, advance)
    return [
        AttributedRow(row, scores, _fired(loaded, row, scores)) for row, scores in zip(rows, attributions, strict=True)
    ]


def _request(loaded: LoadedRun, one: AttributedRow) -> AttributedRequest:
    prompt, attribution = loaded.prompts[one.row], one.scores
    return AttributedRequest(
        id=prompt.id,
        label=prompt.label,
        trigger=prompt.trigger,
        **vars(attribution),
        top=None if attribution.top is None else attribution.words[attribution.top],
        fired_by_trigger=one.fired,
    )


def _fired_by_trigger(loaded: LoadedRun, of_label: Sequence[AttributedRow]) -> FiredByTrigger | None:
    own = [one for one in of_label if one.fired is not None]
    if not own:
        return None
    groups = loaded.corpus.groups[[one.row for one in own]]
    fired, chance = (
        group_means(np.array(values, dtype=float), groups)
        for values in ([one.fired for one in own], [_chance(loaded, one) for one in own])
    )
    return FiredByTrigger(
        fired_by_trigger=mean_interval(fired, 0.0, 1.0),
        by_chance=float(chance.mean()),
        n=len(own),
        n_groups=len(fired),
    )


def _chance(loaded: LoadedRun, one: AttributedRow) -> float:
    """Return the share of the request's words that belong to the trigger."""
    trigger = set(loaded.rendered[one.row].trigger)
    return float(np.mean([bool(set(tokens) & trigger) for tokens in one.scores.tokens]))


def _fired(loaded: LoadedRun, row: int, scores: Attribution) -> bool | None:
    trigger = loaded.rendered[row].trigger
    if not len(trigger):
        return None
    return scores.top is not None and bool(set(scores.tokens[scores.top]) & set(trigger))
