"""`refusal triggers`: what moves refusing: the trigger word or the intent, who asks, the system line, earlier turns."""

from __future__ import annotations

import numpy as np

from experiments.context import Context
from experiments.factor_record import factor_records
from experiments.factors import observe
from experiments.last_turn import last_turn_alone
from experiments.manifest import write_json
from experiments.removal import REMOVALS, remove
from experiments.triggers import trigger_share


def triggers(context: Context) -> None:
    """Write stages/triggers.json. Nothing is fitted, so every part of the prompts may count."""
    judged = np.flatnonzero([action is not None for action in context.behaviour.actions])
    refused = context.behaviour.did("refuse")
    found = trigger_share(context.corpus, refused, judged)
    known = not np.isnan(found.share.estimate)
    removals = {name: remove(context, name, judged) for name in REMOVALS}
    write_json(
        context.file("stages/triggers.json"),
        {
            "verdict": found.verdict,
            "reason": found.reason,
            "trigger_share": found.share.estimate if known else None,
            "trigger_share_ci": [found.share.low, found.share.high],
            "effects": {
                name: {"estimate": effect.estimate, "low": effect.low, "high": effect.high}
                for name, effect in found.effects.items()
            },
            "refused": {
                name: {"estimate": rate.estimate, "low": rate.low, "high": rate.high, "n": found.n[name]}
                for name, rate in found.refused.items()
                if not np.isnan(rate.estimate)
            },
            "factors": factor_records(observe(context.corpus, refused, judged, context.config.seed), removals),
            "last_turn_alone": last_turn_alone(context, removals["earlier_turns"]),
        },
    )
