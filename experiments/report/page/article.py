"""The article of one run: tiles and rates first, then the prompts, then a section a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from experiments.categories.results import CategoryResults
from experiments.charts.specification import specification
from experiments.dials.text import warning_lines
from experiments.probing.results import GridRow
from experiments.report.blocks import Block, Figure, Section
from experiments.report.calibration import DialReadings
from experiments.report.caveats import caveats, reading_caveats
from experiments.report.figures import scatter_chart
from experiments.report.page.category_section import category_blocks
from experiments.report.page.dials_section import Controls, dials_blocks, sliders
from experiments.report.page.document import render, to_json
from experiments.report.page.mechanism_sections import (
    context_blocks,
    geometry_blocks,
    grid_blocks,
    matrix_blocks,
    trigger_blocks,
    uncertainty_blocks,
)
from experiments.report.page.payload import Payload
from experiments.report.page.summary import rates_view, tiles
from experiments.report.results import RunResults
from experiments.triggers.results import LocusEffect


@dataclass(frozen=True)
class ReportedRun:
    """The data of a run that the page shows and results.json does not hold."""

    name: str
    judge: str
    finished: str  # date and time
    prompts_hash: str
    cells: Sequence[GridRow]  # the probe grid
    eta: Sequence[LocusEffect]  # effects on the projection, at every locus
    reads: Mapping[str, DialReadings]  # by dial, on test prompts
    categories: CategoryResults | None = None  # of a run whose categories were compared


def article(run: ReportedRun, results: RunResults, given: Payload, anchor: str = "run") -> Markup:
    """Return the HTML of one run.

    Args:
        given: the data of the page's script (`payload`).
        anchor: the id of the article; ids of its sections begin with it.
    """
    controls = Controls.model_validate(given)
    remarks = [*caveats(results), *reading_caveats(results, run.judge)]
    shown_tiles = tiles(results, len(remarks))
    sections = [section for section in _sections(run, results, given) if section.blocks]
    return render(
        "article.html",
        anchor=anchor,
        name=run.name,
        model=results.model.name,
        tiles=shown_tiles,
        linked={LAST.name, *(section.name for section in sections)},
        warnings=warning_lines(results.steer),
        rates=rates_view(results),
        sliders=sliders(controls),
        contents=[*FIRST, *sections, LAST],
        sections=sections,
        caveats=remarks,
        facts=_facts(run, results),
        reads=reads_note(results, given),
        payload=to_json(given),
    )


FIRST = (Section("rates", "Rates", "", ()), Section("prompts", "Prompts", "", ()))
LAST = Section("about", "Caveats", "", ())


def _sections(run: ReportedRun, results: RunResults, given: Payload) -> list[Section]:
    uncertainty = uncertainty_blocks(results.could_have_answered, results.uncertainty)
    return [
        Section("dials", "Dials", "How the thresholds were chosen", dials_blocks(results, run.reads)),
        Section("matrix", "One or two", "One refusal or two?", matrix_blocks(results.dissociation)),
        Section("triggers", "Word or intent", "Trigger word or intent?", trigger_blocks(results.triggers, run.eta)),
        Section("grids", "Probes", "Probe AUROC by layer and position", grid_blocks(run.cells, results)),
        Section(
            "scatter", "Directions", "Prompts on the two write directions", [*scatter(given), *geometry_blocks(results)]
        ),
        Section("categories", "Categories", "Categories: one knob or many?", category_blocks(run.categories)),
        Section(
            "context",
            "Context",
            "Context of the request: persona, system line, earlier turns",
            context_blocks(results.triggers),
        ),
        Section("uncertainty", "Uncertainty", "Knowledge and uncertainty", uncertainty),
    ]


def scatter(given: Payload) -> list[Block]:
    """Return the scatter plot, which the page's script fills; nothing without two write directions."""
    prompts = given["prompts"]
    if "x" not in prompts or "y" not in prompts:
        return []
    caption = (
        f"Projections of every prompt, all parts, on the two write directions, n = {len(prompts['id']):,}. Colour is "
        "the label, shape the action without dials. Arrow keys step from prompt to prompt; Enter opens one."
    )
    layers = prompts["x_layer"], prompts["y_layer"]
    return [Figure("scatter", caption, specification(scatter_chart(layers, given["labels"])), None)]


def _facts(run: ReportedRun, results: RunResults) -> dict[str, str]:
    counts = ", ".join(f"{n:,} {label}" for label, n in results.prompts.items())
    parts = ", ".join(f"{sum(of.values()):,} {part}" for part, of in results.prompts_by_part.items())
    return {
        "model": results.model.name,
        "prompts": f"{counts}, from {results.prompts_path} ({parts})",
        "finished": f"{run.finished}, on {results.device}",
        "fingerprints": f"weights {results.model.weights[:12]}, prompts {run.prompts_hash[:12]}",
        "versions": ", ".join(f"{name} {version}" for name, version in results.versions.items()),
    }


def reads_note(results: RunResults, given: Payload) -> str:
    """Return where the dials read, and what the readings at every token are."""
    at = [f"{kind} at layer {d.read_at.layer}, {d.read_at.position}" for kind, d in results.dials.items() if d.read_at]
    without = "".join(
        f" The {kind} dial reads no token: it uses the model's own probability of its openings."
        for kind, d in results.dials.items()
        if not d.read_at
    )
    if not at:
        return without.strip()
    line, with_tokens = f"Each dial reads once a prompt: {'; '.join(at)}.{without}", len(given["prompts"]["tokens"])
    if not with_tokens:
        return f"{line} This run stores no readings at other tokens; `refusal run` adds them."
    n_test = sum(part == "test" for part in given["prompts"]["part"])
    return (
        f"{line} For {with_tokens:,} of {n_test:,} test prompts the page has the same probe, at the same layer, at "
        "every token from the user's last turn on, as log-odds on the dial's own scale. Only at its own position is "
        "that the log-odds of the dial's calibrated probability; at other tokens it is a score to compare tokens by. "
        "Readings do not change with the thresholds."
    )
