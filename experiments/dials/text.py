"""The dials' thresholds and what they buy, in words: for the terminal and the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scoring.rates import RATE_OF

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


def steer_lines(record: Mapping[str, Any]) -> list[str]:
    """Return every line on thresholds, certificates and what two dials buy; none without dials."""
    if not record.get("certified"):
        return []
    return [*certified_lines(record), *volume_lines(record), regret_line(record["least_regret"])]


def certified_lines(record: Mapping[str, Any]) -> list[str]:
    """Say where the thresholds stand, what is certified of them, and what is not and why."""
    certified = record["certified"]
    stand = ", ".join(f"{kind} {dial['threshold']:.3f}" for kind, dial in record["dials"].items())
    lines = [f"Thresholds: {stand} ({RULES[certified['rule']]})."]
    risks = {name: risk for name, risk in certified["risks"].items() if risk["limit"] is not None}
    sure = [f"{RISK_NAMES[name]} at most {risk['limit']:.0%} ({risk['failures']} of {risk['n']} failed: at most "
            f"{risk['at_most']:.1%})" for name, risk in risks.items() if risk["certified"]]  # fmt: skip
    confidence = f"{certified['confidence']:.0%} confidence"
    if sure:
        together = (
            "together" if set(certified["jointly"]) >= {k for k, r in risks.items() if r["certified"]} else "each"
        )
        lines.append(f"Certified with {confidence}, {together}, on {certified['part']} prompts, one a group: "
                     f"{'; '.join(sure)}.")  # fmt: skip
    return lines + [f"Not certified: {not_certified(name, risk)}." for name, risk in risks.items()
                    if not risk["certified"]]  # fmt: skip


def not_certified(name: str, risk: Mapping[str, Any]) -> str:
    """Say why a limit is not certified, the n it would take, and the best reachable with the data at hand."""
    limit, n = f"{RISK_NAMES[name]} at most {risk['limit']:.0%}", risk["n"]
    if n < risk["n_needed"]:
        best, now = f"{risk['best_reachable']:.1%}", f"{risk['failures']} failed: at most {risk['at_most']:.1%}"
        return (f"{limit} takes {risk['n_needed']} independent prompts of which none fails; there are {n}, good for "
                f"{best} at best ({now})")  # fmt: skip
    more = "no number would do at this rate" if risk["n_at_this_rate"] is None else (
        f"at this rate it takes about {risk['n_at_this_rate']}")  # fmt: skip
    return f"{limit}: {risk['failures']} of {n} failed, so at most {risk['at_most']:.1%}; {more}"


def volume_lines(record: Mapping[str, Any]) -> list[str]:
    """Compare the policies by the volume that each dominates."""
    volume = record["hypervolume"]
    shown = "; ".join(f"{name} {interval(volume[key])}" for key, name in POLICIES.items() if key in volume)
    lines = [f"Share of the cube of over-refusal, missed harm and overconfidence kept clear on test prompts: {shown}."]
    if "one_dial" in volume["two_minus"] and len(record["dials"]) == 2:
        lines.append(against_one(volume["two_minus"]["one_dial"]))
    if reason := record["system_lines"]["reason"]:
        lines.append(f"No system line was tried: {reason}.")
    return lines


def against_one(difference: Mapping[str, float]) -> str:
    """Say whether two dials buy anything over one."""
    if difference["low"] > WORTH:
        return f"Two dials buy more than one: {signed(difference)} of the cube."
    if difference["high"] < -WORTH:
        return f"One dial does better than two here: {signed(difference)} of the cube."
    return f"Two dials buy nothing over one, or less than {WORTH:g} of the cube: {signed(difference)}."


def regret_line(record: Mapping[str, Any]) -> str:
    """Say where regret is least, for the given costs."""
    weights = ", ".join(f"{RISK_NAMES[name]} {weight:g}" for name, weight in record["costs"].items())
    stand = ", ".join(f"{kind} {tau:.3f}" for kind, tau in record["thresholds"].items())
    return (f"Least regret at costs {weights}: thresholds {stand}; on test {record['cost']:.3f}, "
            f"{record['regret']:.3f} above the best in hindsight.")  # fmt: skip


def interval(record: Mapping[str, float]) -> str:
    """Return a share with its interval."""
    return f"{record['estimate']:.3f} [{record['low']:.3f}, {record['high']:.3f}]"


def signed(record: Mapping[str, float]) -> str:
    """Return a difference with its interval."""
    return f"{record['estimate']:+.3f} [{record['low']:+.3f}, {record['high']:+.3f}]"


def point_rows(record: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the table of policies at matched declining, and under each system line."""
    head = ["on test prompts", *RISK_NAMES.values()]
    rows = [[f"{POLICIES[name]}, {_thresholds(point)}", *(_percent(point["test"][risk]) for risk in RISK_NAMES)]
            for name, point in record["matched"].items() if name in POLICIES]  # fmt: skip
    for point in record["system_lines"]["points"]:
        values = [point["rates"][rate] for rate in RATE_OF.values()]
        rows.append([f"“{point['line']}”", *map(_percent, values), f"{_percent(point['known_facts_right'])} right"])
    return head, rows


def _thresholds(point: Mapping[str, Any]) -> str:
    return "at " + ", ".join(f"{tau:.3f}" for tau in point["thresholds"].values())


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
