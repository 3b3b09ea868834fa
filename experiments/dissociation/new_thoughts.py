"""Effects of ablations on a model that thinks, after the thoughts that it has under them, and what the thought carries.

The probability P of opening the answer with the prompt's own way of declining is taken after four pairs of a condition
and a thought: with P(c, t) in condition c after the thought of condition t, from plain (0) to changed (1), the total
effect is P(0, 0) - P(1, 1), and the thought carries the share (P(0, 0) - P(0, 1)) / total, an indirect effect as of
Pearl (2001) and of Vig et al. (arXiv 2004.12265). The change is an ablation of the direction, or the prompt: that of a
minimal pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

from experiments.dissociation.results import Carried, CarriedByThought
from experiments.responses.batched_edits import Trial
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import Onsets, OnsetScorer, TokenIds
from experiments.run.behaviour import ACTION_OF, Kind
from experiments.run.completion_file import Completion
from extract.model.edit import Edit
from probes.statistics.means import ratio_of_means

Rows = Int[np.ndarray, " rows"]
LogOdds = Float[np.ndarray, " rows"]


@dataclass(frozen=True)
class NewThoughts:
    """Onset log-odds of a run's prompts after other thoughts than their plain ones."""

    loaded: LoadedRun
    onsets: Onsets

    def after_own(self, kind: Kind, rows: Rows, trials: Sequence[Trial]) -> Float[np.ndarray, "trials rows"]:
        """Return the log-odds under each trial's edits, after the thought that the model has under them.

        Where it does not come to an answer they are those of the plain one without the edits: nothing is stopped.
        """
        plain = self.after(kind, rows, self._plain(rows))
        found, said = np.tile(plain, (len(trials), 1)), self.loaded.completer.complete_trials(rows.tolist(), trials)
        for own, edits, each in zip(found, trials, said, strict=True):
            ended = np.array([one.action is not None for one in each], dtype=bool)
            own[ended] = self.after(kind, rows[ended], _thoughts(each), edits)
        return found

    def after(self, kind: Kind, rows: Rows, thoughts: Sequence[TokenIds], edits: Sequence[Edit] = ()) -> LogOdds:
        """Return the log-odds under edits after given thoughts."""
        if not len(rows):
            return np.zeros(0)
        rendered = [self.loaded.rendered[row] for row in rows]
        asked = (tuple(row.token_ids) for row in rendered)
        onsets = replace(self.onsets, thoughts=dict(zip(asked, thoughts, strict=True)))
        return OnsetScorer(self.loaded.model, rendered, onsets).log_odds(edits)[ACTION_OF[kind]]

    def carried(self, kind: Kind, rows: Rows, edits: Sequence[Edit]) -> CarriedByThought:
        """Return what the thought carries of two effects on decliners of a kind: of edits, and of their pairs."""
        said = self.loaded.completer.complete(rows.tolist(), edits=edits)
        ended, theirs = np.array([one.action is not None for one in said], dtype=bool), _thoughts(said)
        own, twins = self._answered_twins(kind, rows)
        ablation = self._share(kind, rows[ended], theirs, expit(self.after(kind, rows[ended], theirs, edits)))
        pairs = self._share(kind, own, self._plain(twins), expit(self.after(kind, twins, self._plain(twins))))
        return CarriedByThought(ablation=ablation, pairs=pairs, unended=int((~ended).sum()))

    def _share(self, kind: Kind, rows: Rows, thoughts: Sequence[TokenIds], changed: LogOdds) -> Carried | None:
        if not len(rows):
            return None
        groups = self.loaded.corpus.groups_among(rows)
        plain, swapped = (expit(self.after(kind, rows, each)) for each in (self._plain(rows), thoughts))
        share = ratio_of_means(plain - swapped, plain - changed, groups).counted(len(rows), groups)
        return Carried.of(share, total=float((plain - changed).mean()))

    def _plain(self, rows: Rows) -> list[TokenIds]:
        plain = (self.loaded.completions[row] for row in rows)
        return [one.token_ids[: one.thought] for one in plain]

    def _answered_twins(self, kind: Kind, rows: Rows) -> tuple[Rows, Rows]:
        """Return the decliners whose minimal pair has an answered prompt, and that prompt of each."""
        run = self.loaded
        answered = run.behaviour.sides(kind)[1] & run.behaviour.answered
        pairs = [prompt.pair for prompt in run.prompts]
        by_pair = {pairs[row]: row for row in np.flatnonzero(answered).tolist() if pairs[row] is not None}
        own = [row for row in rows.tolist() if pairs[row] in by_pair]
        return np.array(own, dtype=int), np.array([by_pair[pairs[row]] for row in own], dtype=int)


def _thoughts(said: Sequence[Completion]) -> list[TokenIds]:
    """Return what precedes each answer that there is; () where it is not thought of first."""
    return [one.token_ids[: one.thought] for one in said if one.action is not None]
