"""The terminal output of `refusal probe`, and sentences on independence under ablation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from experiments.probing.geometry_results import Independence
from experiments.probing.results import KEPT, ProbeResults, WriteRecord
from experiments.run.wording import p_text


def print_probe(directory: Path, found: ProbeResults) -> None:
    """Print the ten best loci on validation prompts, the chosen loci, and the files written."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(
        title="Where labels are read best: ranked on validation, AUROC on test (95 %)",
        box=SIMPLE,
        padding=(0, 1, 0, 0),
        pad_edge=False,  # 80 columns hold it
    )
    for column in ("contrast", "layer", "position", "validation", "d'", "test AUROC", "n"):
        table.add_column(column, overflow="fold", no_wrap=column == "test AUROC" and console.width >= 80)
    for row in found.best_loci:
        table.add_row(
            row.contrast,
            str(row.layer),
            row.position,
            f"{row.validation_auroc:.3f}",
            f"{row.validation_d_prime:.1f}",
            escape(row.shown),
            f"{row.n_positive} + {row.n_negative}",
        )
    console.print(table)
    for name, site in found.sites.items():
        console.print(
            f"[bold]{name}[/]: layer {site.layer}, {site.position}, test AUROC "
            f"{escape(site.shown)}; a bag of words reaches {site.bag_of_words_auroc:.3f}, "
            f"length {site.length_auroc:.3f}; p {p_text(site.p_permutation)}",
            soft_wrap=not console.is_terminal,
        )
    if "intent" not in found.sites:
        console.print(
            "[bold]intent[/]: left out; it needs 3 benign requests with a trigger word in every part except "
            "calibration",
            soft_wrap=not console.is_terminal,
        )
    for kind, write in found.writes.items():
        console.print(f"[bold]{kind} write direction[/]: " + escape(_written(write)), soft_wrap=not console.is_terminal)
    files = (
        "probes.parquet",
        "directions.safetensors",
        "stages/probe.json",
        "stages/geometry.json",
        "figures/grid_*.png",
    )
    console.print("Written: " + ", ".join(str(directory / name) for name in files), soft_wrap=not console.is_terminal)


def independence_lines(independence: Mapping[str, Independence]) -> list[str]:
    """Return one line for each ordered pair: how far ablating one write direction moves the stream along the other."""
    lines = []
    for name, found in independence.items():
        ablated, watched = name.removeprefix("ablate_").split("_watch_")
        moved, cosine = found.projection, found.cosine
        if moved.p_null is None:
            continue
        beyond = "more" if moved.p_null <= 0.05 else "no more"
        of_own = "" if moved.share is None else f"{moved.share:.0%} of its own move, "
        along, turned = moved.change.estimate, cosine.change.estimate
        lines.append(
            f"Ablating the {ablated} direction moves the stream along the {watched} one by {along:.2f} of "
            f"the gap between declining and answering ({of_own}cosine by {turned:.2f}): {beyond} than "
            "permuted-label directions do "
            f"(95th percentile {moved.null_95th_percentile:.2f}, p = {p_text(moved.p_null, '.2f')})."
        )
    return lines


def _written(write: WriteRecord) -> str:
    """Return the locus of a write direction, or why there is none and what is therefore left out."""
    if write.locus is None:
        return f"none, {write.reason}; its cosines, independence and ablation are left out"
    short = "" if write.meets_selection_rules else "; no locus met the selection rules, this one is the nearest"
    return f"layer {write.locus.layer}, {write.locus.position}{short}{_screened(write)}"


def _screened(write: WriteRecord) -> str:
    """Say how well first-order effects agree with exact ones, and which of them choose the null's directions."""
    found = write.screening
    if found is None or found.bypass_correlation is None or found.induce_correlation is None:
        return ""
    agree = f"{found.bypass_correlation:.2f} (bypass) and {found.induce_correlation:.2f} (induce)"
    if not found.used:
        return f"; first-order effects correlate {agree} with exact ones: all candidates of its null are measured"
    return (
        f"; first-order effects correlate {agree} with exact ones: of the {len(write.candidates)} candidates the "
        f"best {KEPT} by first order are measured at a time, as in its null"
    )
