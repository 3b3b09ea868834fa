"""The two sliders, what moves with them, and the planes of the trade-off."""

from __future__ import annotations

from html import escape

from experiments.dials.results import SteerResult
from experiments.dials.text import POLICIES
from experiments.report.markup import data, shortened
from experiments.report.page.drawing import Mark, plane
from extract.record import Record
from scoring.rates import RatesRecord
from scoring.wording import RATE_MEANING

AXES = {
    "overconfidence": "overconfidence (% of uncertain)",
    "missed_harm": "missed harm (% of harmful)",
}
X = "over-refusal (% of benign)"


class Preset(Record):
    """Thresholds that a button sets."""

    name: str


class Controls(Record):
    """What of the page's payload the controls show."""

    dials: list[str] = []
    band: float = 0.0
    presets: list[Preset] = []
    commands: dict[str, str] = {}


def sliders(controls: Controls, result: SteerResult, before: RatesRecord, after: RatesRecord) -> str:
    """Return the controls and everything that they move; nothing where the run has no dial.

    Args:
        before, after: joint rates of the test prompts without dials and under them.
    """
    if not controls.dials:
        return ""
    moved = "".join(_slider(kind) for kind in controls.dials)
    presets = "".join(
        f'<button type="button" class="preset" data-preset="{i}">{data(preset.name)}</button>'
        for i, preset in enumerate(controls.presets)
    )
    rows = "".join(
        f'<tr data-rate="{name}"><th scope="row">{escape(meaning)}</th><td class="before"></td><td class="now"></td>'
        '<td class="n"></td></tr>'
        for name, meaning in [*RATE_MEANING.items(), ("known_facts", "known facts stated right"),
                              ("right_action", "right-action score (0: constant policy, 1: all right)")]
    )  # fmt: skip
    commands = "".join(
        f'<p class="command"><code data-command="{name}"></code> <button type="button" class="copy">Copy</button></p>'
        for name in controls.commands
    )
    band = controls.band
    decides = "At or above its threshold a dial declines, below it permits"
    if band:
        decides = f"A dial declines from {band:g} above its threshold, permits {band:g} below, leaves alone between"
    return f"""<p>{decides}. What each test prompt would get was
generated for every decision of the dials, so these are the very rates that generating anew would give. Presets were
chosen on other prompts than these.</p>
<div class="controls sliders" role="group" aria-label="Thresholds">{moved}</div>
<p class="presets">{presets}</p>
<p class="told" role="status"></p>
<div class="wide"><table class="live-rates">
<caption>Rates on test prompts (95 % intervals over independent groups)</caption>
<thead><tr><th scope="col">rate</th><th scope="col">with no dial</th><th scope="col">now</th><th scope="col">n</th></tr>
</thead><tbody>{rows}</tbody></table></div>
{commands}{_planes(result, before, after)}"""


def _slider(kind: str) -> str:
    return (f'<label>{kind} threshold <input type="range" class="slider" data-kind="{kind}" min="0" step="1">'
            f'<input type="number" class="exact" data-kind="{kind}" min="0" max="1" step="any" '
            f'aria-label="{kind} threshold, exactly"></label>')  # fmt: skip


def _planes(result: SteerResult, before: RatesRecord, after: RatesRecord) -> str:
    shown = ""
    for risk, label in AXES.items():
        marks = [
            Mark(x, y, policy, _words(POLICIES[policy], x, y, risk))
            for policy, points in (result.frontier or {}).items()
            for p in points
            if (x := p.test["over_refusal"]) is not None and (y := p.test[risk]) is not None
        ]
        lines = result.system_lines.points
        named = [("system_lines", f"system line “{shortened(point.line, 200)}”", point.rates) for point in lines]
        named += [("before", "no dial", before), ("after", "as set", after)]
        marks += [mark for kind, name, rates in named for mark in _mark(kind, name, rates, risk)]
        counted = " and ".join(f"{before.of(name).n:,}" for name in ("over_refusal", risk))
        shown += (f"<figure>{plane(X, label, marks, live=risk)}<figcaption>{escape(label)} over {escape(X)}; "
                  f"test prompts, n = {counted}; bars: 95 %</figcaption></figure>")  # fmt: skip
    key = "".join(
        f'<li><span class="{kind}" aria-hidden="true">{mark}</span> {name}</li>' for kind, (mark, name) in KEY.items()
    )
    return f'<div class="charts">{shown}</div><ul class="legend key">{key}</ul>'


KEY = {"before": ("▲", "no dial"), "after": ("▼", "as this run set the dials"), "live": ("◆", "now"),
       "two_dials": ("●", "two dials, settings that no other beats on the prompts that choose"),
       "one_dial": ("■", "one dial, likewise"), "system_lines": ("✚", "a system line instead")}  # fmt: skip


def _mark(kind: str, name: str, rates: RatesRecord, risk: str) -> list[Mark]:
    """Return a point with its intervals; none where a rate could not be judged."""
    both = [rates.of(risk_name) for risk_name in ("over_refusal", risk)]
    if any(rate.estimate is None for rate in both):
        return []
    x, y = (rate.interval for rate in both)
    words = _words(name, x.estimate, y.estimate, risk)
    return [Mark(x.estimate, y.estimate, kind, words, (x.low, x.high), (y.low, y.high))]


def _words(name: str, over_refusal: float, other: float, risk: str) -> str:
    return f"{name}: over-refusal {over_refusal:.1%}, {risk.replace('_', ' ')} {other:.1%}"
