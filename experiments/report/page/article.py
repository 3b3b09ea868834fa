"""The article of one run: tiles and rates first, then the prompts, then a section a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from experiments.categories.results import CategoryResults
from experiments.categories.text import category_blocks
from experiments.charts.blocks import Block, Figure, Figures, Heading, Section
from experiments.charts.points import scatter
from experiments.charts.specification import LABEL_COLOURS, Chart, Row, specification
from experiments.dials.text import (
    PANELS,
    DialReadings,
    calibration_figure,
    category_lines,
    dial_lines,
    dial_table,
    steer_tables,
    tradeoff_figure,
    warning_lines,
)
from experiments.dissociation.text import dissociation_blocks, gate_sentence, thought_blocks
from experiments.factors.text import context_blocks
from experiments.probing.results import GridRow
from experiments.probing.text import geometry_blocks, grid_blocks, unspoken_sentence, unspoken_table
from experiments.report.caveats import caveats, reading_caveats
from experiments.report.page.document import render, to_json
from experiments.report.page.payload import Payload
from experiments.report.page.scoring_page import estimates_table
from experiments.report.page.summary import rate_rows, rates_figure, right_action_table, score_row, tiles
from experiments.report.results import Planted, RunResults
from experiments.run.basis import declines_table
from experiments.triggers.results import LocusEffect
from experiments.triggers.text import trigger_blocks
from experiments.uncertainty.text import uncertainty_blocks
from scoring.wording import accommodation_estimates

FIRST = (Section("rates", "Rates", "", ()), Section("prompts", "Prompts", "", ()))
LAST = Section("about", "Caveats", "", ())


@dataclass(frozen=True)
class ReportedRun:
    """The data of a run that the page shows and results.json does not hold."""

    name: str
    finished: str  # date and time
    prompts_hash: str
    cells: Sequence[GridRow]  # the probe grid
    eta: Sequence[LocusEffect]  # effects on the projection, at every locus
    reads: Mapping[str, DialReadings]  # by dial, on test prompts
    categories: CategoryResults | None = None  # of a run whose categories were compared


def article(run: ReportedRun, results: RunResults, payload: Payload, anchor: str = "run") -> Markup:
    """Return the HTML of one run with the data of the page's script; ids of its sections begin with the anchor."""
    remarks = [*caveats(results), *reading_caveats(results)]
    sections = [section for section in _sections(run, results, payload) if section.blocks]
    return render(
        "article.html",
        anchor=anchor,
        name=run.name,
        model=results.model.name,
        judge=results.judge,
        tiles=tiles(results, len(remarks)),
        linked={LAST.name, *(section.name for section in sections)},
        warnings=warning_lines(results.steer),
        chart=rates_figure(results),
        rates=rate_rows(results),
        score=score_row(results),
        right_actions=right_action_table(results),
        unspoken=unspoken_table(results.unspoken),
        unspoken_line=unspoken_sentence(results.unspoken),
        declines=None if results.rates.by_reason is None else declines_table(results.rates.by_reason),
        certified=results.steer.certified,
        data=payload,
        contents=[*FIRST, *sections, LAST],
        sections=sections,
        caveats=remarks,
        facts=_facts(run, results),
        reads=reads_note(results, payload),
        payload=to_json(payload),
    )


def _sections(run: ReportedRun, results: RunResults, payload: Payload) -> list[Section]:
    directions = [*_scatter(payload), *geometry_blocks(results.geometry, results.writes, _planted(results.planted))]
    context = "Context of the request: persona, system line, earlier turns"
    gates, uncertainty = results.could_have_answered, uncertainty_blocks(results.uncertainty)
    if gates is not None and (gates.normative.applicable or gates.epistemic.applicable):
        opened: list[Block] = [
            Heading("Could it have answered? (declined test prompts)"),
            gate_sentence(gates, results.dissociation.basis),
        ]
        uncertainty = [*opened, *uncertainty]
    if results.accommodation is not None:
        counted = accommodation_estimates(results.accommodation)
        head = ["direct and loaded questions", ""]
        uncertainty = [*uncertainty, *estimates_table("False presuppositions", head, counted)]
    thought = thought_blocks(results.dissociation.fixed_thought, run.cells, results.writes)
    return [
        Section("thought", "Thought", "Where a model that thinks decides", thought),
        Section("dials", "Dials", "How the thresholds were chosen", dials_blocks(results, run.reads)),
        Section("matrix", "One or two", "One refusal or two?", dissociation_blocks(results.dissociation)),
        Section("triggers", "Word or intent", "Trigger word or intent?", trigger_blocks(results.triggers, run.eta)),
        Section("grids", "Probes", "Probe AUROC by layer and position", grid_blocks(run.cells, results.sites)),
        Section("scatter", "Directions", "Prompts on the two write directions", directions),
        Section("categories", "Categories", "Categories: one knob or many?", category_blocks(run.categories)),
        Section("context", "Context", context, context_blocks(results.triggers)),
        Section("uncertainty", "Uncertainty", "Knowledge and uncertainty", uncertainty),
    ]


def _planted(planted: Planted | None) -> list[str]:
    """Return how well planted directions are recovered, a line each; nothing without any."""
    cosines = {} if planted is None else {"normative": planted.normative_cosine, "epistemic": planted.epistemic_cosine}
    line = "Recovery of the planted {} direction: |cos| {:.2f}."
    return [line.format(kind, cosine) for kind, cosine in cosines.items() if cosine is not None]


# -- dials -------------------------------------------------------------------------------------------------------------


def dials_blocks(results: RunResults, reads: Mapping[str, DialReadings]) -> list[Block]:
    """Return the trade-off, the dials, their calibration, and what is said of thresholds; nothing without dials."""
    if not results.dials:
        return []
    steer, rates = results.steer, results.rates
    blocks: list[Block] = []
    if steer.frontier:
        blocks.append(Figures([tradeoff_figure(steer, rates.before, rates.after, risk) for risk in PANELS]))
    blocks.append(dial_table(results.dials))
    if reads:
        figures = Figures([calibration_figure(kind, read) for kind, read in reads.items()])
        blocks += [Heading("Calibration"), figures]
    if steer.matched is None:
        return blocks
    policies, *categories = steer_tables(steer)
    blocks += [*dial_lines(steer), policies]
    if steer.by_category:
        blocks += [Heading("Thresholds by category"), *category_lines(steer.by_category), *categories]
    return blocks


def reads_note(results: RunResults, payload: Payload) -> str:
    """Return where the dials read, and what the readings at every token are."""
    at = [f"{kind} at layer {d.read_at.layer}, {d.read_at.position}" for kind, d in results.dials.items() if d.read_at]
    without = "".join(
        f" The {kind} dial reads no token: it uses the model's own probability of its openings."
        for kind, d in results.dials.items()
        if not d.read_at
    )
    if not at:
        return without.strip()
    line, with_tokens = f"Each dial reads once a prompt: {'; '.join(at)}.{without}", len(payload["prompts"]["tokens"])
    if not with_tokens:
        return f"{line} This run stores no readings at other tokens; `refusal run` adds them."
    n_test = sum(part == "test" for part in payload["prompts"]["part"])
    return (
        f"{line} For {with_tokens:,} of {n_test:,} test prompts the page has the same probe, at the same layer, at "
        "every token from the user's last turn on, as log-odds on the dial's own scale. Only at its own position is "
        "that the log-odds of the dial's calibrated probability; at other tokens it is a score to compare tokens by. "
        "Readings do not change with the thresholds."
    )


# -- prompts and provenance --------------------------------------------------------------------------------------------


def _scatter(payload: Payload) -> list[Block]:
    """Return the scatter plot, which the page's script fills; nothing without two write directions."""
    prompts = payload["prompts"]
    if "x" not in prompts or "y" not in prompts:
        return []
    caption = (
        f"Projections of every prompt, all parts, on the two write directions, n = {len(prompts['id']):,}. Colour is "
        "the label, shape the action without dials. Arrow keys step from prompt to prompt; Enter opens one."
    )
    chart = scatter_chart((prompts["x_layer"], prompts["y_layer"]), payload["labels"])
    return [Figure("scatter", caption, specification(chart), None)]


def scatter_chart(layers: tuple[int, int], labels: Sequence[str], rows: Sequence[Row] | None = None) -> Chart:
    """Draw prompts by their projections on two write directions; without rows the page's script fills them in."""
    x_title, y_title = (
        f"{kind} write direction, layer {layer} (residual-stream units)"
        for kind, layer in zip(("normative", "epistemic"), layers, strict=True)
    )
    shown = [label for label in LABEL_COLOURS if label in labels]
    return scatter(rows, labels=shown, x_title=x_title, y_title=y_title)


def _facts(run: ReportedRun, results: RunResults) -> dict[str, str]:
    counts = ", ".join(f"{n:,} {label}" for label, n in results.prompts.items())
    parts = ", ".join(f"{sum(labels.values()):,} {part}" for part, labels in results.prompts_by_part.items())
    return {
        "model": results.model.name,
        "prompts": f"{counts}, from {results.prompts_path} ({parts})"
        + (f"; {results.only_read:,} more are read and not answered" if results.only_read else ""),
        "finished": f"{run.finished}, on {results.device}",
        "fingerprints": f"weights {results.model.weights[:12]}, prompts {run.prompts_hash[:12]}",
        "versions": ", ".join(f"{name} {version}" for name, version in results.versions.items()),
    }
