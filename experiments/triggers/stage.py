"""`refusal triggers`: what moves refusing: the trigger word or the intent, who asks, the system line, earlier turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from experiments.factors.last_turn import last_turn_alone
from experiments.factors.observed import observe
from experiments.factors.record import factor_records
from experiments.factors.removal import REMOVALS, remove
from experiments.responses.loaded_run import LoadedRun
from experiments.triggers import figures as trigger_figures
from experiments.triggers.attribution_record import attribution_record
from experiments.triggers.erasure import erasure_record
from experiments.triggers.factor_projection import add_shifts, shifts
from experiments.triggers.patching_record import patching_record
from experiments.triggers.projection import Projected, measure_projections
from experiments.triggers.transfer import transfer_record
from experiments.triggers.trigger_share import TriggerShare, trigger_share
from extract.atomic_write import write_json
from extract.errors import UserError


def triggers(loaded: LoadedRun) -> None:
    """Write stages/triggers.json, stages/trigger_projection.json and attributions.jsonl.

    The behaviour is counted on every part of the prompts, since nothing is fitted to it; what rests on a fit is told on
    parts that the fit has not seen.
    """
    judged = np.flatnonzero([action is not None for action in loaded.behaviour.actions])
    refused, seed = loaded.behaviour.did("refuse"), loaded.config.seed
    found = trigger_share(loaded.corpus, refused, judged)
    removals = {name: remove(loaded, name, judged) for name in REMOVALS}
    observed = observe(loaded.corpus, refused, judged, seed)
    rows, best, why = measure_projections(loaded)
    write_json(loaded.file("stages/trigger_projection.json"), {"rows": rows, "reason": why})
    factors = factor_records(observed, removals)
    add_shifts(factors, shifts(loaded.corpus, refused, judged, observed.effects, best, seed))
    beside = {
        "factors": factors,
        "last_turn_alone": last_turn_alone(loaded, removals["earlier_turns"]),
        "projection": _projection_record(rows, best, why),
        "transfer": _if_possible(transfer_record, loaded),
        "patching": _if_possible(patching_record, loaded),
        "erasure": _if_possible(erasure_record, loaded),
        "attribution": _if_possible(attribution_record, loaded),
    }
    trigger_figures.draw(loaded.directory, rows, beside["patching"])
    loaded.file("attributions.jsonl").touch()
    write_json(loaded.file("stages/triggers.json"), _share_record(found) | beside)


def _if_possible(measure: Callable[[LoadedRun], dict[str, Any]], loaded: LoadedRun) -> dict[str, Any]:
    """Return what stands beside the verdict, or why this model cannot have it: the verdict does not need it."""
    try:
        return measure(loaded)
    except UserError as error:
        return {"applicable": False, "reason": str(error)}


def _share_record(found: TriggerShare) -> dict[str, Any]:
    known = not np.isnan(found.share.estimate)
    return {
        "verdict": found.verdict,
        "reason": found.reason,
        "trigger_share": found.share.estimate if known else None,
        "trigger_share_ci": [found.share.low, found.share.high],
        "effects": {name: asdict(effect) for name, effect in found.effects.items()},
        "refused": {
            name: asdict(rate) | {"n": found.n[name]}
            for name, rate in found.refused.items()
            if not np.isnan(rate.estimate)
        },
    }


def _projection_record(rows: list[dict[str, Any]], best: dict[str, Projected], why: str | None) -> dict[str, Any]:
    """Return the effects at each direction's own locus; every locus is in stages/trigger_projection.json."""
    if why is not None:
        return {"applicable": False, "reason": why}
    found = {}
    for name, at in best.items():
        own = [r for r in rows if (r["direction"], r["layer"], r["position"]) == (name, at.layer, at.position)]
        effects = {r["effect"]: {k: r[k] for k in ("partial_eta_squared", "low", "high", "p", "shift")} for r in own}
        found[name] = {"layer": at.layer, "position": at.position, "n_groups": own[0]["n_groups"], "effects": effects}
    return {"applicable": True, "directions": found}
