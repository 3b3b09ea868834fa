"""Text of the dials' thresholds, certificates and trade-off, for the terminal and the report."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.dials.results import (
    LARGEST_MARGIN,
    Certificate,
    Hypervolume,
    LeastRegret,
    MatchedSettings,
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
    LARGEST_MARGIN: "largest safety margin on the choice prompts",
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

WORTH = 0.02  # hypervolume: a difference that is not surely larger is reported as no gain


def steer_lines(result: SteerResult) -> list[str]:
    """Return the lines on thresholds, certificates and hypervolumes; none without dials."""
    if result.certified is None or result.hypervolume is None or result.least_regret is None:
        return []
    thresholds = {kind: dial.threshold for kind, dial in result.dials.items()}
    volumes = hypervolume_lines(result.hypervolume, result.system_lines.reason, two=len(thresholds) == 2)
    return [*certified_lines(thresholds, result.certified), *volumes, regret_line(result.least_regret)]


def certified_lines(thresholds: Mapping[str, float], certificate: Certificate) -> list[str]:
    """Return the thresholds, the limits that are certified, and those that are not, with the reason."""
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
    """Return why a limit is not certified, the n it would take, and the best limit these prompts could certify."""
    limit, n = f"{RISK_NAMES[name]} at most {risk.limit:.0%}", risk.n
    if risk.n_needed is not None and n < risk.n_needed:
        now = f"{risk.failures} failed: at most {risk.at_most:.1%}"
        return (f"{limit} takes {risk.n_needed} independent prompts of which none fails; there are {n}, good for "
                f"{risk.best_reachable:.1%} at best ({now})")  # fmt: skip
    more = "no number is enough at this rate" if risk.n_at_this_rate is None else (
        f"at this rate it takes about {risk.n_at_this_rate}")  # fmt: skip
    return f"{limit}: {risk.failures} of {n} failed, so at most {risk.at_most:.1%}; {more}"


def hypervolume_lines(volume: Hypervolume, no_lines: str = "", *, two: bool = True) -> list[str]:
    """Compare the policies by hypervolume.

    Args:
        no_lines: why no system line was tried; empty where some were.
        two: there are two dials, to be compared with one.
    """
    volumes = volume.policies
    shown = "; ".join(f"{name} {volumes[key]:.3f}" for key, name in POLICIES.items() if key in volumes)
    lines = [
        "Hypervolume on test prompts (the share of the unit cube of over_refusal, missed_harm and overconfidence that "
        f"a policy dominates): {shown}."
    ]
    if "one_dial" in volume.two_minus and two:
        lines.append(two_dials_line(volume.two_minus["one_dial"]))
    if no_lines:
        lines.append(f"No system line was tried: {no_lines}.")
    return lines


def two_dials_line(difference: Estimate) -> str:
    """Say whether two dials have a larger hypervolume than one."""
    if difference.interval.low > WORTH:
        return f"Two dials do better than one: hypervolume {difference:+.3f}."
    if difference.interval.high < -WORTH:
        return f"One dial does better than two here: hypervolume {difference:+.3f}."
    return f"Two dials do not do better than one by more than {WORTH:g}: hypervolume {difference:+.3f}."


def regret_line(least: LeastRegret) -> str:
    """Return the setting of least regret for the given costs."""
    weights = ", ".join(f"{RISK_NAMES[name]} {weight:g}" for name, weight in least.costs.items())
    return (f"Least regret at costs {weights}: thresholds {_listed(least.thresholds)}; on test {least.cost:.3f}, "
            f"{least.regret:.3f} above the best in hindsight.")  # fmt: skip


def point_rows(matched: MatchedSettings, lines: SystemLines) -> tuple[list[str], list[list[str]]]:
    """Return the table of the policies at matched over-refusal, and of each system line."""
    head = ["on test prompts", *RISK_NAMES]
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
