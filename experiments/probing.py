"""`refusal probe`: read probes on labels, write directions on behaviour, and how they lie to each other."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.behaviour import ACTION_OF, KINDS, Kind, WriteSamples, write_samples
from experiments.completions import read_completions
from experiments.context import Context
from experiments.manifest import write_json
from experiments.onset import Onsets, OnsetScorer, learn_onsets
from experiments.reading import Reading, grid_rows, read_direction, read_grid, site_record, write_parquet
from experiments.writing import Candidate, candidates, fit_write, select, write_layers
from extract.loading import resolve
from probes.direction import Direction, save_directions
from probes.geometry import cosine


def probe(context: Context) -> None:
    """Write probes.parquet, directions.safetensors and stages/probe.json."""
    site = context.store.site
    readings: dict[Kind, Reading] = {kind: read_grid(context, kind) for kind in KINDS}
    directions = [
        read_direction(r, kind, site, context.store.read(r.chosen.layer, r.chosen.position))
        for kind, r in readings.items()
    ]
    onsets = context_onsets(context)
    writes: dict[Kind, dict[str, Any]] = {}
    for kind in KINDS:
        chosen, record = _write(context, kind, onsets)
        writes[kind] = record
        directions += [chosen] if chosen else []
    write_parquet(grid_rows(readings, site), context.file("probes.parquet"))
    save_directions(directions, context.file("directions.safetensors"))
    write_json(
        context.file("stages/probe.json"),
        {
            "sites": {kind: site_record(reading, site) for kind, reading in readings.items()},
            "writes": writes,
            "geometry": _geometry(context, directions),
            "onsets": _onset_record(context, onsets),
            "planted": _planted(context),
        },
    )


def context_onsets(context: Context) -> Onsets:
    """Learn onset prefixes from the model's own completions outside the test part."""
    spoken = read_completions(context.file("completions.jsonl"))
    rows = np.flatnonzero(context.corpus.within("train", "validation"))
    return learn_onsets([spoken[i].token_ids for i in rows], [spoken[i].action for i in rows])


def _write(context: Context, kind: Kind, onsets: Onsets) -> tuple[Direction | None, dict[str, Any]]:
    behaviour, config = context.behaviour, context.config.dissociate
    samples = write_samples(behaviour, kind)
    n = int(behaviour.did(ACTION_OF[kind]).sum())
    if samples is None:
        return None, {"available": False, "reason": f"the model does not {ACTION_OF[kind]} often enough ({n} times)"}
    rng = np.random.default_rng([context.config.seed, 2])
    decliners = _some(rng, behaviour.decliners(kind, "validation"), config.n_selection)
    benign = _some(rng, behaviour.answered_benign("validation"), config.n_selection)
    if len(decliners) < 4 or len(benign) < 4 or not onsets.prefixes[ACTION_OF[kind]]:
        return None, {"available": False, "reason": "too few validation prompts are declined or answered"}
    fitted = write_directions(context, kind, samples)
    declining, answering = (
        OnsetScorer(context.model, [context.rendered[i] for i in rows], onsets) for rows in (decliners, benign)
    )
    with context.reporter.task(f"choosing the write layer ({kind})", len(fitted)) as advance:
        found = candidates(fitted, kind, declining, answering, lambda: advance(1))
    best, usable = select(found, config.max_kl)
    provenance = {**best.direction.provenance, "meets_selection_rules": usable}
    return replace(best.direction, provenance=provenance), _write_record(best, usable, found, samples)


def write_directions(
    context: Context, kind: Kind, samples: WriteSamples, declined: np.ndarray | None = None
) -> list[Direction]:
    """Fit the write direction of every layer a write may stand at."""
    layers = write_layers(context.model.n_layers, context.config.dissociate.deepest)
    y = samples.declined if declined is None else declined
    read, site = context.write_read, context.store.site
    return [fit_write(read, site, layer, kind, samples, y) for layer in layers if layer in context.store.layers]


def _some(rng: np.random.Generator, rows: np.ndarray, most: int) -> np.ndarray:
    return np.sort(rng.permutation(rows)[:most])


def _write_record(best: Candidate, usable: bool, found: list[Candidate], samples: WriteSamples) -> dict[str, Any]:
    return {
        "available": True,
        "locus": vars(best.direction.locus),
        "meets_selection_rules": usable,
        "within_label": samples.within_label,
        "strata": sorted(set(samples.strata.tolist())),
        "n": len(samples.rows),
        "mean_positive": best.direction.mean_positive,
        "mean_negative": best.direction.mean_negative,
        "candidates": [
            {"layer": c.direction.locus.layer, "bypass": c.bypass, "induce": c.induce, "kl": c.kl} for c in found
        ],
    }


def _geometry(context: Context, directions: list[Direction]) -> dict[str, Any]:
    """Cosines between directions fitted at one layer and position; unlike layers are not compared."""
    named = {d.name: d for d in directions}
    record: dict[str, Any] = {"cosine": None, "cosine_by_layer": {}, "between_chosen": {}}
    samples = {kind: write_samples(context.behaviour, kind) for kind in KINDS}
    if all(f"{kind}_write" in named for kind in KINDS):
        fitted = {kind: write_directions(context, kind, s) for kind, s in samples.items() if s is not None}
        for a, b in zip(fitted["normative"], fitted["epistemic"], strict=True):
            record["cosine_by_layer"][str(a.locus.layer)] = cosine(a.vector, b.vector)
        record["cosine"] = record["cosine_by_layer"][str(named["normative_write"].locus.layer)]
    for a, b in itertools.combinations(directions, 2):
        if a.locus.layer == b.locus.layer:
            record["between_chosen"][f"{a.name} . {b.name}"] = cosine(a.vector, b.vector)
    return record


def _onset_record(context: Context, onsets: Onsets) -> dict[str, Any]:
    decode = context.model.decode
    return {kind: {"prefixes": [decode(p) for p in prefixes], "coverage": onsets.coverage[kind]}
            for kind, prefixes in onsets.prefixes.items()}  # fmt: skip


def _planted(context: Context) -> dict[str, Any] | None:
    """Grade write directions at the planted locus against truth.json, where the model directory holds one.

    The truth is read here, after everything above has been fitted and chosen without it.
    """
    try:
        path = Path(resolve(context.config.model.name)) / "truth.json"
    except ValueError:
        return None
    if not path.is_file():
        return None
    truth = json.loads(path.read_text(encoding="utf-8"))
    record: dict[str, Any] = {f"{kind}_cosine": None for kind in KINDS}

    def at_truth(layer: int) -> np.ndarray:
        return context.store.read(layer, truth["position"])

    for kind in KINDS:
        samples = write_samples(context.behaviour, kind)
        planted = [v for v in truth["variables"] if ACTION_OF[kind] in v["decides"]]
        if samples is None or not planted or truth["site"] != context.store.site:
            continue
        fitted = fit_write(at_truth, truth["site"], truth["layer"], kind, samples, samples.declined)
        record[f"{kind}_cosine"] = abs(cosine(fitted.vector, np.array(planted[0]["direction"])))
    return record | {"site": truth["site"], "layer": truth["layer"], "position": truth["position"]}
