"""What part of an effect a model's thought carries: it is kept, or swapped for the thought of the other condition.

The probability P of opening the answer with the prompt's own way of declining is taken after four pairs of a condition
and a thought: with P(c, t) in condition c after the thought of condition t, from plain to changed, the total effect is
P(0, 0) - P(1, 1), and the thought carries (P(0, 0) - P(0, 1)) / total, an indirect effect as of Pearl (2001) and of Vig
et al. (arXiv 2004.12265). The change is an ablation of the direction, or the prompt: that of a minimal pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

from experiments.dissociation.results import CarriedByThought
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import Onsets, OnsetScorer, TokenIds
from experiments.run.behaviour import ACTION_OF, Kind
from extract.model.edit import Edit
from probes.statistics.means import ratio_of_means

Rows = Int[np.ndarray, " rows"]


def carried_by_thought(
    loaded: LoadedRun, kind: Kind, rows: Rows, edits: Sequence[Edit], onsets: Onsets
) -> CarriedByThought:
    """Return the shares of two effects on some decliners of a kind: of edits, and of their minimal pairs."""
    again = loaded.completer.complete(rows.tolist(), edits=edits)
    closed = np.array([bool(one.thought) for one in again], dtype=bool)
    thoughts = [one.token_ids[: one.thought] for one in again if one.thought]
    own, twins = _answered_twins(loaded, kind, rows)
    edited, paired = (_Scored(loaded, kind, onsets, of) for of in (rows[closed], own))
    of_twins = _Scored(loaded, kind, onsets, twins)
    plain = edited.probability(), paired.probability()
    theirs = [loaded.completions[row].token_ids[: loaded.completions[row].thought] for row in twins]
    swapped = edited.probability(after=thoughts), paired.probability(after=theirs)
    changed = edited.probability(edits, after=thoughts), of_twins.probability()
    groups = [loaded.corpus.groups_among(of) for of in (rows[closed], own)]
    shares = [
        ratio_of_means(before - after, before - other, group).counted(len(group), group) if len(group) else None
        for before, after, other, group in zip(plain, swapped, changed, groups, strict=True)
    ]
    return CarriedByThought(
        ablation=shares[0],
        pairs=shares[1],
        total=tuple(float((b - c).mean()) if len(b) else None for b, c in zip(plain, changed, strict=True)),
        unended=int((~closed).sum()),
    )


def _answered_twins(loaded: LoadedRun, kind: Kind, rows: Rows) -> tuple[Rows, Rows]:
    """Return the decliners whose minimal pair has an answered prompt, and that prompt of each."""
    _, benign = loaded.behaviour.sides(kind)
    answered = benign & loaded.behaviour.answered & np.array([bool(one.thought) for one in loaded.completions])
    pairs = [prompt.pair for prompt in loaded.prompts]
    by_pair = {pairs[row]: row for row in np.flatnonzero(answered).tolist() if pairs[row] is not None}
    own = [row for row in rows.tolist() if pairs[row] in by_pair]
    return np.array(own, dtype=int), np.array([by_pair[pairs[row]] for row in own], dtype=int)


class _Scored:
    """Prompts whose probability of opening their answer with one way of declining is asked."""

    def __init__(self, loaded: LoadedRun, kind: Kind, onsets: Onsets, rows: Rows) -> None:
        self._model, self._kind, self._onsets = loaded.model, kind, onsets
        self._rendered = [loaded.rendered[row] for row in rows]

    def probability(
        self, edits: Sequence[Edit] = (), after: Iterable[TokenIds] | None = None
    ) -> Float[np.ndarray, " prompts"]:
        """Return it under edits, after the plain thoughts or others."""
        if not self._rendered:
            return np.zeros(0)
        onsets = self._onsets
        if after is not None:
            asked = (tuple(row.token_ids) for row in self._rendered)
            onsets = replace(onsets, thoughts=dict(zip(asked, after, strict=True)))
        log_odds = OnsetScorer(self._model, self._rendered, onsets).log_odds(edits)[ACTION_OF[self._kind]]
        probability: np.ndarray = expit(log_odds)
        return probability
