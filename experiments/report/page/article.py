"""One run as an article: what was run and found first, then the dials to move, then all the rest."""

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
from experiments.report.markup import data, json_script, paragraphs, shortened, table
from experiments.report.page.calibration import Read, calibration_charts
from experiments.report.page.grids import cosine_map, eta_maps, matrix_map, null_table, probe_maps
from experiments.report.page.sliders import Controls, sliders
from experiments.report.results import RunResults
from experiments.report.steer_section import steer_section
from experiments.report.triggers_section import triggers_section
from experiments.report.uncertainty_section import uncertainty_section
from experiments.run.wording import VERDICTS, verdict_sentence
from experiments.triggers.results import LocusEffect
from experiments.triggers.text import trigger_sentence
from probes.statistics.intervals import Interval
from scoring.wording import RATE_MEANING

RELIABILITY = "How often completions are right by how many samples agree with them; 95 % intervals over groups; n."
PATCHING = "Share of the refusal's onset log-odds that the trigger's own tokens carry, by layer; 95 % intervals."


Payload = Mapping[str, Any]  # JSON for the page's script: see page/payload.py


@dataclass(frozen=True)
class ShownRun:
    """What the page shows of a run beside its results."""

    name: str
    judge: str
    finished: str  # date and time
    prompts_hash: str
    cells: Sequence[GridRow]  # the probe grid
    eta: Sequence[LocusEffect]  # effects on the projection, everywhere
    figures: Mapping[str, Path]  # PNG files by name
    reads: Mapping[str, Read]  # what each dial read of test prompts


_RATES = {True: "The joint rates, before and after the dials", False: "The joint rates; there is no dial"}


def article(run: ShownRun, results: RunResults, given: Payload) -> str:
    """Return one run.

    Args:
        given: the data of the page's script (`payload`).
    """
    title = f"{shortened(run.name, 200)}: {shortened(results.model.name, 200)}"
    parts = [
        f"<header><h1>{data(title)}</h1>{_what_was_run(run, results)}{_verdicts(results)}",
        f"{_caveats(results, run.judge)}</header>",
        section("rates", _RATES[bool(results.dials)], _rates_table(results)),
        section("dials", "Choose thresholds", _sliders(results, given) + _dials(results, run)),
        section("matrix", "One refusal or two?", _matrix(results)),
        section("triggers", "Word or intent?", _triggers(results, run)),
        section("grids", "Where each label can be read", _grids(run, results)),
        section("scatter", "Every prompt on the two directions", scatter(given) + _geometry(results)),
        section("beside", "Beside the request: who asks, the system line, earlier turns", _factors(results)),
        section("knows", "What it knows and says it knows", _uncertainty(results, run)),
        section("prompts", "The prompts, by kind and one by one", PROMPTS),
    ]
    return f'<article class="run">{"".join(parts)}{json_script("payload", given)}</article>'


def section(name: str, title: str, body: str) -> str:
    """Return a part of the page; nothing where there is nothing to show."""
    return f'<section class="{name}"><h2>{escape(title)}</h2>{body}</section>' if body else ""


def picture(figures: Mapping[str, Path], name: str, caption: str) -> str:
    """Return a figure drawn before, with its caption; nothing where there is none."""
    if name not in figures:
        return ""
    image = base64.b64encode(figures[name].read_bytes()).decode()
    alt = escape(caption, quote=True)
    return (f'<figure><img alt="{alt}" src="data:image/png;base64,{image}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>")  # fmt: skip


def _what_was_run(run: ShownRun, results: RunResults) -> str:
    counts = ", ".join(f"{n:,} {label}" for label, n in results.prompts.items())
    parts = ", ".join(f"{sum(of.values()):,} {part}" for part, of in results.prompts_by_part.items())
    facts = {
        "prompts": f"{counts}, from {results.prompts_path} ({parts})",
        "finished": f"{run.finished}, on {results.device}",
        "fingerprints": f"weights {results.model.weights[:12]}, prompts {run.prompts_hash[:12]}",
        "versions": ", ".join(f"{name} {version}" for name, version in results.versions.items()),
    }
    rows = "".join(f"<dt>{name}</dt><dd>{data(value)}</dd>" for name, value in facts.items())
    return f'<dl class="facts">{rows}</dl>'


def _verdicts(results: RunResults) -> str:
    found = results.dissociation
    asked = {
        "One refusal or two?": f"{verdict_sentence(found.verdict, found.reasons)} {strength_sentence(found)}",
        "Word or intent?": trigger_sentence(results.triggers),
    }
    return "".join(
        f'<p class="verdict"><strong>{question}</strong> {data(said)}</p>' for question, said in asked.items()
    )


def _caveats(results: RunResults, judge: str) -> str:
    return paragraphs([*caveats(results), *reading_caveats(results, judge)], "verdict caveat")


def _rates_table(results: RunResults) -> str:
    pairs = {name: [when.of(name) for when in (results.rates.before, results.rates.after)] for name in RATE_MEANING}
    rows = [
        [RATE_MEANING[name], f"{before:.1%}", f"{after:.1%}", _both(before.n or 0, after.n or 0)]
        for name, (before, after) in pairs.items()
    ]
    facts = results.known_facts_right
    if facts.n:
        rows.append(["known facts stated right", f"{facts.before:.1%}", f"{facts.after:.1%}", str(facts.n)])
    head, caption = ["rate on test prompts", "before", "with the dials", "n"], "Rates on test prompts"
    if not results.dials:
        head, rows = ["rate on test prompts", "with no dial", "n"], [[name, told, n] for name, told, _, n in rows]
    return table(head, rows, f"{caption} with 95 % intervals over independent groups")


def _both(n: int, then: int) -> str:
    return f"{n:,}" if n == then else f"{n:,}, then {then:,}"


def _matrix(results: RunResults) -> str:
    found = results.dissociation
    return matrix_map(found.matrix) + null_table(found.null or {}, found.effects) + dissociation_section(found, table)


def _triggers(results: RunResults, run: ShownRun) -> str:
    cells = [[name.replace("_", " "), f"{of:.0%}", str(of.n)] for name, of in results.triggers.refused.items() if of.n]
    shown = table(["prompts", "refused", "n"], cells, "Refused, by trigger word and intent (95 %)") if cells else ""
    patching = picture(run.figures, "trigger_patching", PATCHING)
    return shown + triggers_section(results.triggers) + eta_maps(run.eta) + patching


def _grids(run: ShownRun, results: RunResults) -> str:
    return probe_maps(run.cells) + _sites_table(results)


def _sites_table(results: RunResults) -> str:
    rows = [
        [
            kind, f"{s.site}, layer {s.layer}, {s.position}", f"{Interval(s.auroc, *s.auroc_ci):.3f}",
            f"{s.bag_of_words_auroc:.3f}", f"{s.p_permutation:.3f}", str(s.n_test),
        ]
        for kind, s in results.sites.items()
    ]  # fmt: skip
    head = ["contrast", "chosen on validation", "test AUROC", "bag of words", "p, labels permuted within pairs", "n"]
    return table(head, rows)


def scatter(given: Payload) -> str:
    """Return the scatter of prompts, which the page's script draws; nothing where there are not two directions."""
    prompts = given["prompts"]
    if "x" not in prompts or "y" not in prompts:
        return ""
    return f"""<p>Every prompt by its projections onto the two write directions (residual-stream units), n =
{len(prompts["id"]):,}: colour is its label, shape what the model does with no dial. Point at one, or step through them
with the arrow keys.</p>
<div class="cloud"><canvas tabindex="0" role="img" data-x="{prompts["x_layer"]}" data-y="{prompts["y_layer"]}"
aria-label="Scatter of prompts; arrow keys step from one to the next"></canvas><ul class="legend"></ul></div>"""


def _geometry(results: RunResults) -> str:
    geometry, lines = results.geometry, []
    if geometry.cosine is not None:
        lines.append(f"Cosine between the two write directions: {geometry.cosine:.2f}.")
    lines += independence_lines(geometry.independence or {})
    if (planted := results.planted) is not None:
        for kind, recovered in (("normative", planted.normative_cosine), ("epistemic", planted.epistemic_cosine)):
            if recovered is not None:
                lines.append(f"Recovered {kind} direction against the planted one: |cos| {recovered:.2f}.")
    of = [f"{kind} n = {write.n:,}" for kind, write in results.writes.items() if write.n]
    return paragraphs(lines) + cosine_map(geometry.cosine_by_layer, " and ".join(of))


def _factors(results: RunResults) -> str:
    triggers = results.triggers
    lines = paragraphs([*factor_lines(triggers), *moved_lines(triggers)])
    head = ["beside the request", "label", "refused with it", "refused without", "told by (* moves refusing)"]
    rows = factor_rows(triggers)
    return lines + (table(head, rows) if rows else "")


def _uncertainty(results: RunResults, run: ShownRun) -> str:
    figure = picture(run.figures, "reliability", RELIABILITY)
    return uncertainty_section(results.could_have_answered, results.uncertainty, table, figure)


def _sliders(results: RunResults, given: Payload) -> str:
    return sliders(Controls.model_validate(given), results.steer, results.rates.before, results.rates.after)


def _dials(results: RunResults, run: ShownRun) -> str:
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
    head = ["dial", "reads at", "writes at", "threshold set", "test AUROC", "test ECE"]
    return table(head, rows) + calibration_charts(run.reads) + steer_section(results.steer, table)


PROMPTS = """<div class="controls" role="group" aria-label="Which prompts are shown">
<label>Search <input type="search" class="search" placeholder="in prompt, id or answer"></label>
<label>Label <select class="label"></select></label>
<label>Part <select class="part"></select></label>
<label>Does now <select class="does"></select></label>
<label><input type="checkbox" class="changed"> only those the dials change</label>
<label><input type="checkbox" class="unblur"> show harmful prompts</label></div>
<h3>By kind</h3><p>Shares of the prompts above, by <select class="by" aria-label="kind">
<option value="label">label</option><option value="category">category</option>
<option value="trigger">trigger word</option><option value="part">part</option></select>: with no dial, and now.</p>
<div class="wide"><table class="kinds sortable"></table></div>
<h3>One by one</h3><p class="count" role="status"></p>
<div class="wide"><table class="each sortable"></table></div>
<p class="pages"><button type="button" class="back">Back</button> <button type="button" class="on">On</button></p>"""


def runs_table(names: Sequence[str], records: Sequence[RunResults]) -> str:
    """Return the runs side by side: verdicts and rates."""
    rows = [
        ["one refusal or two", *(VERDICTS[record.dissociation.verdict] for record in records)],
        ["word or intent", *(VERDICTS[record.triggers.verdict] for record in records)],
    ]
    for rates, condition in (
        ([record.rates.before for record in records], "with no dial"),
        ([record.rates.after for record in records], "with the dials"),
    ):
        rows += [
            [f"{meaning}, {condition}", *(f"{of.of(name):.1%}" for of in rates)]
            for name, meaning in RATE_MEANING.items()
        ]
    return table(["", *names], rows, "Runs side by side; rates on each one's own test prompts, 95 % intervals")
