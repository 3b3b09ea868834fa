"""Minimal pairs of a run whose decision is flipped by the trigger word alone, and their patching share."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from experiments.probing.stage import context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.run.inputs import RunInputs
from experiments.triggers.patching import MIN_GROUPS, SITE, AlignedPair, align, patching_share
from experiments.triggers.results import NotPatched, PairCounts, PatchedLayer, Patching
from extract.record import NotApplicable, not_applicable
from probes.statistics.seeds import named_rng


def measure_patching(loaded: LoadedRun) -> Patching | NotPatched | NotApplicable:
    """Return the patching share by extracted layer, or why there is none, and the pairs left out by reason."""
    if not loaded.config.triggers.patched:
        return not_applicable("triggers.patched is 0")
    aligned, left_out = aligned_pairs(loaded)
    refused, answered = loaded.behaviour.did("refuse"), loaded.behaviour.answered
    flipped = [pair for pair in aligned if refused[pair.with_word] and answered[pair.without]]
    pairs = _spread(loaded, flipped)
    groups = loaded.corpus.groups[[pair.with_word for pair in pairs]] if pairs else np.empty(0, dtype=int)
    counts = PairCounts(
        pairs=len(aligned),
        flipped=len(flipped),
        left_out=dict(left_out),
        n=len(pairs),
        n_groups=len(set(groups.tolist())),
    )
    if counts.n_groups < MIN_GROUPS:
        return NotPatched(**dict(counts), applicable=False, reason=_too_few(counts))
    onsets = context_onsets(loaded)
    if lacking := onsets.lacking("refuse"):
        return NotPatched(**dict(counts), applicable=False, reason=lacking)
    at = loaded.config.extract.layers or range(loaded.model.n_layers)
    shares = patching_share(loaded.model, loaded.rendered, pairs, groups, onsets, at)
    layers = tuple(PatchedLayer(layer=share.layer, raised=share.raised, lowered=share.lowered) for share in shares)
    return Patching(**dict(counts), applicable=True, site=SITE, layers=layers)


def aligned_pairs(loaded: LoadedRun) -> tuple[list[AlignedPair], Counter[str]]:
    """Return the pairs of one intent that differ in the trigger word alone, and count the others by reason."""
    cells: dict[tuple[object, ...], dict[bool, list[int]]] = defaultdict(lambda: {True: [], False: []})
    for row, prompt in enumerate(loaded.corpus.prompts):
        if prompt.pair and prompt.intent in ("benign", "harmful"):
            before = tuple((m["role"], m["content"]) for m in prompt.messages[:-1])
            cells[prompt.pair, prompt.intent, prompt.persona, before][prompt.trigger is not None].append(row)
    pairs, left_out = [], Counter[str]()
    for sides in cells.values():
        for a, b in ((a, b) for a in sides[True] for b in sides[False]):
            pair = _aligned(loaded, a, b)
            if isinstance(pair, str):
                left_out[pair] += 1
            else:
                pairs.append(pair)
    return pairs, left_out


def _aligned(loaded: LoadedRun, a: int, b: int) -> AlignedPair | str:
    with_word, without = loaded.rendered[a], loaded.rendered[b]
    if not len(with_word.trigger):
        return "the trigger is no word of the last turn"
    spans = align(with_word.token_ids, without.token_ids, with_word.trigger)
    if spans is None:
        return "the two differ in more than the trigger word"
    if spans[0][-1] == len(with_word.token_ids) - 1:
        return "the trigger is the prompt's last token"
    return AlignedPair(a, b, tuple(spans[0]), tuple(spans[1]))


def _spread(inputs: RunInputs, pairs: list[AlignedPair]) -> list[AlignedPair]:
    """Take up to `triggers.patched` pairs, one of each group first, groups in random order."""
    rng, taken = named_rng(inputs.config.seed, "patching"), Counter[int]()
    order = rng.permutation(inputs.corpus.groups.max() + 1)
    placed = []
    for i in rng.permutation(len(pairs)):
        group = int(inputs.corpus.groups[pairs[i].with_word])
        taken[group] += 1
        placed.append((taken[group], int(order[group]), int(i)))
    return [pairs[i] for i in sorted(i for *_, i in sorted(placed)[: inputs.config.triggers.patched])]


def _too_few(counts: PairCounts) -> str:
    left = "; ".join(f"{n} left out: {why}" for why, n in counts.left_out.items())
    if not counts.pairs:
        return "no two prompts of a pair and intent differ in the trigger word alone" + (f" ({left})" if left else "")
    flips = f"the word alone makes the model refuse in {counts.flipped} of {counts.pairs} pairs that differ in it"
    few = f"{flips}, of {counts.n_groups} independent groups; {MIN_GROUPS} are needed"
    return f"{few} ({left})" if left else few
