"""Which pairs are patched, and what stands of it in stages/triggers.json."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict
from typing import Any

import numpy as np

from experiments.probing.stage import context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.run.inputs import RunInputs
from experiments.triggers.patching import MIN_GROUPS, SITE, Aligned, LayerShare, align, patching_share
from probes.statistics.seeds import named_rng

MOST = 48  # pairs


def patching_record(loaded: LoadedRun) -> dict[str, Any]:
    """Return the patching share by layer, or why there is none; and how many pairs were left out for which reason."""
    aligned, left_out = aligned_pairs(loaded)
    refused, answered = loaded.behaviour.did("refuse"), loaded.behaviour.answered
    flipped = [pair for pair in aligned if refused[pair.with_word] and answered[pair.without]]
    pairs = _spread(loaded, flipped)
    groups = loaded.corpus.groups[[pair.with_word for pair in pairs]] if pairs else np.empty(0, dtype=int)
    record: dict[str, Any] = {"pairs": len(aligned), "flipped": len(flipped), "left_out": dict(left_out),
                              "n": len(pairs), "n_groups": len(set(groups.tolist()))}  # fmt: skip
    if record["n_groups"] < MIN_GROUPS:
        return record | {"applicable": False, "reason": _why(record)}
    onsets = context_onsets(loaded)
    if lacking := onsets.lacking("refuse"):
        return record | {"applicable": False, "reason": lacking}
    layers = range(loaded.model.n_layers)
    shares = patching_share(loaded.model, loaded.rendered, pairs, groups, onsets, layers)
    return record | {"applicable": True, "site": SITE, "layers": [_layer(share) for share in shares]}


def aligned_pairs(loaded: LoadedRun) -> tuple[list[Aligned], Counter[str]]:
    """List the pairs of one intent, with the word and without, that differ in nothing else; and why others are not."""
    cells: dict[tuple[Any, ...], dict[bool, list[int]]] = defaultdict(lambda: {True: [], False: []})
    for row, prompt in enumerate(loaded.corpus.prompts):
        if prompt.pair and prompt.intent in ("benign", "harmful"):
            before = tuple((m["role"], m["content"]) for m in prompt.messages[:-1])
            cells[prompt.pair, prompt.intent, prompt.persona, before][prompt.trigger is not None].append(row)
    found, left_out = [], Counter[str]()
    for sides in cells.values():
        for a, b in ((a, b) for a in sides[True] for b in sides[False]):
            pair = _aligned(loaded, a, b)
            if isinstance(pair, str):
                left_out[pair] += 1
            else:
                found.append(pair)
    return found, left_out


def _aligned(loaded: LoadedRun, a: int, b: int) -> Aligned | str:
    with_word, without = loaded.rendered[a], loaded.rendered[b]
    if not len(with_word.trigger):
        return "the trigger is no word of the last turn"
    spans = align(with_word.token_ids, without.token_ids, with_word.trigger)
    if spans is None:
        return "the two differ in more than the trigger word"
    if spans[0][-1] == len(with_word.token_ids) - 1:
        return "the trigger is the prompt's last token"
    return Aligned(a, b, tuple(spans[0]), tuple(spans[1]))


def _spread(inputs: RunInputs, pairs: list[Aligned]) -> list[Aligned]:
    """Take up to MOST pairs, one of each group first, groups in random order."""
    rng, taken = named_rng(inputs.config.seed, "patching"), Counter[int]()
    order = rng.permutation(inputs.corpus.groups.max() + 1)
    placed = []
    for i in rng.permutation(len(pairs)):
        group = int(inputs.corpus.groups[pairs[i].with_word])
        taken[group] += 1
        placed.append((taken[group], int(order[group]), int(i)))
    return [pairs[i] for i in sorted(i for *_, i in sorted(placed)[:MOST])]


def _why(record: dict[str, Any]) -> str:
    left = "; ".join(f"{n} left out: {why}" for why, n in record["left_out"].items())
    if not record["pairs"]:
        return "no two prompts of a pair and intent differ in the trigger word alone" + (f" ({left})" if left else "")
    told = f"the word alone makes the model refuse in {record['flipped']} of {record['pairs']} pairs that differ in it"
    few = f"{told}, of {record['n_groups']} independent groups; {MIN_GROUPS} are needed"
    return f"{few} ({left})" if left else few


def _layer(share: LayerShare) -> dict[str, Any]:
    return {"layer": share.layer, **{way: _finite(asdict(getattr(share, way))) for way in ("raised", "lowered")}}


def _finite(interval: dict[str, float]) -> dict[str, float | None]:
    return {key: value if np.isfinite(value) else None for key, value in interval.items()}
