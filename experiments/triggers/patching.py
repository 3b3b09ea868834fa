"""Patching share: the share of the refusal log-odds that the residual of the trigger's tokens carries, by layer.

Two prompts of a minimal pair differ only in the trigger word, and the model refuses one of them. The residual stream at
the word's tokens is copied from one run into the other, one layer at a time, and the onset log-odds of a refusal are
read at the end. The share is the resulting change divided by the difference between the two prompts: 1 where the copied
tokens carry all of it, 0 where the information has moved to other tokens (activation patching; Vig et al. 2020, Meng et
al. 2022). It differs from the trigger share, which is about behaviour.

Alignment of the two prompts:

- The common tokens at the start and at the end are stripped. The rest of each prompt, widened to whole words of the
  trigger, is its span. If the prompt with the trigger has anything else in its span, or the other span is empty, the
  two are not a minimal pair: they are left out and counted.
- Spans of unequal length are aligned at their ends, last token to last token. If the written span is longer, its extra
  first tokens get the first token of the other span; if the read span is longer, its first tokens are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from experiments.responses.onset import Onsets, OnsetScorer
from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, Pass, Site
from probes.statistics.intervals import Estimate
from probes.statistics.means import ratio_of_means

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


@dataclass(frozen=True)
class LayerShare:
    """The patching share at one layer over groups, for patching the trigger in (raised) and out (lowered)."""

    layer: int
    raised: Estimate  # the trigger's residual copied into the prompt without it
    lowered: Estimate  # the other word's residual copied into the prompt with the trigger


def align(with_word: Sequence[int], without: Sequence[int], trigger: Sequence[int]) -> tuple[range, range] | None:
    """Return the spans of two token sequences that differ in the trigger's tokens alone, or None.

    Args:
        trigger: indices of the trigger's tokens in `with_word`, consecutive.
    """
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
    alpha: float = 0.05,
) -> list[LayerShare]:
    """Patch every pair at every layer, in both directions.

    Args:
        groups: the independent group of each pair.
    """
    longest = max(len(rendered[row].token_ids) for pair in pairs for row in (pair.with_word, pair.without))
    n = max(1, TOKENS_AT_ONCE // longest)
    parts = [_changes(model, rendered, pairs[i : i + n], onsets, layers) for i in range(0, len(pairs), n)]
    total, raised, lowered = (np.concatenate(values, axis=-1) for values in zip(*parts, strict=True))
    return [
        LayerShare(layer, *(ratio_of_means(change[i], total, groups, alpha) for change in (raised, lowered)))
        for i, layer in enumerate(layers)
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
