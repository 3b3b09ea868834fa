"""Effects of the trigger word and of context on the residual stream, the answers and the log-odds of refusing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from experiments.factors.prompt_context import ABSENT, REMOVALS, ambiguous_texts
from experiments.factors.removal import RemovedRequests, ask_without
from experiments.factors.results import LastTurnAlone, LastTurnAuroc
from experiments.probing.stage import context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.onset import OnsetScorer
from experiments.run.outcomes import NOTHING, Key, Outcomes, write_outcomes
from experiments.triggers.attribution import measure_attribution
from experiments.triggers.erasure import measure_erasure
from experiments.triggers.patching import measure_patching
from experiments.triggers.projection import measure_projections
from experiments.triggers.results import WITHOUT, TriggerMeasures
from experiments.triggers.text import draw_triggers
from experiments.triggers.transfer import measure_transfer
from extract.errors import UserError
from extract.record import NotApplicable, not_applicable
from probes.statistics.metrics import LEAST_OF_CLASS, discrimination, enough

Measured = TypeVar("Measured")


def measure_triggers(loaded: LoadedRun) -> None:
    """Write the files of the stage, and draw the figures."""
    judged = np.flatnonzero([action is not None for action in loaded.behaviour.actions])
    removed = {name: asked for name in REMOVALS if (asked := ask_without(loaded, name, judged)) is not None}
    outcomes: dict[Key, Outcomes] = {(WITHOUT + name, NOTHING): asked.outcomes for name, asked in removed.items()}
    effects, projection, along = measure_projections(loaded)
    effects.write(loaded.file("stages/trigger_projection.json"))
    loaded.file("attributions.jsonl").touch()
    last_turn, transfer = score_last_turn(loaded, removed.get("earlier_turns")), _if_possible(measure_transfer, loaded)
    patching, erased = _if_possible(measure_patching, loaded), _if_possible(measure_erasure, loaded)
    erasure, with_erased = (erased, {}) if isinstance(erased, NotApplicable) else erased
    measures = TriggerMeasures(
        last_turn=last_turn,
        along={name: _of_requests(loaded, values) for name, values in along.items()},
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
        return LastTurnAlone(applicable=False, sufficient=None, reason=ABSENT["earlier_turns"])
    rows = removed.outcomes.rows
    measured = LastTurnAlone(applicable=True, n=len(rows), texts=ambiguous_texts(loaded.corpus))
    harmful, onsets = loaded.corpus.harmful[rows], context_onsets(loaded)
    if not onsets.prefixes["refuse"]:
        lacking = "openings cannot be scored (the model thinks first)" if onsets.thinking else "nothing is refused"
    elif harmful.all() or not harmful.any():
        lacking = "harmful or benign ones are missing"
    elif not enough(int(harmful.sum()), int((~harmful).sum())):
        lacking = f"{harmful.sum()} are harmful and {(~harmful).sum()} benign, fewer than {LEAST_OF_CLASS} of a class"
    else:
        asked, auroc = {"whole": [loaded.rendered[row] for row in rows], "alone": list(removed.rendered)}, {}
        for name, rendered in asked.items():
            log_odds = OnsetScorer(loaded.model, rendered, onsets).log_odds()["refuse"]
            auroc[name] = discrimination(harmful, log_odds, loaded.corpus.groups[rows]).auroc
        return measured.model_copy(update={"auroc": LastTurnAuroc(**auroc)})
    reason = f"of the requests with earlier turns, {lacking}"
    return measured.model_copy(update={"sufficient": None, "reason": reason})


def _if_possible(measure: Callable[[LoadedRun], Measured], loaded: LoadedRun) -> Measured | NotApplicable:
    """Return a measurement, or why it is not possible here; the verdict does not need it."""
    try:
        return measure(loaded)
    except UserError as error:
        return not_applicable(str(error))


def _of_requests(loaded: LoadedRun, values: np.ndarray) -> tuple[float | None, ...]:
    requests = loaded.corpus.requests | loaded.corpus.harmful
    return tuple(float(value) if kept else None for value, kept in zip(values, requests, strict=True))
