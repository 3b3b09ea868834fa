"""`refusal report`: one self-contained HTML page and the same figures as PNG and SVG."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from typing import Any

from experiments.context import Context
from experiments.manifest import read_json
from experiments.report_dissociation import dissociation_section
from experiments.report_steer import steer_section
from experiments.report_triggers import triggers_section
from experiments.report_uncertainty import uncertainty_section
from experiments.trigger_findings import moved_lines
from experiments.trigger_text import factor_rows
from experiments.wording import (
    RATE_MEANING,
    caveats,
    factor_lines,
    independence_lines,
    percent,
    verdict_sentence,
)

RELIABILITY = "How often completions are right by how many samples agree with them; 95 % intervals over groups; n."
PARETO = "What each way of moving the trade-off reaches; whiskers are 95 % intervals over independent groups."
STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --line: #8886; --soft: #8881; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #16181c; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.2rem }
.verdict { border-left: 4px solid #0072B2; background: var(--soft); padding: .6rem 1rem; margin: .8rem 0 }
.caveat { border-left-color: #D55E00 }
table { border-collapse: collapse; width: 100%; margin: .8rem 0; font-size: .94rem }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line) }
td.n { font-variant-numeric: tabular-nums; white-space: nowrap }
mark { background: #F0E442; color: #1a1a1a; padding: 0 .15rem; border-radius: 3px }
figure { margin: 1rem 0 } img { max-width: 100%; background: #fff; border-radius: 4px }
figcaption { font-size: .88rem; opacity: .8 } code { background: var(--soft); padding: 0 .25rem }
"""


def report(context: Context) -> None:
    """Write report.html and figures/ from results.json and the run's files."""
    from experiments.report_figures import draw

    results = read_json(context.file("results.json"))
    figures = draw(context, results)
    partial = context.file("report.html.partial")
    partial.write_text(page(results, figures), encoding="utf-8")
    partial.replace(context.file("report.html"))


def page(results: dict[str, Any], figures: dict[str, Path]) -> str:
    """Return the page; everything that comes from data is escaped."""
    title = f"Refusal report: {results['model']['name']}"
    warnings = "".join(f'<p class="verdict caveat">{escape(line)}</p>' for line in caveats(results))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>
<h1>{escape(title)}</h1>
<p>{escape(_what_was_run(results))}</p>
<p class="verdict"><strong>One refusal or two?</strong> {escape(verdict_sentence(results["dissociation"]))}</p>
<p class="verdict"><strong>Word or intent?</strong> {escape(verdict_sentence(results["triggers"]))}</p>
{warnings}
<h2>The three joint rates, before and after the dials</h2>
{_rates_table(results)}
{_figure(figures, "rates", "Bars are rates on test prompts; whiskers are 95 % intervals over independent groups.")}
<h2>Interventions and behaviours</h2>
{_figure(figures, "matrix", "Ablation sets the projection to the answering class mean; random ones are controls.")}
{dissociation_section(results["dissociation"], table)}
<h2>Where each label can be read</h2>
{_sites_table(results)}
{_figure(figures, "grid_normative", "Harmful against benign requests, logistic probe, test prompts.")}
{_figure(figures, "grid_epistemic", "Uncertain questions against known twins, logistic probe, test prompts.")}
{_figure(figures, "grid_intent", "Harmful requests against benign ones with a trigger word.")}
<h2>The two directions</h2>
{_figure(figures, "scatter", "Every prompt, by its projection onto the two write directions.")}
{_geometry(results)}
<h2>Word or intent</h2>
{_figure(figures, "trigger_eta_refusing", "What word and intent do to the projection on the refusing direction.")}
{_figure(figures, "trigger_eta_harmfulness", "The same on the harmfulness direction, fitted on labels.")}
{_figure(figures, "trigger_patching", "Share of the refusal's onset log-odds that the trigger's own tokens carry.")}
{triggers_section(results["triggers"])}
<h2>Beside the request: who asks, the system line, earlier turns</h2>
{_factors(results["triggers"])}
{uncertainty_section(results, table, _figure(figures, "reliability", RELIABILITY))}
<h2>Dials</h2>
{_dials_table(results)}
{steer_section(results.get("steer", {}), table, _figure(figures, "pareto", PARETO))}
</main></body></html>
"""


def _what_was_run(results: dict[str, Any]) -> str:
    counts = ", ".join(f"{n} {label}" for label, n in results["prompts"].items())
    weights = results["model"]["weights"][:12]
    return f"{counts} prompts from {results['prompts_path']}; weights {weights}; on {results['device']}."


def _figure(figures: dict[str, Path], name: str, caption: str) -> str:
    if name not in figures:
        return ""
    data = base64.b64encode(figures[name].read_bytes()).decode()
    alt = escape(caption, quote=True)
    image = f'<img alt="{alt}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return an HTML table; all cells are escaped."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f'<td class="n">{escape(cell)}</td>' for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _rates_table(results: dict[str, Any]) -> str:
    before, after = results["rates"]["before"], results["rates"]["after"]
    rows = [
        [meaning, percent(before, name), percent(after, name), str(before[f"{name}_n"])]
        for name, meaning in RATE_MEANING.items()
    ]
    return table(["rate on test prompts", "before", "with dials", "n"], rows)


def _sites_table(results: dict[str, Any]) -> str:
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


def _geometry(results: dict[str, Any]) -> str:
    lines = []
    if results["geometry"]["cosine"] is not None:
        lines.append(f"Cosine between the two write directions: {results['geometry']['cosine']:.2f}.")
    lines += independence_lines(results["geometry"].get("independence") or {})
    planted = results.get("planted")
    for kind in ("normative", "epistemic"):
        if planted and planted[f"{kind}_cosine"] is not None:
            lines.append(f"Recovered {kind} direction against the planted one: |cos| {planted[f'{kind}_cosine']:.2f}.")
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _factors(triggers: dict[str, Any]) -> str:
    lines = "".join(f"<p>{escape(line)}</p>" for line in [*factor_lines(triggers), *moved_lines(triggers)])
    head = ["beside the request", "label", "refused with it", "refused without", "told by (* moves refusing)"]
    rows = factor_rows(triggers)
    return lines + (table(head, rows) if rows else "")


def _dials_table(results: dict[str, Any]) -> str:
    rows = [
        [
            kind, f"layer {d['read']['layer']}, {d['read']['position']}", f"layer {d['write']['layer']}",
            f"{d['threshold']:.3f}", f"{d['test_auroc']:.3f}", f"{d['test_ece']:.3f}",
        ]
        for kind, d in results["dials"].items()
    ]  # fmt: skip
    return table(["dial", "reads at", "writes at", "threshold", "test AUROC", "test ECE"], rows) if rows else ""
