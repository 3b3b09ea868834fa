"""`refusal triggers`: the trigger share of the plain completions, over all prompts that come in full quadruples."""

from __future__ import annotations

import numpy as np

from experiments.context import Context
from experiments.manifest import write_json
from experiments.triggers import trigger_share


def triggers(context: Context) -> None:
    """Write stages/triggers.json. Nothing is fitted, so every part of the prompts may count."""
    judged = np.flatnonzero([action is not None for action in context.behaviour.actions])
    found = trigger_share(context.corpus, context.behaviour.did("refuse"), judged)
    known = not np.isnan(found.share.estimate)
    write_json(
        context.file("stages/triggers.json"),
        {
            "verdict": found.verdict,
            "reason": found.reason,
            "trigger_share": found.share.estimate if known else None,
            "trigger_share_ci": [found.share.low, found.share.high],
            "effects": {
                name: {"estimate": e.estimate, "low": e.low, "high": e.high} for name, e in found.effects.items()
            },
            "refused": {
                name: {"estimate": rate.estimate, "low": rate.low, "high": rate.high, "n": found.n[name]}
                for name, rate in found.refused.items()
                if not np.isnan(rate.estimate)
            },
        },
    )
