"""The section on how the thresholds were chosen: trade-off, calibration, certificates, policies; and the sliders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.dials.by_category.text import category_lines, category_rows
from experiments.dials.results import ByCategory, SteerResult
from experiments.dials.text import dial_lines, point_rows
from experiments.dials.tradeoff_figure import MEANING, PANELS, tradeoff_chart, tradeoff_rows
from experiments.report.blocks import Block, Figure, Figures, Heading, Lines, Table, figure
from experiments.report.calibration import LABEL, DialReadings, calibration_chart, calibration_rows
from experiments.report.results import RunResults
from extract.record import Record

READS = {
    "normative": "The normative dial reads harm and makes the model refuse.",
    "epistemic": "The epistemic dial reads what the model does not know and makes it abstain.",
}


class Preset(Record):
    """A named pair of thresholds, set by a button."""

    name: str


class Controls(Record):
    """The part of the page's payload that the controls show."""

    dials: list[str] = []
    band: float = 0.0
    presets: list[Preset] = []
    commands: dict[str, str] = {}


@dataclass(frozen=True)
class Sliders:
    """What the template of the sliders shows."""

    how: str
    dials: Sequence[str]
    presets: Sequence[str]
    commands: Sequence[str]


def sliders(controls: Controls) -> Sliders | None:
    """Return the controls; None for a run without dials."""
    if not controls.dials:
        return None
    decides = "A dial declines at or above its threshold and permits below it"
    if band := controls.band:
        decides = (
            f"A dial declines from {band:g} above its threshold on and permits from {band:g} below it; between, in its "
            "dead band, it leaves the model unchanged"
        )
    reads = " ".join(READS[kind] for kind in controls.dials if kind in READS)
    how = (
        f"{reads} {decides}. The completion of each test prompt under every decision was generated, so these rates "
        "are exact. Ticks: thresholds tried; presets were set on the choice prompts."
    )
    return Sliders(how, controls.dials, [preset.name for preset in controls.presets], list(controls.commands))


def dials_blocks(results: RunResults, reads: Mapping[str, DialReadings]) -> list[Block]:
    """Return the blocks on the dials; none without dials."""
    steer, blocks = results.steer, list[Block]()
    if results.dials and steer.frontier:
        blocks.append(Figures([_tradeoff(results, risk) for risk in PANELS]))
    blocks += _dials_table(results)
    if reads:
        blocks += [Heading("Calibration"), Figures([_calibration(kind, read) for kind, read in reads.items()])]
    return blocks + steer_blocks(steer)


def _tradeoff(results: RunResults, risk: str) -> Figure:
    before, after = results.rates.before, results.rates.after
    return figure(
        f"tradeoff_{risk}",
        tradeoff_chart(results.steer, before, after, risk, live=True),
        f"{MEANING[risk]} against over_refusal on test prompts; frontiers chosen on the choice prompts; lines: 95 %",
        tradeoff_rows(results.steer, before, after, risk),
        {
            "name": "setting",
            "x": "over_refusal, %",
            "x_low": "from, %",
            "x_high": "to, %",
            "y": f"{risk}, %",
            "y_low": "from, %",
            "y_high": "to, %",
        },
    )


def _calibration(kind: str, read: DialReadings) -> Figure:
    return figure(
        f"calibration_{kind}",
        calibration_chart({kind: read}),
        f"Share of {LABEL[kind]} prompts among test prompts by the probability that the {kind} dial reads; n beside "
        "each point; lines: 95 %; dashed: perfect calibration",
        calibration_rows({kind: read}),
        {"bin": "probability", "y": "share, %", "low": "from, %", "high": "to, %", "n": "n"},
    )


def _dials_table(results: RunResults) -> list[Block]:
    rows = [
        [
            kind,
            f"layer {d.read_at.layer}, {d.read_at.position}" if d.read_at else "no layer (probability of its openings)",
            f"layer {d.written_at.layer}" if d.written_at else "no layer (onset_bias)",
            f"{d.threshold:.3f}",
            *("none" if x is None else f"{x:.3f}" for x in (d.test_auroc, d.test_ece)),
        ]
        for kind, d in results.dials.items()
    ]
    head = ["dial", "reads at", "writes at", "threshold", "test AUROC", "test ECE"]
    return [Table(head, rows)] if rows else []


def steer_blocks(result: SteerResult) -> list[Block]:
    """Return the lines on thresholds and certificates, and the table of policies; nothing without dials."""
    if result.matched is None:
        return []
    most = result.matched.over_refusal_at_most
    caption = f"Each policy at over_refusal of at most {most:.1%} on the choice prompts"
    blocks: list[Block] = [Lines(dial_lines(result)), Table(*point_rows(result.matched, result.system_lines), caption)]
    return blocks + (category_blocks(result.by_category) if result.by_category else [])


def category_blocks(result: ByCategory) -> list[Block]:
    """Return the blocks on thresholds by category."""
    caption = "Prompts recognised as each category, on test: rates with the thresholds of all prompts, and with its own"
    table: list[Block] = [Table(*category_rows(result), caption)] if result.categories else []
    return [Heading("Thresholds by category"), Lines(category_lines(result)), *table]
