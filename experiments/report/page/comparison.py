"""Several runs side by side, and what changed from the first to each other one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.report.page.article import runs_table, section
from experiments.report.page.markup import data, once_asked, paragraphs, shortened, table
from scoring.wording import RATE_MEANING

MOST_FLIPS = 2000
MOST_CHARACTERS = 400


def comparison_section(names: Sequence[str], records: Sequence[Mapping[str, Any]], compared: Mapping[str, Any]) -> str:
    """Return the runs' rates and verdicts, the changes with their tests, and the prompts that flipped.

    Args:
        compared: as `compare` returns it, for the runs in this order.
    """
    changes = "".join(
        _changed(names[0], name, one) for name, one in zip(names[1:], compared["comparisons"], strict=True)
    )
    body = section("runs", f"{len(names)} runs", runs_table(names, records)) + changes
    return f'<article class="comparison"><h1>{data(" and ".join(names))}</h1>{body}</article>'


def _changed(first: str, second: str, record: Mapping[str, Any]) -> str:
    rows = [
        [RATE_MEANING[name], _share(c["first"]), _share(c["second"]), _difference(c),
         f"{c['mcnemar_p_holm']:.2g}{' *' if c['shown'] else ''}", str(c["n"])]
        for name, c in record["changes"].items()
    ]  # fmt: skip
    head = ["with no dial", first, second, "change (95 %)", "McNemar p, Holm's", "n"]
    flips = record["flips"]
    left_out = [f"The first {MOST_FLIPS:,} of {len(flips):,} are shown."] if len(flips) > MOST_FLIPS else []
    shown = table(
        ["id", "label", "prompt", first, second],
        [[shortened(f["id"], 80), f["label"], once_asked(f["label"], data(shortened(f["text"] or "", MOST_CHARACTERS))),
          _action(f["first"]), _action(f["second"])] for f in flips[:MOST_FLIPS]],
    )  # fmt: skip
    matched = record["matched"]
    told = paragraphs([f"{matched['prompts']:,} prompts in both; {len(flips):,} are answered otherwise; rates "
                       f"together: {record['move'].replace('_', ' ')}. * shown: chance is an unlikely explanation.",
                       *left_out])  # fmt: skip
    details = f"<details><summary>The {len(flips):,} flipped prompts</summary>{shown}</details>" if flips else ""
    return section("changes", f"What changed from {first} to {second}", table(head, rows) + told + details)


def _share(value: float | None) -> str:
    return "none judged" if value is None else f"{value:.1%}"


def _difference(change: Mapping[str, Any]) -> str:
    if change["difference"] is None:
        return "not known"
    low, high = change["difference_ci"]
    return f"{change['difference']:+.1%} [{low:+.1%}, {high:+.1%}]"


def _action(action: str | None) -> str:
    return action or "not judged"
