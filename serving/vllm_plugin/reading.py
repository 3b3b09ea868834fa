"""What the dials have read of a request, told to the process that answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from steering.conversation import DialReport, reports
from steering.dial import Dial, Kind
from steering.gates import Readings, decide, normative_first, resolved

METHOD = "refusal_readings"  # of vLLM's workers


def reports_of(
    dials: Sequence[Dial], probability: Sequence[float], category: str | None, thresholds: Mapping[Kind, float]
) -> tuple[DialReport, ...]:
    """Return each dial's report, as they decided where the model is computed.

    Args:
        probability: of each dial, the normative one first.
        category: the recognised one.
        thresholds: those that the request gives, by kind; NaN is off.
    """
    read = {dial.kind: np.array([p]) for dial, p in zip(normative_first(dials), probability, strict=True)}
    found = {dial.kind: resolved(dial, [thresholds.get(dial.kind)], [category]) for dial in dials}
    limits = {kind: tau for kind, (tau, _) in found.items()}
    own = {kind: is_own for kind, (_, is_own) in found.items()}
    return reports(Readings(read, decide(dials, read, limits), limits, [category], own), 0)


async def ask(client: Any, key: str, dials: Sequence[Dial], thresholds: Mapping[Kind, float]) -> tuple[DialReport, ...]:
    """Ask vLLM's engine for the reports of a request that has given a token.

    Raises:
        RuntimeError: the dials did not read it, which must not happen.
    """
    found = [one for one in await client.collective_rpc(METHOD, args=(key,)) if one is not None]
    if not found:
        raise RuntimeError("the dials did not read this prompt; its answer is withheld")
    probability, category = found[0]
    return reports_of(dials, probability, category, thresholds)
