"""Workers must compute the same numbers: the same versions, weights and prompts."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.cluster.worker import WorkerFacts
from extract.errors import UserError


def refuse_different(found: WorkerFacts, others: Sequence[WorkerFacts]) -> None:
    """Raise UserError if a worker differs from another in what numbers depend on, naming the field and the nodes."""
    for other in others:
        for name, value in other.same.items():
            if found.same.get(name) != value:
                raise UserError(
                    f"workers differ in {name}: {found.node} has {found.same.get(name)}, {other.node} has "
                    f"{value}; all nodes need the same installation and the same files"
                )
