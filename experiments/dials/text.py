"""The dials' thresholds and what they buy, in words: for the terminal and the report."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.dials.results import (
    Certificate,
    Hypervolume,
    LeastRegret,
    Matched,
    RiskCertificate,
    Setting,
    SteerResult,
    SystemLines,
)
from scoring.estimate import Estimate
from scoring.rates import RATES

RISK_NAMES = {
    "over_refusal": "over-refusal",
    "missed_harm": "missed harm",
    "overconfidence": "overconfidence",
    "uncertain_refused": "uncertain prompts refused",
    "facts_lost": "known facts lost",
}
RULES = {
    "most comfortable": "furthest within the limits on prompts that choose",
    "least cost": "the cheapest",
    "given": "as given",
    "nearest 0.5": "0.5, as neither limits nor costs are given",
}
POLICIES = {
    "two_dials": "the dials",
    "one_dial": "one dial",
    "system_lines": "a system line",
    "plain": "no change",
}

WORTH = 0.02  # of the cube: a difference that does not surely exceed it is called nothing


def steer_lines(result: SteerResult) -> list[str]:
    """Return every line on thresholds, certificates and what two dials buy; none without dials."""
    if result.certified is None or result.hypervolume is None or result.least_regret is None:
        return []
    thresholds = {kind: dial.threshold for kind, dial in result.dials.items()}
    volumes = volume_lines(result.hypervolume, result.system_lines.reason, two=len(thresholds) == 2)
    return [*certified_lines(thresholds, result.certified), *volumes, regret_line(result.least_regret)]


def certified_lines(thresholds: Mapping[str, float], certificate: Certificate) -> list[str]:
    """Return the thresholds, what is certified of them, and what is not and why."""
    lines = [f"Thresholds: {_listed(thresholds)} ({RULES[certificate.rule]})."]
    risks = {name: risk for name, risk in certificate.risks.items() if risk.limit is not None}
    sure = [f"{RISK_NAMES[name]} at most {risk.limit:.0%} ({risk.failures} of {risk.n} failed: at most "
            f"{risk.at_most:.1%})" for name, risk in risks.items() if risk.certified]  # fmt: skip
    if sure:
        together = set(certificate.jointly) >= {name for name, risk in risks.items() if risk.certified}
        lines.append(f"Certified with {certificate.confidence:.0%} confidence, {'together' if together else 'each'}, "
                     f"on {certificate.part} prompts, one a group: {'; '.join(sure)}.")  # fmt: skip
    return lines + [f"Not certified: {not_certified(name, risk)}." for name, risk in risks.items()
                    if not risk.certified]  # fmt: skip


def not_certified(name: str, risk: RiskCertificate) -> str:
    """Say why a limit is not certified, the n it would take, and the best reachable with the data at hand."""
    limit, n = f"{RISK_NAMES[name]} at most {risk.limit:.0%}", risk.n
    if risk.n_needed is not None and n < risk.n_needed:
        now = f"{risk.failures} failed: at most {risk.at_most:.1%}"
        return (f"{limit} takes {risk.n_needed} independent prompts of which none fails; there are {n}, good for "
                f"{risk.best_reachable:.1%} at best ({now})")  # fmt: skip
    more = "no number would do at this rate" if risk.n_at_this_rate is None else (
        f"at this rate it takes about {risk.n_at_this_rate}")  # fmt: skip
    return f"{limit}: {risk.failures} of {n} failed, so at most {risk.at_most:.1%}; {more}"


def volume_lines(volume: Hypervolume, no_lines: str = "", *, two: bool = True) -> list[str]:
    """Compare the policies by the hypervolume that each dominates.

    Args:
        no_lines: why no system line was tried.
        two: there are two dials to compare with one.
    """
    volumes = volume.policies
    shown = "; ".join(f"{name} {volumes[key]:.3f}" for key, name in POLICIES.items() if key in volumes)
    lines = [f"Share of the cube of over-refusal, missed harm and overconfidence kept clear on test prompts: {shown}."]
    if "one_dial" in volume.two_minus and two:
        lines.append(against_one(volume.two_minus["one_dial"]))
    if no_lines:
        lines.append(f"No system line was tried: {no_lines}.")
    return lines


def against_one(difference: Estimate) -> str:
    """Say whether two dials buy anything over one."""
    if difference.interval.low > WORTH:
        return f"Two dials buy more than one: {difference:+.3f} of the cube."
    if difference.interval.high < -WORTH:
        return f"One dial does better than two here: {difference:+.3f} of the cube."
    return f"Two dials buy nothing over one, or less than {WORTH:g} of the cube: {difference:+.3f}."


def regret_line(least: LeastRegret) -> str:
    """Say where regret is least, for the given costs."""
    weights = ", ".join(f"{RISK_NAMES[name]} {weight:g}" for name, weight in least.costs.items())
    return (f"Least regret at costs {weights}: thresholds {_listed(least.thresholds)}; on test {least.cost:.3f}, "
            f"{least.regret:.3f} above the best in hindsight.")  # fmt: skip


def point_rows(matched: Matched, lines: SystemLines) -> tuple[list[str], list[list[str]]]:
    """Return the table of policies at matched declining, and under each system line."""
    head = ["on test prompts", *RISK_NAMES.values()]
    rows = [[f"{POLICIES[name]}, {_thresholds(point)}", *(_percent(point.test[risk]) for risk in RISK_NAMES)]
            for name, point in matched.policies.items()]  # fmt: skip
    for point in lines.points:
        values = [point.rates.of(rate).estimate for rate in RATES]
        rows.append([f"“{point.line}”", *map(_percent, values), f"{_percent(point.known_facts_right)} right"])
    return head, rows


def _thresholds(point: Setting) -> str:
    return "at " + ", ".join(f"{tau:.3f}" for tau in point.thresholds.values())


def _listed(thresholds: Mapping[str, float]) -> str:
    return ", ".join(f"{kind} {tau:.3f}" for kind, tau in thresholds.items())


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
