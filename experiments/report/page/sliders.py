"""The threshold sliders, the rates at their thresholds, and the trade-off charts."""

from __future__ import annotations

from html import escape

from experiments.dials.results import SteerResult, When
from experiments.dials.text import POLICIES
from experiments.report.markup import escaped, shortened
from experiments.report.page.drawing import ChartPoint, share_chart
from extract.record import Record
from scoring.estimate import Estimate, Limits
from scoring.rates import RatesRecord
from scoring.wording import RATE_MEANING, RIGHT_ACTION_MEANING

AXES = {
    "uncertain_mistaken": "uncertain_mistaken (% of uncertain)",
    "missed_harm": "missed_harm (% of harmful)",
}
X = "over_refusal (% of benign)"


class Preset(Record):
    """A named pair of thresholds, set by a button."""

    name: str


class Controls(Record):
    """The part of the page's payload that the controls show."""

    dials: list[str] = []
    band: float = 0.0
    presets: list[Preset] = []
    commands: dict[str, str] = {}


def sliders(controls: Controls, result: SteerResult, before: RatesRecord, after: RatesRecord) -> str:
    """Return the controls, the rates, the commands and the charts; an empty string for a run without dials.

    Args:
        before, after: joint rates of the test prompts without and with the dials.
    """
    if not controls.dials:
        return ""
    moved = "".join(_slider(kind) for kind in controls.dials)
    presets = "".join(
        f'<button type="button" class="preset" data-preset="{i}">{escaped(preset.name)}</button>'
        for i, preset in enumerate(controls.presets)
    )
    rows = "".join(
        f'<tr data-rate="{name}"><th scope="row">{escape(meaning)}</th><td class="before"></td><td class="now"></td>'
        '<td class="n"></td></tr>'
        for name, meaning in [*RATE_MEANING.items(), ("known_facts", "known facts stated right"),
                              ("right_action", RIGHT_ACTION_MEANING)]
    )  # fmt: skip
    commands = "".join(
        f'<p class="command"><code data-command="{name}"></code> <button type="button" class="copy">Copy</button></p>'
        for name in controls.commands
    )
    band = controls.band
    decides = "A dial declines at or above its threshold and permits below it"
    if band:
        decides = (
            f"A dial declines from {band:g} above its threshold on and permits from {band:g} below it; between, in its "
            "dead band, it leaves the model unchanged"
        )
    return f"""<p>{decides}. The completion of each test prompt
under every decision of the dials was generated, so these rates are exact. Presets were set on the choice prompts.</p>
<div class="controls sliders" role="group" aria-label="Thresholds">{moved}</div>
<p class="presets">{presets}</p>
<p class="current-rates" role="status"></p>
<div class="wide"><table class="live-rates">
<caption>Rates on test prompts (95 % intervals over independent groups)</caption>
<thead><tr><th scope="col">rate</th><th scope="col">without dials</th><th scope="col">at these thresholds</th>
<th scope="col">n</th></tr></thead><tbody>{rows}</tbody></table></div>
{commands}{_charts(result, before, after)}"""


def _slider(kind: str) -> str:
    return (f'<label>{kind} threshold <input type="range" class="slider" data-kind="{kind}" min="0" step="1">'
            f'<input type="number" class="exact" data-kind="{kind}" min="0" max="1" step="any" '
            f'aria-label="{kind} threshold, exactly"></label>')  # fmt: skip


def _charts(result: SteerResult, before: RatesRecord, after: RatesRecord) -> str:
    shown = ""
    for risk, label in AXES.items():
        points = [
            ChartPoint(x, y, policy, _words(POLICIES[policy], x, y, risk))
            for policy, settings in (result.frontier or {}).items()
            for p in settings
            if (x := p.test["over_refusal"]) is not None and (y := p.test[risk]) is not None
        ]
        lines = result.system_lines.points
        named: list[tuple[str, str, RatesRecord, When | None]] = [
            ("system_lines", f"system line “{shortened(point.line, 200)}”", point.rates, None) for point in lines
        ]
        named += [("before", "without dials", before, "before"), ("after", "thresholds of this run", after, "after")]
        points += [
            point
            for kind, name, rates, when in named
            for point in _point(kind, name, rates.of("over_refusal"), result.on_axis(rates, risk, when), risk)
        ]
        counted = " and ".join(f"{result.on_axis(before, name).n or 0:,}" for name in ("over_refusal", risk))
        shown += (f"<figure>{share_chart(X, label, points, live=risk)}<figcaption>{escape(label)} against {escape(X)}; "
                  f"test prompts, n = {counted}; bars: 95 %</figcaption></figure>")  # fmt: skip
    key = "".join(
        f'<li><span class="{kind}" aria-hidden="true">{mark}</span> {name}</li>' for kind, (mark, name) in KEY.items()
    )
    return f'<div class="charts">{shown}</div><ul class="legend key">{key}</ul>'


KEY = {"before": ("▲", "without dials"), "after": ("▼", "thresholds of this run"), "live": ("◆", "these thresholds"),
       "two_dials": ("●", "two dials: Pareto frontier on the choice prompts"),
       "one_dial": ("■", "one dial: the same frontier"), "system_lines": ("✚", "a system line, no dials")}  # fmt: skip


def _point(kind: str, name: str, over_refusal: Estimate, other: Estimate, risk: str) -> list[ChartPoint]:
    """Return a point with the intervals it has; none where a rate has no judged completion."""
    if over_refusal.estimate is None or other.estimate is None:
        return []
    words = _words(name, over_refusal.estimate, other.estimate, risk)
    return [ChartPoint(over_refusal.estimate, other.estimate, kind, words, _limits(over_refusal), _limits(other))]


def _limits(rate: Estimate) -> Limits | None:
    return None if rate.low is None or rate.high is None else (rate.low, rate.high)


def _words(name: str, over_refusal: float, other: float, risk: str) -> str:
    return f"{name}: over_refusal {over_refusal:.1%}, {risk} {other:.1%}"
