"""Several runs side by side, and the changes from the first to each later one."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.report.markup import escaped, hidden_if_harmful, paragraphs, shortened, table
from experiments.report.page.article import runs_table, section
from experiments.report.results import RunResults
from scoring.compare.record import ComparedRun, Comparison, Flip
from scoring.wording import RATE_MEANING

MOST_FLIPS = 2000
MOST_CHARACTERS = 400


def comparison_section(names: Sequence[str], records: Sequence[RunResults], comparison: Comparison) -> str:
    """Return the rates and verdicts of the runs, the changes with their tests, and the flipped prompts.

    Args:
        records: the results.json of each run.
        comparison: of the runs, in this order.
    """
    later = zip(names[1:], comparison.comparisons, strict=True)
    changes = "".join(_changed(names[0], name, run) for name, run in later)
    body = section("runs", f"{len(names)} runs", runs_table(names, records)) + changes
    return f'<article class="comparison"><h1>{escaped(" and ".join(names))}</h1>{body}</article>'


def _changed(first: str, second: str, run: ComparedRun) -> str:
    rows = [
        [RATE_MEANING[name], _share(change.first), _share(change.second),
         "not known" if change.difference is None else f"{change.estimate:+.1%}",
         f"{change.mcnemar_p_holm:.2g}{' *' if change.shown else ''}", str(change.n)]
        for name, change in run.changes.items()
    ]  # fmt: skip
    head = ["with no dial", first, second, "change (95 %)", "McNemar p (Holm)", "n"]
    flips = run.flips
    left_out = [f"The first {MOST_FLIPS:,} of {len(flips):,} are shown."] if len(flips) > MOST_FLIPS else []
    caption = paragraphs([f"{run.matched.prompts:,} prompts in both; {len(flips):,} have another action; all rates "
                          f"together: {run.move.replace('_', ' ')}. * significant at 5 % after Holm's correction.",
                          *left_out])  # fmt: skip
    details = f"<details><summary>The {len(flips):,} flipped prompts</summary>{_flips(first, second, flips)}</details>"
    body = table(head, rows) + caption + (details if flips else "")
    return section("changes", f"Changes from {first} to {second}", body)


def _flips(first: str, second: str, flips: Sequence[Flip]) -> str:
    rows = []
    for flip in flips[:MOST_FLIPS]:
        label, text = flip.label or "unlabelled", escaped(shortened(flip.text or "", MOST_CHARACTERS))
        did = [_action(flip.first), _action(flip.second)]
        rows.append([shortened(flip.id, 80), label, hidden_if_harmful(label, text), *did])
    return table(["id", "label", "prompt", first, second], rows)


def _share(value: float | None) -> str:
    return "none judged" if value is None else f"{value:.1%}"


def _action(action: str | None) -> str:
    return action or "not judged"
