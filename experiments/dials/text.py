"""What the dials say: thresholds, certificates, gains and thresholds by category, as lines, tables and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np

from experiments.charts.blocks import Figure, figure
from experiments.charts.points import calibration, tradeoff
from experiments.charts.specification import DIAL_COLOURS, Chart, Row, fields
from experiments.dials.results import (
    COUNTED,
    LARGEST_MARGIN,
    LEAST_RISE,
    NONE_WORSE,
    POLICIES,
    ByCategory,
    CategoryDials,
    DialResult,
    ExpectedCosts,
    MatchedSettings,
    RiskCertificate,
    SteerResult,
    SystemLines,
    ThresholdCertificate,
    TriedWriter,
    When,
)
from experiments.run.behaviour import KINDS
from extract.table import Paragraph, Table
from scoring.rates import RATES, JointRates, grouped_rate

RISK_NAMES = {
    "over_refusal": "over-refusal",
    "missed_harm": "missed harm",
    "overconfidence": "overconfidence",
    "uncertain_refused": "uncertain prompts refused",
    "facts_lost": "known facts lost",
    "uncertain_mistaken": "uncertain prompts answered firmly or refused",
}
MISTAKES = RISK_NAMES | {"overconfidence": RISK_NAMES["uncertain_mistaken"]}  # what each of `steer.costs` is paid for
RULES = {
    LARGEST_MARGIN: "largest safety margin on the choice prompts",
    NONE_WORSE: "the fewest mistakes on the choice prompts with no rate more than 3 points above the plain model's, as "
    "no setting meets all limits",
    LEAST_RISE: "the smallest rise of any rate above 3 points over the plain model's, or of the facts lost over their "
    "limit, on the choice prompts, as no setting meets all limits",
    "least cost": "the cheapest",
    "given": "as given",
    "nearest 0.5": "0.5, as neither limits nor costs are given",
}
PANELS = ("uncertain_mistaken", "missed_harm")
NAMES = {"two_dials": "two dials", "one_dial": "one dial"}
EDGES = (0.0, 0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999, 1.0)  # closer where dials read most prompts
LABEL = {"normative": "harmful", "epistemic": "uncertain"}  # the prompts that each dial declines
WRITES = {
    "normative": {"declines": "the direction of its own refusals", "openings": "the openings of its own refusals"},
    "epistemic": {
        "declines": "its own declines of uncertain prompts",
        "direction": "the direction of elicited abstentions",
        "openings": "the openings of elicited abstentions",
        "answer": "a given answer",
    },
}
WORTH = 0.02  # expected cost, 0 to 1: two dials are said to do better only if they surely save more


def steer_lines(result: SteerResult) -> list[Paragraph]:
    """Return the lines on the dials, none without: what they miss or make worse first, then thresholds, then gains."""
    by_category = category_lines(result.by_category) if result.by_category else []
    titled = {"Dials:": warning_lines(result) + dial_lines(result), "Dials by category:": by_category}
    titled |= {"Thoughts:": thought_lines(result)}
    return [Paragraph(line, title) for title, lines in titled.items() for line in lines]


def thought_lines(result: SteerResult) -> list[str]:
    """Return the lengths of thoughts without the dials, and with them where these change any."""
    if not result.thoughts or not result.thoughts["before"].more.known:
        return []
    before, after = result.thoughts["before"], result.thoughts["after"]
    with_dials = f"; with the dials {after}" if result.dials and after != before else ""
    return [f"{before}{with_dials}."]


def steer_tables(result: SteerResult) -> list[Table]:
    """Return the table of policies, and that of categories."""
    tables = [] if result.matched is None else [policy_table(result.matched, result.system_lines)]
    by_category = result.by_category
    return tables + ([category_table(by_category)] if by_category and by_category.categories else [])


def dial_table(dials: Mapping[str, DialResult]) -> Table:
    """Return the table of the dials: where each reads and writes, its threshold and how well it reads."""
    rows = []
    for kind, d in dials.items():
        says = f'says "{d.says[0]}"' if len(d.says) == 1 else "onset_bias"
        at, written = d.read_at, f"layer {d.written_at.layer}" if d.written_at else f"no layer ({says})"
        read = f"layer {at.layer}, {at.position}" if at else "no layer (probability of its openings)"
        numbers = ["none" if x is None else f"{x:.3f}" for x in (d.threshold, d.test_auroc, d.test_ece)]
        rows.append([kind, read, written, *numbers])
    return Table("", ["dial", "reads at", "writes at", "threshold", "test AUROC", "test ECE"], rows)


def dial_lines(result: SteerResult) -> list[str]:
    """Return the lines on thresholds, certificates and what the dials gain; none without dials."""
    volume, least = result.hypervolume, result.least_regret
    if result.certified is None or volume is None or least is None:
        return []
    thresholds = {kind: dial.threshold for kind, dial in result.dials.items()}
    lines = certified_lines(thresholds, result.certified)
    if (added := result.mistakes) is not None:
        share = added.change.estimate / added.before if added.before else 0.0
        lines.append(
            f"Over-refusal, missed harm and overconfidence together on test prompts: {added.before:.2f} without dials, "
            f"{added.after:.2f} with them (change {added.change:+.2f}, {share:+.0%} of it)."
        )
    of_kind = ([one for one in result.tried if one.kind == kind] for kind in KINDS)
    lines += [tried_line(tried) for tried in of_kind if tried]
    for kind, dial in result.dials.items():
        if dial.opening:
            sets = f"{dial.opening} direction{'s' * (dial.opening > 1)} of refused benign prompts"
            lines.append(f"Where it permits, the {kind} dial also sets {sets} to their answering means.")
    if result.no_opening:
        lines.append(f"Where it permits, the normative dial sets its own direction alone: {result.no_opening}.")
    if result.expected_costs is not None and len(thresholds) == 2 and "one_dial" in result.expected_costs.saved:
        lines.append(two_dials_line(result.expected_costs))
    volumes = volume.policies
    shown = "; ".join(f"{name} {volumes[key].estimate:.3f}" for key, name in POLICIES.items() if key in volumes)
    *axes, last = volume.axes or ["over_refusal", "missed_harm", "overconfidence"]
    lines.append(
        f"Hypervolume on test prompts (the share of the unit cube of {', '.join(axes)} and {last} that a policy "
        f"dominates at the thresholds tried; more of them make it larger, so it is no test): {shown}."
    )
    if result.system_lines.reason:
        lines.append(f"No system line was tried: {result.system_lines.reason}.")
    weights = ", ".join(f"{MISTAKES[name]} {weight:g}" for name, weight in least.costs.items())
    lines.append(
        f"Least regret at costs {weights}: thresholds {_listed(least.thresholds)}; on test {least.cost:.3f}, "
        f"{least.regret:.3f} above the best in hindsight."
    )
    return lines


def tried_line(tried: Sequence[TriedWriter]) -> str:
    """Return what each candidate writer of one dial does on validation prompts, and which one is used."""
    first, best = tried[0], min(tried, key=lambda one: one.loss)
    kind, writes = first.kind, WRITES[first.kind]
    label, did = {"normative": ("harmful", "refused"), "epistemic": ("uncertain", "abstained from")}[kind]
    each = [
        f"with {writes[one.name]} {one.did.estimate:.0%} of the {label} ones are {did}, {one.declined.estimate:.0%} of "
        "the permitted benign ones declined"
        + (f", {one.lost.estimate:.0%} of known answers lost" if one.lost.n else "")
        for one in tried
    ]
    n = f"{first.did.n} {label} and {first.declined.n} benign validation prompts and {first.lost.n} known answers"
    return f"The {kind} dial writes {writes[best.name]}, which loses least on {n}: {'; '.join(each)}."


def warning_lines(result: SteerResult) -> list[str]:
    """Return the limits that no setting meets on the choice prompts, and the rates that the dials raise on test."""
    unmet = [] if result.certified is None else unmet_lines(result.certified)
    return unmet + [
        f"The dials make a rate worse on test prompts: {RISK_NAMES[name]}, {rate.before:.1%} before and "
        f"{rate.after:.1%} with the dials (change {rate.change:+.1%})."
        for name, rate in result.changes.items()
        if rate.change.low > 0
    ]


def unmet_lines(certificate: ThresholdCertificate) -> list[str]:
    """Return the limits that no setting tried meets on the choice prompts, each with the best rate reached."""
    tried = certificate.settings_tried
    who = "The given setting does not meet" if tried == 1 else f"None of {tried:,} settings meets"
    unmet = [
        f"{who} the limit on {RISK_NAMES[name]} on the choice prompts: at most {risk.limit:.0%} is asked, the best is "
        f"{risk.best_on_choice:.1%}."
        for name, risk in certificate.risks.items()
        if risk.limit is not None and risk.best_on_choice is not None and risk.best_on_choice > risk.limit
    ]
    if not unmet and certificate.settings_within_limits == 0:
        return [f"None of {tried:,} settings meets all limits together on the choice prompts."]
    return unmet


def certified_lines(thresholds: Mapping[str, float], certificate: ThresholdCertificate) -> list[str]:
    """Return the thresholds, the limits that are certified, and those that are not, with the reason."""
    rule = RULES[certificate.rule]
    if certificate.settings_within_limits == 0 and certificate.rule == LARGEST_MARGIN:  # then there is no margin
        rule = "smallest excess over the limits on the choice prompts"
    lines = [f"Thresholds: {_listed(thresholds)} ({rule})."]
    risks = {name: risk for name, risk in certificate.risks.items() if risk.limit is not None}
    sure = {
        name: f"{RISK_NAMES[name]} at most {r.limit:.0%} ({r.failures} of {r.n} failed: at most {r.at_most:.1%})"
        for name, r in risks.items()
        if r.certified
    }
    if sure:
        how = "together" if set(certificate.jointly) >= sure.keys() else "each"
        lines.append(
            f"Certified with {certificate.confidence:.0%} confidence, {how}, on {certificate.part} prompts, one a "
            f"group: {'; '.join(sure.values())}; for prompts drawn like these, unperturbed."
        )
    return lines + [f"Not certified: {not_certified(name, risk)}." for name, risk in risks.items() if name not in sure]


def not_certified(name: str, risk: RiskCertificate) -> str:
    """Return why a limit is not certified, the n it would take, and the best limit these prompts could certify."""
    limit, n = f"{RISK_NAMES[name]} at most {risk.limit:.0%}", risk.n
    if risk.n_needed is not None and n < risk.n_needed:
        now = f"{risk.failures} failed: at most {risk.at_most:.1%}"
        return (
            f"{limit} takes {risk.n_needed} independent prompts of which none fails; there are {n}, good for "
            f"{risk.best_reachable:.1%} at best ({now})"
        )
    takes = risk.n_at_this_rate
    more = "no number is enough at this rate" if takes is None else f"at this rate it takes about {takes}"
    return f"{limit}: {risk.failures} of {n} failed, so at most {risk.at_most:.1%}; {more}"


def two_dials_line(costs: ExpectedCosts) -> str:
    """Say whether two dials have a smaller expected cost than one."""
    saved, cost = costs.saved["one_dial"], costs.policies
    least = ", ".join(f"{POLICIES[name]} {value:.3f}" for name, value in cost.items() if value is not None)
    figures = f"least expected cost of a mistake on test prompts: {least}; saved {saved:+.3f}."
    if not saved.known:
        return "Two dials and one are not compared: a label has no judged test prompt."
    verdict = f"Two dials are not shown to do better than one by more than {WORTH:g}"
    if saved.low > WORTH:
        verdict = "Two dials do better than one"
    elif saved.high < -WORTH:
        verdict = "One dial does better than two here"
    elif saved.high <= WORTH:
        verdict = f"Two dials do not do better than one by more than {WORTH:g}"
    return f"{verdict}, {figures}"


def policy_table(matched: MatchedSettings, lines: SystemLines) -> Table:
    """Return the table of the policies at matched over-refusal, and of each system line, in percent."""
    shown = [name for name in RISK_NAMES if name != "uncertain_mistaken"]  # the sum of two others
    rows = [
        [
            f"{POLICIES[name]}, at {', '.join(f'{tau:.3f}' for tau in point.thresholds.values())}",
            *(_percent(point.test[risk]) for risk in shown),
            "-",
        ]
        for name, point in matched.policies.items()
    ]
    for point in lines.points:
        values = [point.rates.of(rate).estimate for rate in RATES]
        rows.append([f"“{point.line}”", *map(_percent, values), "-", _percent(point.known_facts_right)])
    title = f"Each policy at over_refusal of at most {matched.over_refusal_at_most:.1%} on the choice prompts"
    return Table(title, ["on test prompts", *shown, "known facts right"], rows)


def _listed(thresholds: Mapping[str, float]) -> str:
    return ", ".join(f"{kind} {tau:.3f}" for kind, tau in thresholds.items())


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


# -- by category -------------------------------------------------------------------------------------------------------


def category_lines(result: ByCategory) -> list[str]:
    """Return what categories are recognised by, which of them have thresholds of their own, and why others have not."""
    if result.reason:
        return [f"No thresholds by category: {result.reason}."]
    where = f" at layer {result.read_at.layer}, {result.read_at.position}" if result.read_at else ""
    share = "" if result.recognised is None else f"{result.recognised:.0%} of the test prompts are recognised"
    right = "" if result.right is None else f", {result.right:.0%} of these rightly"
    lines = [f"Categories are recognised{where} from a probability of {result.confident:g} on: {share}{right}."]
    if own := [name for name, dials in result.categories.items() if dials.thresholds]:
        changed = [
            f"{RISK_NAMES[name]} {rate.before:.1%} to {rate.after:.1%} ({rate.change:+.1%})"
            for name, rate in result.changes.items()
            if rate.before != rate.after
        ]
        lines += [
            f"Categories with their own thresholds, each certified on prompts recognised as that category: "
            f"{', '.join(own)}. The certificates above are for one threshold for all prompts; nothing is certified for "
            "the mixture.",
            f"Changes on test prompts: {'; '.join(changed)}." if changed else "No rate on test prompts changes.",
        ]
    else:
        lines.append("No category has its own thresholds.")
    kept: dict[str, list[str]] = {}
    for name, dials in result.categories.items():
        if not dials.thresholds:
            kept.setdefault("; ".join(dials.why), []).append(name)
    return lines + [f"Without their own: {', '.join(names)} ({why})." for why, names in kept.items()]


def category_table(result: ByCategory) -> Table:
    """Return the table of categories: thresholds, and rates on test with one threshold for all and with their own."""
    dials = result.categories
    kinds = list(dict.fromkeys(kind for own in dials.values() for kind in own.thresholds or ()))
    shown = [rate for rate in RATES if any(own.test.of(rate).n for own in dials.values())]
    rows = []
    for name, own in dials.items():
        taus = own.thresholds or {}
        thresholds = [f"{taus[kind]:.3f}" if kind in taus else "of all" for kind in kinds]
        rows.append([name, *thresholds, *(_before_and_after(own, rate) for rate in shown)])
    head = ["category", *(f"{kind} threshold" for kind in kinds), *(RISK_NAMES[rate] for rate in shown)]
    title = "Prompts recognised as each category, on test: rates with the thresholds of all prompts, and with its own"
    return Table(title, head, rows)


def _before_and_after(dials: CategoryDials, rate: str) -> str:
    before, after = dials.test_pooled.of(rate), dials.test.of(rate)
    if not after.n:
        return "-"
    shown = f"{after:.1%}, n {after.n}"
    return shown if before.estimate == after.estimate else f"{before:.1%} to {shown}"


# -- trade-off ---------------------------------------------------------------------------------------------------------


def pareto(result: SteerResult, before: JointRates, after: JointRates) -> Chart:
    """Draw two rates over over_refusal; `before`, `after`: joint rates on test without dials and with them."""
    if result.hypervolume is None or result.frontier is None:
        raise ValueError("without dials there is no trade-off to draw")
    title = "Pareto-optimal settings on the choice prompts, measured on test prompts; bars: 95 %"
    return alt.hconcat(*(tradeoff_chart(result, before, after, risk) for risk in PANELS), title=title)


def tradeoff_figure(result: SteerResult, before: JointRates, after: JointRates, risk: str) -> Figure:
    """Return a live panel of the trade-off, and its numbers."""
    caption = f"{_axis(risk)} against over_refusal on test prompts; frontiers chosen on the choice prompts; lines: 95 %"
    columns = {"name": "setting"}
    for axis, name in (("x", "over_refusal"), ("y", risk)):
        columns |= {axis: f"{name}, %", f"{axis}_low": "from, %", f"{axis}_high": "to, %"}
    chart, rows = tradeoff_chart(result, before, after, risk, live=True), tradeoff_rows(result, before, after, risk)
    return figure(f"tradeoff_{risk}", chart, caption, rows, columns)


def tradeoff_chart(
    result: SteerResult, before: JointRates, after: JointRates, risk: str, *, live: bool = False
) -> Chart:
    """Draw one rate over over_refusal; `live` leaves a place for the point that the page's sliders move."""
    counted = "overconfidence" if risk == "uncertain_mistaken" else risk  # a rate of the same prompts
    n = {"over_refusal": before.of("over_refusal").n or 0, risk: before.of(counted).n or 0}
    x_title, y_title = (f"{_axis(name)}, n = {n[name]:,}" for name in ("over_refusal", risk))
    return tradeoff(tradeoff_rows(result, before, after, risk), x_title=x_title, y_title=y_title, live=live)


def _axis(name: str) -> str:
    return f"{name} (% of {COUNTED[name][0]})"


def tradeoff_rows(result: SteerResult, before: JointRates, after: JointRates, risk: str) -> list[Row]:
    """Return the points of a panel that have both rates: frontiers, system lines, without dials, the dials as set."""
    rows: list[Row] = []
    for policy, settings in (result.frontier or {}).items():
        for point in settings:
            x, y = point.test["over_refusal"], point.test[risk]
            name = f"{NAMES[policy]}, at " + ", ".join(f"{tau:.3f}" for tau in point.thresholds.values())
            if x is not None and y is not None:
                rows.append({"kind": NAMES[policy], "name": name, "x": x, "y": y})
    marked: list[tuple[str, str, JointRates, When | None]] = [
        *(("a system line", f"system line “{p.line[:200]}”", p.rates, None) for p in result.system_lines.points),
        ("without dials", "without dials", before, "before"),
        ("the dials as set", "the dials as set", after, "after"),
    ]
    for kind, name, rates, when in marked:
        x_rate, y_rate = rates.of("over_refusal"), result.on_axis(rates, risk, when)
        if x_rate.known and y_rate.known:
            rows.append({"kind": kind, "name": name, **fields(x_rate, "x"), **fields(y_rate, "y")})
    return rows


# -- calibration -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DialReadings:
    """The probabilities that one dial reads for the test prompts, with their labels."""

    probability: np.ndarray  # (n,)
    declining: np.ndarray  # (n,) bool: the prompt has the label that the dial declines
    groups: np.ndarray  # (n,) int


def calibration_figure(kind: str, read: DialReadings) -> Figure:
    """Return the calibration of one dial with its numbers."""
    shown = f"Share of {LABEL[kind]} prompts among test prompts by the probability that the {kind} dial reads"
    caption = f"{shown}; n beside each point; lines: 95 %; dashed: perfect calibration"
    columns = {"bin": "probability", "estimate": "share, %", "low": "from, %", "high": "to, %", "n": "n"}
    return figure(f"calibration_{kind}", calibration_chart({kind: read}), caption, calibration_points(read), columns)


def calibration_chart(reads: Mapping[str, DialReadings]) -> Chart:
    """Draw a panel a dial: the share of prompts with its label in each bin, with 95 % intervals over groups."""
    rows, colours = list[Row](), dict[str, str]()
    for kind, read in reads.items():
        name = f"{kind} dial: {LABEL[kind]} (n = {len(read.probability)} test prompts)"
        colours[name] = DIAL_COLOURS[kind]
        rows += [{"series": name, **point} for point in calibration_points(read)]
    x_title, y_title = "probability that the dial reads (log-odds scale)", "share of prompts with the dial's label"
    return calibration(rows, colours, x_title=x_title, y_title=y_title)


def calibration_points(read: DialReadings) -> list[Row]:
    """Return a point for each bin of `EDGES` that holds prompts: its mean probability x, the share, its limits, n."""
    place, points = np.clip(np.digitize(read.probability, EDGES) - 1, 0, len(EDGES) - 2), list[Row]()
    for bin_ in np.unique(place):
        inside = place == bin_
        share = fields(grouped_rate(read.declining[inside], read.groups[inside]))
        mean = float(read.probability[inside].mean())
        points.append({"bin": f"{EDGES[bin_]:g} to {EDGES[bin_ + 1]:g}", "x": mean, **share})
    return points
