"""The article of one run: model, prompts and verdicts first, then rates and dials, then all other sections."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from experiments.dissociation.text import strength_sentence
from experiments.factors.text import factor_lines, factor_rows, moved_lines
from experiments.probing.results import GridRow
from experiments.probing.text import independence_lines
from experiments.report.caveats import caveats, reading_caveats
from experiments.report.dissociation_section import dissociation_section
from experiments.report.markup import escaped, json_script, paragraphs, shortened, table
from experiments.report.page.calibration import DialReadings, calibration_charts
from experiments.report.page.grids import cosine_map, eta_maps, matrix_maps, null_table, probe_maps
from experiments.report.page.sliders import Controls, sliders
from experiments.report.results import RunResults
from experiments.report.right_action_section import right_action_section
from experiments.report.steer_section import steer_section, steer_warnings
from experiments.report.triggers_section import triggers_section
from experiments.report.uncertainty_section import uncertainty_section
from experiments.run.wording import VERDICTS, p_text, verdict_sentence
from experiments.triggers.results import LocusEffect
from experiments.triggers.text import trigger_sentence
from scoring.wording import RATE_MEANING

RELIABILITY = "Share of correct completions by the number of samples that agree; 95 % intervals over groups; n."
PATCHING = "Share of the onset log-odds of refusing carried by the trigger's own tokens, by layer; 95 % intervals."

Payload = Mapping[str, Any]  # JSON for the page's script: see page/payload.py


@dataclass(frozen=True)
class ReportedRun:
    """The data of a run that the page shows and results.json does not hold."""

    name: str
    judge: str
    finished: str  # date and time
    prompts_hash: str
    cells: Sequence[GridRow]  # the probe grid
    eta: Sequence[LocusEffect]  # effects on the projection, at every locus
    figures: Mapping[str, Path]  # PNG files by name
    reads: Mapping[str, DialReadings]  # by dial, on test prompts


_RATES = {True: "Joint rates, without and with the dials", False: "Joint rates; this run has no dials"}


def article(run: ReportedRun, results: RunResults, given: Payload) -> str:
    """Return the HTML of one run.

    Args:
        given: the data of the page's script (`payload`).
    """
    title = f"{shortened(run.name, 200)}: {shortened(results.model.name, 200)}"
    parts = [
        f"<header><h1>{escaped(title)}</h1>{_facts(run, results)}{_verdicts(results)}",
        f"{_caveats(results, run.judge)}</header>",
        section("rates", _RATES[bool(results.dials)], _rates(results)),
        section("dials", "Dials: choose thresholds", _threshold_parts(results, given, run)),
        section("matrix", "One refusal or two?", _matrix(results)),
        section("triggers", "Word or intent?", _triggers(results, run)),
        section("grids", "Probe AUROC by layer and position", _grids(run, results)),
        section("scatter", "Prompts on the two write directions", scatter(given) + _geometry(results)),
        section("context", "Context of the request: persona, system line, earlier turns", _factors(results)),
        section("uncertainty", "Knowledge and uncertainty", _uncertainty(results, run)),
        section("prompts", "Prompts", PROMPTS),
    ]
    return f'<article class="run">{"".join(parts)}{json_script("payload", given)}</article>'


def section(name: str, title: str, body: str) -> str:
    """Return a section of the page; an empty string where its body is empty."""
    return f'<section class="{name}"><h2>{escape(title)}</h2>{body}</section>' if body else ""


def picture(figures: Mapping[str, Path], name: str, caption: str) -> str:
    """Return a figure with its caption; an empty string where the run has no such figure."""
    if name not in figures:
        return ""
    image = base64.b64encode(figures[name].read_bytes()).decode()
    alt = escape(caption, quote=True)
    return (f'<figure><img alt="{alt}" src="data:image/png;base64,{image}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>")  # fmt: skip


def _facts(run: ReportedRun, results: RunResults) -> str:
    counts = ", ".join(f"{n:,} {label}" for label, n in results.prompts.items())
    parts = ", ".join(f"{sum(of.values()):,} {part}" for part, of in results.prompts_by_part.items())
    facts = {
        "prompts": f"{counts}, from {results.prompts_path} ({parts})",
        "finished": f"{run.finished}, on {results.device}",
        "fingerprints": f"weights {results.model.weights[:12]}, prompts {run.prompts_hash[:12]}",
        "versions": ", ".join(f"{name} {version}" for name, version in results.versions.items()),
    }
    rows = "".join(f"<dt>{name}</dt><dd>{escaped(value)}</dd>" for name, value in facts.items())
    return f'<dl class="facts">{rows}</dl>'


def _verdicts(results: RunResults) -> str:
    found = results.dissociation
    asked = {
        "One refusal or two?": f"{verdict_sentence(found.verdict, found.reasons)} {strength_sentence(found)}",
        "Word or intent?": trigger_sentence(results.triggers),
    }
    return "".join(
        f'<p class="verdict"><strong>{question}</strong> {escaped(answer)}</p>' for question, answer in asked.items()
    )


def _caveats(results: RunResults, judge: str) -> str:
    return paragraphs([*caveats(results), *reading_caveats(results, judge)], "verdict caveat")


def _rates(results: RunResults) -> str:
    return _rates_table(results) + right_action_section(results.right_action, dials=bool(results.dials))


def _rates_table(results: RunResults) -> str:
    pairs = {name: [when.of(name) for when in (results.rates.before, results.rates.after)] for name in RATE_MEANING}
    rows = [
        [RATE_MEANING[name], f"{before:.1%}", f"{after:.1%}", _both(before.n or 0, after.n or 0)]
        for name, (before, after) in pairs.items()
    ]
    facts = results.known_facts_right
    if facts.n:
        rows.append(["known facts stated right", f"{facts.before:.1%}", f"{facts.after:.1%}", str(facts.n)])
    head, caption = ["rate on test prompts", "without dials", "with the dials", "n"], "Rates on test prompts"
    if not results.dials:
        head, rows = ["rate on test prompts", "without dials", "n"], [[name, rate, n] for name, rate, _, n in rows]
    return table(head, rows, f"{caption} with 95 % intervals over independent groups")


def _both(n: int, then: int) -> str:
    return f"{n:,}" if n == then else f"{n:,}, then {then:,}"


def _matrix(results: RunResults) -> str:
    found = results.dissociation
    return matrix_maps(found.matrix) + null_table(found.null or {}, found.effects) + dissociation_section(found, table)


def _triggers(results: RunResults, run: ReportedRun) -> str:
    cells = [[_design_cell(name), f"{of:.0%}", str(of.n)] for name, of in results.triggers.refused.items() if of.n]
    caption = "Refused requests by trigger word and intent (95 %)"
    shown = table(["prompts", "refused", "n"], cells, caption) if cells else ""
    patching = picture(run.figures, "trigger_patching", PATCHING)
    return shown + triggers_section(results.triggers) + eta_maps(run.eta) + patching


def _design_cell(name: str) -> str:
    """Return the words for a cell of the 2 x 2 design, such as `no_trigger_benign`."""
    word, intent = name.rsplit("_", 1)
    return f"{word.replace('_', ' ')} word, {intent} intent"


def _grids(run: ReportedRun, results: RunResults) -> str:
    return probe_maps(run.cells) + _sites_table(results)


def _sites_table(results: RunResults) -> str:
    rows = [
        [
            kind, f"{s.site}, layer {s.layer}, {s.position}", s.shown,
            f"{s.bag_of_words_auroc:.3f}", p_text(s.p_permutation), str(s.n_test),
        ]
        for kind, s in results.sites.items()
    ]  # fmt: skip
    head = ["contrast", "chosen on validation", "test AUROC", "bag of words", "p (labels permuted within pairs)", "n"]
    return table(head, rows)


def scatter(given: Payload) -> str:
    """Return the scatter plot, which the page's script draws; an empty string without two write directions."""
    prompts = given["prompts"]
    if "x" not in prompts or "y" not in prompts:
        return ""
    return f"""<p>Projections of every prompt on the two write directions (residual-stream units), n =
{len(prompts["id"]):,}. Colour is the label, shape the action without dials. Point at a prompt, or step through the
prompts with the arrow keys.</p>
<div class="scatter-plot"><canvas tabindex="0" role="img" data-x="{prompts["x_layer"]}" data-y="{prompts["y_layer"]}"
aria-label="Scatter plot of prompts; arrow keys step from prompt to prompt"></canvas><ul class="legend"></ul></div>"""


def _geometry(results: RunResults) -> str:
    geometry, lines = results.geometry, []
    if geometry.cosine is not None:
        lines.append(f"Cosine between the two write directions: {geometry.cosine:z.2f}.")
    lines += independence_lines(geometry.independence or {})
    if (planted := results.planted) is not None:
        for kind, recovered in (("normative", planted.normative_cosine), ("epistemic", planted.epistemic_cosine)):
            if recovered is not None:
                lines.append(f"Recovery of the planted {kind} direction: |cos| {recovered:.2f}.")
    of = [f"{kind} n = {write.n:,}" for kind, write in results.writes.items() if write.n]
    return paragraphs(lines) + cosine_map(geometry.cosine_by_layer, " and ".join(of))


def _factors(results: RunResults) -> str:
    triggers = results.triggers
    lines = paragraphs([*factor_lines(triggers), *moved_lines(triggers)])
    head = ["context", "label", "refused with it", "refused without", "evidence (* changes refusing)"]
    rows = factor_rows(triggers)
    return lines + (table(head, rows) if rows else "")


def _uncertainty(results: RunResults, run: ReportedRun) -> str:
    figure = picture(run.figures, "reliability", RELIABILITY)
    return uncertainty_section(results.could_have_answered, results.uncertainty, table, figure)


def _threshold_parts(results: RunResults, given: Payload, run: ReportedRun) -> str:
    return steer_warnings(results.steer) + _sliders(results, given) + _dials(results, run)


def _sliders(results: RunResults, given: Payload) -> str:
    return sliders(Controls.model_validate(given), results.steer, results.rates.before, results.rates.after)


def _dials(results: RunResults, run: ReportedRun) -> str:
    rows = [
        [
            kind, f"layer {d.read_at.layer}, {d.read_at.position}", f"layer {d.written_at.layer}",
            f"{d.threshold:.3f}", f"{d.test_auroc:.3f}", f"{d.test_ece:.3f}",
        ]
        for kind, d in results.dials.items()
        if d.read_at and d.written_at
    ]  # fmt: skip
    if not rows:
        return ""
    head = ["dial", "reads at", "writes at", "threshold", "test AUROC", "test ECE"]
    return table(head, rows) + calibration_charts(run.reads) + steer_section(results.steer, table)


PROMPTS = """<div class="controls" role="group" aria-label="Which prompts are shown">
<label>Search <input type="search" class="search" placeholder="prompt, id or answer"></label>
<label>Label <select class="label"></select></label>
<label>Part <select class="part"></select></label>
<label>Action at these thresholds <select class="does"></select></label>
<label><input type="checkbox" class="changed"> only actions that the dials change</label>
<label><input type="checkbox" class="unblur"> show harmful prompts</label></div>
<h3>Shares by group</h3><p>Shares of the selected prompts by <select class="by" aria-label="group by">
<option value="label">label</option><option value="category">category</option>
<option value="trigger">trigger word</option><option value="part">part</option></select>, without dials and at these
thresholds.</p>
<div class="wide"><table class="kinds sortable"></table></div>
<h3>Each prompt</h3><p class="count" role="status"></p>
<div class="wide"><table class="each sortable"></table></div>
<p class="pages"><button type="button" class="back">Previous</button>
<button type="button" class="on">Next</button></p>"""


def runs_table(names: Sequence[str], records: Sequence[RunResults]) -> str:
    """Return a table of the verdicts and rates of several runs."""
    rows = [
        ["one refusal or two", *(VERDICTS[record.dissociation.verdict] for record in records)],
        ["word or intent", *(VERDICTS[record.triggers.verdict] for record in records)],
    ]
    for rates, condition in (
        ([record.rates.before for record in records], "without dials"),
        ([record.rates.after for record in records], "with the dials"),
    ):
        rows += [
            [f"{meaning}, {condition}", *(f"{of.of(name):.1%}" for of in rates)]
            for name, meaning in RATE_MEANING.items()
        ]
    return table(["", *names], rows, "Verdicts and rates of each run on its own test prompts, with 95 % intervals")
