"""Effects of the trigger word and of context on the residual stream, the answers and the log-odds of refusing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TypeVar

import numpy as np

from experiments.factors.prompt_context import ABSENT, REMOVALS, ambiguous_texts
from experiments.factors.removal import RemovedRequests, ask_without
from experiments.factors.results import LastTurnAlone
from experiments.probing.read_probes import fit_grid
from experiments.probing.stage import context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import OnsetScorer
from experiments.run.config import NOT_ASKED
from experiments.run.corpus import Corpus
from experiments.run.inputs import RunInputs
from experiments.run.outcomes import NOTHING, Key, Outcomes, write_outcomes
from experiments.triggers.attribution import measure_attribution
from experiments.triggers.erasure import measure_erasure
from experiments.triggers.patching import measure_patching
from experiments.triggers.projection import measure_projections
from experiments.triggers.results import WITHOUT, IntentTransfer, TransferredProbe, TriggerMeasures
from experiments.triggers.text import draw_triggers
from extract.errors import UserError
from extract.record import NotApplicable, not_applicable
from probes.contrast import Contrast
from probes.grid.baselines import bag_of_words_auroc
from probes.grid.probe_grid import LOGISTIC, LocusScores, ProbeGrid, choose_locus
from probes.statistics.metrics import LEAST_OF_CLASS, discrimination, enough
from probes.statistics.permutation import label_permutation_p

Measured = TypeVar("Measured")
POSITIONS = ("inst_last", "post_last")  # where harm and refusing are encoded (arXiv 2507.11878); all would cost more
WITH = {False: "without", True: "with"}  # a trigger word


def measure_triggers(loaded: LoadedRun) -> None:
    """Write the files of the stage, and draw the figures."""
    judged = np.flatnonzero([action is not None for action in loaded.behaviour.actions])
    removals = REMOVALS if "word-or-intent" in loaded.config.ask else ()
    removed = {name: asked for name in removals if (asked := ask_without(loaded, name, judged)) is not None}
    outcomes: dict[Key, Outcomes] = {(WITHOUT + name, NOTHING): asked.outcomes for name, asked in removed.items()}
    effects, projection, along = measure_projections(loaded)
    effects.write(loaded.file("stages/trigger_projection.json"))
    loaded.file("attributions.jsonl").touch()
    requests = loaded.corpus.requests | loaded.corpus.harmful
    last_turn = score_last_turn(loaded, removed.get("earlier_turns"))
    transfer = _if_possible(measure_transfer, loaded.reading)
    patching, erased = _if_possible(measure_patching, loaded), _if_possible(measure_erasure, loaded)
    erasure, with_erased = (erased, {}) if isinstance(erased, NotApplicable) else erased
    measures = TriggerMeasures(
        last_turn=last_turn,
        along={
            name: tuple(float(value) if kept else None for value, kept in zip(values, requests, strict=True))
            for name, values in along.items()
        },
        projection=projection,
        transfer=transfer,
        patching=patching,
        erasure=erasure,
        attribution=_if_possible(measure_attribution, loaded),
    )
    draw_triggers(loaded.directory, effects.rows, measures.patching)
    ids = [prompt.id for prompt in loaded.prompts]
    write_outcomes(loaded.file("outcomes.parquet/trigger_measures.parquet"), ids, outcomes | with_erased)
    measures.write(loaded.file("stages/trigger_measures.json"))


def score_last_turn(loaded: LoadedRun, removed: RemovedRequests | None) -> LastTurnAlone:
    """Score the onset log-odds of refusing of requests with earlier turns, whole and by the last turn alone.

    Args:
        removed: requests asked again without their earlier turns; None where no request has any.
    """
    if removed is None:
        reason = ABSENT["earlier_turns"] if "word-or-intent" in loaded.config.ask else NOT_ASKED
        return LastTurnAlone(applicable=False, sufficient=None, reason=reason)
    rows = removed.outcomes.rows
    measured = LastTurnAlone(applicable=True, n=len(rows), texts=ambiguous_texts(loaded.corpus))
    harmful, onsets = loaded.corpus.harmful[rows], context_onsets(loaded, "wording")
    if not onsets.prefixes["refuse"]:
        lacking = "nothing is refused"
    elif onsets.thoughts:
        lacking = "what the model thinks of the last turn alone is not known"
    elif harmful.all() or not harmful.any():
        lacking = "harmful or benign ones are missing"
    elif not enough(int(harmful.sum()), int((~harmful).sum())):
        lacking = f"{harmful.sum()} are harmful and {(~harmful).sum()} benign, fewer than {LEAST_OF_CLASS} of a class"
    else:
        asked, auroc = {"whole": [loaded.rendered[row] for row in rows], "alone": list(removed.rendered)}, {}
        for name, rendered in asked.items():
            log_odds = OnsetScorer(loaded.model, rendered, onsets).log_odds()["refuse"]
            auroc[name] = discrimination(harmful, log_odds, loaded.corpus.groups[rows]).auroc
        return measured.model_copy(update={"auroc": auroc})
    reason = f"of the requests with earlier turns, {lacking}"
    return measured.model_copy(update={"sufficient": None, "reason": reason})


def _if_possible(measure: Callable[[LoadedRun], Measured], loaded: LoadedRun) -> Measured | NotApplicable:
    """Return a measurement, or why it is not possible here; the verdict does not need it."""
    if "word-or-intent" not in loaded.config.ask:
        return not_applicable(NOT_ASKED)
    try:
        return measure(loaded)
    except UserError as error:
        return not_applicable(str(error))


# -- transfer of intent probes: fitted and tested on requests with and without trigger words ---------------------------


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
    """Return the AUROC of each of four probes of intent, fitted and tested with or without trigger words.

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
