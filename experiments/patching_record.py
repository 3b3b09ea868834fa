"""Which pairs are patched, and what stands of it in stages/triggers.json."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict
from typing import Any

import numpy as np

from experiments.context import Context
from experiments.patching import MIN_GROUPS, Aligned, LayerShare, align, patching_share
from experiments.probing import context_onsets

MOST = 48  # pairs


def patching_record(context: Context) -> dict[str, Any]:
    """Return the patching share by layer, or why there is none; and how many pairs were left out for which reason."""
    candidates, counts = flipped_pairs(context)
    pairs, broken = _aligned(context, candidates)
    pairs = _spread(context, pairs)
    groups = context.corpus.groups[[pair.with_word for pair in pairs]] if pairs else np.empty(0, dtype=int)
    record: dict[str, Any] = {"pairs": counts["pairs"], "flipped": len(candidates), "left_out": dict(broken),
                              "n": len(pairs), "n_groups": len(set(groups.tolist()))}  # fmt: skip
    if record["n_groups"] < MIN_GROUPS:
        return record | {"applicable": False, "reason": _why(record)}
    onsets = context_onsets(context)
    if not onsets.prefixes["refuse"]:
        return record | {"applicable": False, "reason": onsets.lacking("refuse")}
    layers = range(context.model.n_layers)
    shares = patching_share(context.model, context.rendered, pairs, groups, onsets, layers)
    return record | {"applicable": True, "site": "resid_post", "layers": [_layer(share) for share in shares]}


def flipped_pairs(context: Context) -> tuple[list[tuple[int, int]], Counter[str]]:
    """List pairs of one intent, with the word and without, of which the model refuses only the one with it."""
    corpus, refused, answered = context.corpus, context.behaviour.did("refuse"), context.behaviour.answered
    cells: dict[tuple[str, str], dict[bool, list[int]]] = defaultdict(lambda: {True: [], False: []})
    for row, prompt in enumerate(corpus.prompts):
        if prompt.pair and prompt.intent in ("benign", "harmful"):
            cells[prompt.pair, str(prompt.intent)][prompt.trigger is not None].append(row)
    pairs = [(a, b) for sides in cells.values() for a in sides[True] for b in sides[False]]
    return [(a, b) for a, b in pairs if refused[a] and answered[b]], Counter(pairs=len(pairs))


def _aligned(context: Context, candidates: list[tuple[int, int]]) -> tuple[list[Aligned], Counter[str]]:
    found, broken = [], Counter[str]()
    for a, b in candidates:
        with_word, without = context.rendered[a], context.rendered[b]
        if not len(with_word.trigger):
            broken["the trigger is no word of the last turn"] += 1
            continue
        spans = align(with_word.token_ids, without.token_ids, with_word.trigger)
        if spans is None:
            broken["the two differ in more than the trigger word"] += 1
            continue
        found.append(Aligned(a, b, *(tuple(span) for span in spans)))
    return found, broken


def _spread(context: Context, pairs: list[Aligned]) -> list[Aligned]:
    """Take up to MOST pairs, one of each group first, groups in random order."""
    rng, taken = np.random.default_rng([context.config.seed, 22]), Counter[int]()
    order = rng.permutation(context.corpus.groups.max() + 1)
    placed = []
    for i in rng.permutation(len(pairs)):
        group = int(context.corpus.groups[pairs[i].with_word])
        taken[group] += 1
        placed.append((taken[group], int(order[group]), int(i)))
    return [pairs[i] for i in sorted(i for *_, i in sorted(placed)[:MOST])]


def _why(record: dict[str, Any]) -> str:
    if not record["pairs"]:
        return "no pair holds a prompt with a trigger word and one without, of one intent"
    if not record["flipped"]:
        return f"the word alone makes the model refuse in none of {record['pairs']} pairs: nothing to share"
    left = "; ".join(f"{n} left out: {why}" for why, n in record["left_out"].items())
    few = f"the word alone makes the model refuse in {record['flipped']} of {record['pairs']} pairs"
    told = f"{few}, of {record['n_groups']} independent groups that can be aligned; {MIN_GROUPS} are needed"
    return f"{told} ({left})" if left else told


def _layer(share: LayerShare) -> dict[str, Any]:
    return {"layer": share.layer, **{way: _finite(asdict(getattr(share, way))) for way in ("raised", "lowered")}}


def _finite(interval: dict[str, float]) -> dict[str, float | None]:
    return {key: value if np.isfinite(value) else None for key, value in interval.items()}
