"""One run as an article: what was run and found first, then the dials to move, then all the rest."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from experiments.report.dissociation_section import dissociation_section
from experiments.report.page.calibration import calibration_charts
from experiments.report.page.grids import cosine_map, eta_maps, matrix_map, null_table, probe_maps
from experiments.report.page.markup import data, json_script, paragraphs, shortened, table
from experiments.report.page.sliders import sliders
from experiments.report.steer_section import steer_section
from experiments.report.triggers_section import triggers_section
from experiments.report.uncertainty_section import uncertainty_section
from experiments.run.wording import (
    VERDICTS,
    ResultsInWords,
    caveats,
    factor_lines,
    independence_lines,
    reading_caveats,
    strength_sentence,
    verdict_sentence,
)
from experiments.triggers.findings import moved_lines
from experiments.triggers.text import factor_rows
from scoring.rates import RatesRecord
from scoring.wording import RATE_MEANING

RELIABILITY = "How often completions are right by how many samples agree with them; 95 % intervals over groups; n."
PATCHING = "Share of the refusal's onset log-odds that the trigger's own tokens carry, by layer; 95 % intervals."


_RATES = {True: "The joint rates, before and after the dials", False: "The joint rates; there is no dial"}


def article(run: Mapping[str, Any], results: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Return one run.

    Args:
        run: its `name`, `judge`, when it `finished`, `prompts_hash`, `cells` (probe grid), `eta` (trigger projection),
            `figures` (PNG files by name) and `reads` (what each dial read of test prompts, and what they are).
        given: the data of the page's script (`payload`).
    """
    title = f"{shortened(run['name'], 200)}: {shortened(results['model']['name'], 200)}"
    parts = [
        f"<header><h1>{data(title)}</h1>{_what_was_run(run, results)}{_verdicts(results)}",
        f"{_caveats(results, run['judge'])}</header>",
        section("rates", _RATES[bool(results["dials"])], _rates_table(results)),
        section("dials", "Choose thresholds", sliders(results, given) + _dials(results, run)),
        section("matrix", "One refusal or two?", _matrix(results)),
        section("triggers", "Word or intent?", _triggers(results, run)),
        section("grids", "Where each label can be read", probe_maps(run["cells"]) + _sites_table(results)),
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


def _what_was_run(run: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{n:,} {label}" for label, n in results["prompts"].items())
    parts = ", ".join(f"{sum(of.values()):,} {part}" for part, of in results["prompts_by_part"].items())
    facts = {
        "prompts": f"{counts}, from {results['prompts_path']} ({parts})",
        "finished": f"{run['finished']}, on {results['device']}",
        "fingerprints": f"weights {results['model']['weights'][:12]}, prompts {run['prompts_hash'][:12]}",
        "versions": ", ".join(f"{name} {version}" for name, version in results["versions"].items()),
    }
    rows = "".join(f"<dt>{name}</dt><dd>{data(value)}</dd>" for name, value in facts.items())
    return f'<dl class="facts">{rows}</dl>'


def _verdicts(results: Mapping[str, Any]) -> str:
    dissociation, words = dict(results["dissociation"]), ResultsInWords.model_validate(results)
    asked = {
        "One refusal or two?": f"{verdict_sentence(words.dissociation)} {strength_sentence(dissociation)}",
        "Word or intent?": verdict_sentence(words.triggers),
    }
    return "".join(
        f'<p class="verdict"><strong>{question}</strong> {data(said)}</p>' for question, said in asked.items()
    )


def _caveats(results: Mapping[str, Any], judge: str) -> str:
    found = ResultsInWords.model_validate(results)
    return paragraphs([*caveats(found), *reading_caveats(found, judge)], "verdict caveat")


def _rates_table(results: Mapping[str, Any]) -> str:
    pairs = {name: [_rates(results, when).of(name) for when in ("before", "after")] for name in RATE_MEANING}
    rows = [
        [RATE_MEANING[name], f"{before:.1%}", f"{after:.1%}", _both(before.n or 0, after.n or 0)]
        for name, (before, after) in pairs.items()
    ]
    facts = results["known_facts_right"]
    if facts["n"]:
        rows.append(["known facts stated right", f"{facts['before']:.1%}", f"{facts['after']:.1%}", str(facts["n"])])
    head, caption = ["rate on test prompts", "before", "with the dials", "n"], "Rates on test prompts"
    if not results["dials"]:
        head, rows = ["rate on test prompts", "with no dial", "n"], [[name, told, n] for name, told, _, n in rows]
    return table(head, rows, f"{caption} with 95 % intervals over independent groups")


def _rates(results: Mapping[str, Any], when: str) -> RatesRecord:
    return RatesRecord.model_validate(results["rates"][when])


def _both(n: int, then: int) -> str:
    return f"{n:,}" if n == then else f"{n:,}, then {then:,}"


def _matrix(results: Mapping[str, Any]) -> str:
    record = results["dissociation"]
    null = null_table(record.get("null") or {}, record.get("effects") or {})
    return matrix_map(record.get("matrix") or {}) + null + dissociation_section(record, table)


def _triggers(results: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    refused = results["triggers"].get("refused") or {}
    cells = [
        [name.replace("_", " "), f"{of['estimate']:.0%} [{of['low']:.0%}, {of['high']:.0%}]", str(of["n"])]
        for name, of in refused.items()
        if of["n"]
    ]
    shown = table(["prompts", "refused", "n"], cells, "Refused, by trigger word and intent (95 %)") if cells else ""
    patching = picture(run["figures"], "trigger_patching", PATCHING)
    return shown + triggers_section(results["triggers"]) + eta_maps(run["eta"]) + patching


def _sites_table(results: Mapping[str, Any]) -> str:
    rows = [
        [
            kind, f"{s['site']}, layer {s['layer']}, {s['position']}",
            f"{s['auroc']:.3f} [{s['auroc_ci'][0]:.3f}, {s['auroc_ci'][1]:.3f}]",
            f"{s['bag_of_words_auroc']:.3f}", f"{s['p_permutation']:.3f}", str(s["n_test"]),
        ]
        for kind, s in results["sites"].items()
    ]  # fmt: skip
    head = ["contrast", "chosen on validation", "test AUROC", "bag of words", "p, labels permuted within pairs", "n"]
    return table(head, rows)


def scatter(given: Mapping[str, Any]) -> str:
    """Return the scatter of prompts, which the page's script draws; nothing where there are not two directions."""
    prompts = given["prompts"]
    if "x" not in prompts or "y" not in prompts:
        return ""
    return f"""<p>Every prompt by its projections onto the two write directions (residual-stream units), n =
{len(prompts["id"]):,}: colour is its label, shape what the model does with no dial. Point at one, or step through them
with the arrow keys.</p>
<div class="cloud"><canvas tabindex="0" role="img" data-x="{prompts["x_layer"]}" data-y="{prompts["y_layer"]}"
aria-label="Scatter of prompts; arrow keys step from one to the next"></canvas><ul class="legend"></ul></div>"""


def _geometry(results: Mapping[str, Any]) -> str:
    geometry, lines = results["geometry"], []
    if geometry["cosine"] is not None:
        lines.append(f"Cosine between the two write directions: {geometry['cosine']:.2f}.")
    lines += independence_lines(geometry.get("independence") or {})
    planted = results.get("planted")
    for kind in ("normative", "epistemic"):
        if planted and planted[f"{kind}_cosine"] is not None:
            lines.append(f"Recovered {kind} direction against the planted one: |cos| {planted[f'{kind}_cosine']:.2f}.")
    of = [f"{kind} n = {write['n']:,}" for kind, write in results["writes"].items() if write.get("n")]
    return paragraphs(lines) + cosine_map(geometry.get("cosine_by_layer") or {}, " and ".join(of))


def _factors(results: Mapping[str, Any]) -> str:
    triggers = dict(results["triggers"])
    lines = paragraphs([*factor_lines(triggers), *moved_lines(triggers)])
    head = ["beside the request", "label", "refused with it", "refused without", "told by (* moves refusing)"]
    rows = factor_rows(triggers)
    return lines + (table(head, rows) if rows else "")


def _uncertainty(results: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    return uncertainty_section(results, table, picture(run["figures"], "reliability", RELIABILITY))


def _dials(results: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    rows = [
        [
            kind, f"layer {d['read']['layer']}, {d['read']['position']}", f"layer {d['write']['layer']}",
            f"{d['threshold']:.3f}", f"{d['test_auroc']:.3f}", f"{d['test_ece']:.3f}",
        ]
        for kind, d in results["dials"].items()
        if d.get("write")
    ]  # fmt: skip
    if not rows:
        return ""
    head = ["dial", "reads at", "writes at", "threshold set", "test AUROC", "test ECE"]
    return table(head, rows) + calibration_charts(run["reads"]) + steer_section(results.get("steer", {}), table, "")


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


def runs_table(names: Sequence[str], records: Sequence[Mapping[str, Any]]) -> str:
    """Return the runs side by side: verdicts and rates."""
    asked = {"one refusal or two": "dissociation", "word or intent": "triggers"}
    rows = [[name, *(VERDICTS[record[key]["verdict"]] for record in records)] for name, key in asked.items()]
    for when, told in (("before", "with no dial"), ("after", "with the dials")):
        rows += [
            [f"{meaning}, {told}", *(f"{_rates(r, when).of(name):.1%}" for r in records)]
            for name, meaning in RATE_MEANING.items()
        ]
    return table(["", *names], rows, "Runs side by side; rates on each one's own test prompts, 95 % intervals")
