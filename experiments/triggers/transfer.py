"""Transfer of intent probes across trigger words: fitted on requests without them, tested on requests with them.

There are four probes of harmful against benign requests, fitted and tested with or without trigger words. Each uses the
probe grid like any contrast: training prompts of its fitted kind fit it, validation prompts of that kind choose its
locus, and test prompts of its tested kind are reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from experiments.probing.read_probes import fit_grid
from experiments.responses.loaded_run import LoadedRun
from experiments.run.corpus import Corpus
from experiments.run.inputs import RunInputs
from experiments.triggers.results import IntentTransfer, TransferredProbe
from extract.record import NotApplicable, not_applicable
from probes.contrast import Contrast
from probes.grid.baselines import bag_of_words_auroc
from probes.grid.probe_grid import LOGISTIC, LocusScores, ProbeGrid, choose_locus
from probes.statistics.permutation import label_permutation_p

POSITIONS = (
    "inst_last",
    "post_last",
)  # where harm and refusing are encoded (arXiv 2507.11878); all positions would cost more
WITH = {False: "without", True: "with"}  # a trigger word


def transfer_contrasts(corpus: Corpus) -> list[Contrast]:
    """Return the four contrasts; prompts that a contrast does not use are in none of its parts."""
    requests = np.flatnonzero(corpus.harmful | corpus.requests)
    trigger, part = corpus.trigger[requests], corpus.part[requests].astype(object)
    contrasts = []
    for fitted, tested in product((False, True), repeat=2):
        own = np.where(part == "test", trigger == tested, trigger == fitted)
        name = f"fitted {WITH[fitted]}, tested {WITH[tested]}"
        kept = requests[own]
        contrasts.append(Contrast(name, kept, corpus.harmful[kept], corpus.groups[kept], part[own]))
    return contrasts


def measure_transfer(loaded: LoadedRun) -> IntentTransfer | NotApplicable:
    """Return the AUROC of each probe at its chosen locus, and that of a bag-of-words baseline.

    Raises:
        UserError: a part of the prompts is too small for a contrast.
    """
    contrasts, store = transfer_contrasts(loaded.corpus), loaded.store
    positions = [p for p in store.positions if p in POSITIONS]
    if not positions:
        return not_applicable(f"neither {' nor '.join(POSITIONS)} is stored; see extract.positions")
    grid, loci = fit_grid(loaded, contrasts, store.layers, positions, "probing intent across trigger words")
    probes = {c.name: _probe(loaded, grid, c, [locus for locus in loci if locus.contrast == c.name]) for c in contrasts}
    return IntentTransfer(applicable=True, probes=probes)


def _probe(inputs: RunInputs, grid: ProbeGrid, contrast: Contrast, loci: Sequence[LocusScores]) -> TransferredProbe:
    chosen, seed = choose_locus(loci), inputs.config.seed
    test = chosen.scores[LOGISTIC].test
    train, tested = contrast.within("train"), contrast.within("test")
    X = inputs.store.read(chosen.layer, chosen.position)
    score = grid.fit(X, contrast.name, C=float(chosen.scores[LOGISTIC].C[0])).decision_function(X[contrast.rows])
    texts = [" ".join(m["content"] for m in inputs.prompts[row].messages) for row in contrast.rows]
    words = bag_of_words_auroc(texts, contrast.y, train, tested)
    return TransferredProbe(
        layer=chosen.layer,
        position=chosen.position,
        auroc=test.auroc.estimate,
        auroc_ci=(test.auroc.low, test.auroc.high),
        n=test.n_positive + test.n_negative,
        p=label_permutation_p(contrast.y[tested], score[tested], contrast.groups[tested], seed=seed),
        bag_of_words=words,
        beats_bag_of_words=bool(test.auroc.low > words),
    )
