"""Patching share: the share of the refusal log-odds that the residual of the trigger's tokens carries, by layer.

Two prompts of a minimal pair differ only in the trigger word, and the model refuses one of them. The residual stream at
the word's tokens is copied from one run into the other, one layer at a time, and the onset log-odds of a refusal are
read at the end (activation patching; Vig et al. 2020, Meng et al. 2022). The share is the resulting change divided by
the difference between the two prompts. How prompts are aligned: docs/triggers.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from experiments.factors.removal import spread_over_groups
from experiments.probing.stage import context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import Onsets, OnsetScorer
from experiments.triggers.results import NotPatched, PairCounts, PatchedLayer, Patching
from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, Pass, Site
from extract.record import NotApplicable, not_applicable
from probes.statistics.means import ratio_of_means
from probes.statistics.seeds import named_rng

MIN_GROUPS = 5
SITE: Site = "resid_post"
TOKENS_AT_ONCE = 8192  # of the prompts of a pass


@dataclass(frozen=True)
class AlignedPair:
    """Two prompts that differ in the trigger word, with the token indices of the spans to copy between them."""

    with_word: int  # rows of the corpus
    without: int
    span_with: tuple[int, ...]  # the trigger's tokens
    span_without: tuple[int, ...]  # the tokens in its place

    def places(self, into_with: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the tokens to write and, for each, the token of the other prompt to read."""
        written, read = (self.span_with, self.span_without) if into_with else (self.span_without, self.span_with)
        backwards = [read[max(len(read) - 1 - k, 0)] for k in range(len(written))]
        return written, tuple(reversed(backwards))


def measure_patching(loaded: LoadedRun) -> Patching | NotPatched | NotApplicable:
    """Return the patching share by extracted layer, or why there is none, and the pairs left out by reason."""
    if not (most := loaded.config.triggers.patched):
        return not_applicable("triggers.patched is 0")
    aligned, left_out = aligned_pairs(loaded)
    refused, answered = loaded.behaviour.did("refuse"), loaded.behaviour.answered
    flipped = [pair for pair in aligned if refused[pair.with_word] and answered[pair.without]]
    rows = np.array([pair.with_word for pair in flipped], dtype=int)
    rng = named_rng(loaded.config.seed, "patching")
    chosen = sorted(spread_over_groups(loaded.corpus, rows, np.zeros(len(rows), dtype=bool), rng)[:most])
    pairs, groups = [flipped[place] for place in chosen], loaded.corpus.groups[rows[chosen]]
    counts = PairCounts(
        pairs=len(aligned),
        flipped=len(flipped),
        left_out=dict(left_out),
        n=len(pairs),
        n_groups=len(set(groups.tolist())),
    )
    if (
        lacking := _too_few(counts)
        if counts.n_groups < MIN_GROUPS
        else context_onsets(loaded, "wording").lacking("refuse")
    ):
        return NotPatched(**dict(counts), applicable=False, reason=lacking)
    at = loaded.config.extract.layers or range(loaded.model.n_layers)
    layers = patching_share(loaded.model, loaded.rendered, pairs, groups, context_onsets(loaded, "wording"), at)
    return Patching(**dict(counts), applicable=True, site=SITE, layers=tuple(layers))


def aligned_pairs(loaded: LoadedRun) -> tuple[list[AlignedPair], Counter[str]]:
    """Return the pairs of one intent that differ in the trigger word alone, and count the others by reason."""
    cells: dict[tuple[object, ...], dict[bool, list[int]]] = defaultdict(lambda: {True: [], False: []})
    for row, prompt in enumerate(loaded.corpus.prompts):
        if prompt.pair and prompt.intent in ("benign", "harmful"):
            before = tuple((m["role"], m["content"]) for m in prompt.messages[:-1])
            cells[prompt.pair, prompt.intent, prompt.persona, before][prompt.trigger is not None].append(row)
    tried = [_aligned(loaded, a, b) for sides in cells.values() for a, b in product(sides[True], sides[False])]
    return [pair for pair in tried if not isinstance(pair, str)], Counter(why for why in tried if isinstance(why, str))


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


def _too_few(counts: PairCounts) -> str:
    left = "; ".join(f"{n} left out: {why}" for why, n in counts.left_out.items())
    if not counts.pairs:
        return "no two prompts of a pair and intent differ in the trigger word alone" + (f" ({left})" if left else "")
    flips = f"the word alone makes the model refuse in {counts.flipped} of {counts.pairs} pairs that differ in it"
    few = f"{flips}, of {counts.n_groups} independent groups; {MIN_GROUPS} are needed"
    return f"{few} ({left})" if left else few


# -- patching ---------------------------------------------------------------------------------------------------------


def align(with_word: Sequence[int], without: Sequence[int], trigger: Sequence[int]) -> tuple[range, range] | None:
    """Return the spans of two token sequences that differ in the trigger's tokens (indices) alone, or None."""
    a, b = list(with_word), list(without)
    most = min(len(a), len(b))
    start = next((k for k in range(most) if a[k] != b[k]), most)
    end = next((k for k in range(most - start) if a[-1 - k] != b[-1 - k]), most - start)
    start, after = min(start, trigger[0]), min(end, len(a) - 1 - trigger[-1])
    span, other = range(start, len(a) - after), range(start, len(b) - after)
    return (span, other) if list(span) == list(trigger) and len(other) > 0 else None


def patching_share(
    model: ChatModel,
    rendered: Sequence[Rendered],
    pairs: Sequence[AlignedPair],
    groups: Int[np.ndarray, " n_pairs"],
    onsets: Onsets,
    layers: Sequence[int],
) -> list[PatchedLayer]:
    """Patch every pair at every layer, in both directions; intervals are over the pairs' groups."""
    longest = max(len(rendered[row].token_ids) for pair in pairs for row in (pair.with_word, pair.without))
    n = max(1, TOKENS_AT_ONCE // longest)
    parts = [_changes(model, rendered, pairs[i : i + n], onsets, layers) for i in range(0, len(pairs), n)]
    total, raised, lowered = (np.concatenate(values, axis=-1) for values in zip(*parts, strict=True))
    return [
        PatchedLayer(layer=at, raised=ratio_of_means(up, total, groups), lowered=ratio_of_means(down, total, groups))
        for at, up, down in zip(layers, raised, lowered, strict=True)
    ]


def _changes(
    model: ChatModel, rendered: Sequence[Rendered], pairs: Sequence[AlignedPair], onsets: Onsets, layers: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each pair's difference, (n_pairs,), and its changes by patching in and out, each (n_layers, n_pairs)."""
    with_word, without = ([rendered[getattr(p, side)] for p in pairs] for side in ("with_word", "without"))
    high, low = (_log_odds(model, rows, onsets) for rows in (with_word, without))
    into_without = _patches(model, with_word, without, [p.places(False) for p in pairs], layers)
    into_with = _patches(model, without, with_word, [p.places(True) for p in pairs], layers)
    raised = [_log_odds(model, without, onsets, [edit]) - low for edit in into_without]
    lowered = [high - _log_odds(model, with_word, onsets, [edit]) for edit in into_with]
    return high - low, np.stack(raised), np.stack(lowered)


def _log_odds(model: ChatModel, rows: Sequence[Rendered], onsets: Onsets, patches: Sequence[Edit] = ()) -> np.ndarray:
    with model.editing(patches):  # prompts are read once, here; scoring continues from them
        scorer = OnsetScorer(model, rows, onsets)
    return scorer.log_odds()["refuse"]


def _patches(
    model: ChatModel,
    sources: Sequence[Rendered],
    targets: Sequence[Rendered],
    places: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    layers: Sequence[int],
) -> list[Edit]:
    """Return, for each layer, the edit that copies source tokens of each row to target tokens."""
    batch = model.batch(list(sources))
    from_pad, to_pad = batch.n_pad.tolist(), model.batch(list(targets)).n_pad.tolist()
    rows = [i for i, (written, _) in enumerate(places) for _ in written]
    columns = [to_pad[i] + token for i, (written, _) in enumerate(places) for token in written]
    read = [from_pad[i] + token for i, (_, tokens) in enumerate(places) for token in tokens]
    copied: dict[int, Tensor] = {}  # of every layer, from one pass: the copied tokens alone
    model.capture(batch, SITE, layers, lambda at, stream: copied.update({at: stream[rows, read].clone()}))

    def edit(layer: int) -> Edit:
        def function(stream: Tensor, pass_: Pass) -> Tensor:
            if pass_.start:
                return stream
            patched = stream.clone()
            patched[torch.tensor(rows), torch.tensor(columns)] = copied[layer].to(stream.device)
            return patched

        return Edit(SITE, layer, function)

    return [edit(layer) for layer in layers]
