"""pressure.json: rates, reads and limits under each perturbation; its conclusions, tables and figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

import numpy as np
from jaxtyping import Integer

from experiments.charts.points import rates_by_run
from experiments.charts.specification import Chart, fields
from experiments.dials.results import PairedChange
from experiments.dials.text import LABEL, RISK_NAMES
from experiments.run.behaviour import Kind
from extract.record import Record
from extract.table import Table
from probes.statistics.certify import n_needed, upper_limit
from probes.statistics.intervals import Estimate
from scoring.rates import RATES, JointRates

Verdict = Literal["holds", "does not hold", "not shown"]
CONTROL = "none"
MARKS: dict[Verdict, str] = {"holds": "✓", "does not hold": "✗", "not shown": "?"}


class DialUnderPressure(Record):
    """What one dial reads and does on the asked prompts."""

    auroc: Estimate  # of its read: prompts of its label against those of the other two
    declined: Estimate  # share of the prompts of its label that it declines
    declined_others: Estimate


class LimitUnderPressure(Record):
    """A limit of the run on perturbed test prompts, one a group, with exact one-sided limits of the rate there."""

    limit: float
    certified: bool  # by the run, on its unperturbed calibration prompts
    failures: int
    unjudged: int  # which count as failures in `at_most`, and not in `at_least`
    n: int
    at_least: float
    at_most: float
    verdict: Verdict

    @classmethod
    def counted(
        cls, failed: Integer[np.ndarray, " n"], limit: float, confidence: float, *, certified: bool
    ) -> LimitUnderPressure:
        """Compare independent draws, 1 failed, 0 not, -1 unjudged, with a limit (Clopper & Pearson 1934)."""
        n, failures, unjudged = len(failed), int((failed > 0).sum()), int((failed < 0).sum())
        low, high = 1 - upper_limit(n - failures, n, confidence), upper_limit(failures + unjudged, n, confidence)
        verdict: Verdict = "holds" if high <= limit else "does not hold" if low > limit else "not shown"
        counts = {"failures": failures, "unjudged": unjudged, "n": n, "at_least": low, "at_most": high}
        return cls(limit=limit, certified=certified, verdict=verdict, **counts)


class PerturbationResult(Record):
    """One perturbation, without dials (`plain`) and with them; changes are paired, on prompts judged both times."""

    name: str
    about: str
    asked: dict[str, int] = {}  # prompts by label
    unchanged: int = 0  # of these, prompts that it leaves as they are
    plain: JointRates = JointRates()
    dials: JointRates = JointRates()
    plain_change: dict[str, PairedChange] = {}  # from the control to this
    dials_change: dict[str, PairedChange] = {}
    by_dials: dict[str, PairedChange] = {}  # from no dials to the dials, both under this
    reads: dict[Kind, DialUnderPressure] = {}
    limits: dict[str, LimitUnderPressure] = {}  # by risk


class PressureResult(Record):
    """The contents of pressure.json."""

    model: str
    judge: str
    seed: int
    prompts: int  # most of each label
    confidence: float | None  # of each certificate; None: the run has none
    asked: tuple[PerturbationResult, ...]  # the control first
    left_out: dict[str, int] = {}  # perturbations that do not fit into the model's context, and the tokens they take


def conclusions(result: PressureResult) -> Iterator[str]:
    """Yield what moves most under the dials, and where the certificate does not hold."""
    moved = [(change.change, rate, one) for one in result.asked for rate, change in one.dials_change.items()]
    sure = [each for each in moved if not each[0].low <= 0 <= each[0].high]
    most = "no rate surely moves"
    if sure:
        change, rate, one = max(sure, key=lambda each: abs(each[0].estimate))
        dials, plain = (f"{of[rate].before:.0%} → {of[rate].after:.0%}" for of in (one.dials_change, one.plain_change))
        most = f"{one.name} moves {RISK_NAMES[rate]} most, {dials} (change {change:+.0%}; without dials {plain})"
    yield f"Under the dials {most}. {len(sure)} of {len(moved)} changes are surely not 0."
    cells = [(risk, one) for one in result.asked for risk, limit in one.limits.items() if limit.certified]
    if not cells or result.confidence is None:
        yield "The run certifies no limit, so there is no certificate to test."
        return
    counts, broken = Counter(one.limits[risk].verdict for risk, one in cells), dict[str, list[str]]()
    for risk, one in cells:
        if one.limits[risk].verdict == "does not hold":
            broken.setdefault(RISK_NAMES[risk], []).append(one.name)
    where = "; ".join(f"{risk} under {', '.join(names)}" for risk, names in broken.items())
    least = min(one.limits[risk].limit for risk, one in cells)
    yield (
        f"The certificate does not hold for {where or 'no rate that shows it'}. Of {len(cells)} cells it holds in "
        f"{counts['holds']} and is not shown in {counts['not shown']}: at most {least:.0%} takes "
        f"{n_needed(least, result.confidence)} prompts, none failing."
    )


def blocks(result: PressureResult) -> Iterator[str | Table]:
    """Yield the conclusions, the table, and what was left out."""
    yield from conclusions(result)
    title = (
        f"{result.model}, judged by {result.judge}; no dials → with them; certificate: ✓ holds, ✗ does not, ? not shown"
    )
    rows = []
    for one in result.asked:
        marks = {name: f" {MARKS[limit.verdict]}" for name, limit in one.limits.items() if limit.certified}
        both = ((name, one.plain.of(name), one.dials.of(name)) for name in RATES)
        rates = (f"{plain.estimate:.0%} → {dials.estimate:.0%}{marks.get(name, '')}" for name, plain, dials in both)
        reads = (f"{read.auroc.estimate:.2f}, {read.declined.estimate:.0%}" for read in one.reads.values())
        n, unjudged = sum(one.asked.values()), one.plain.unjudged + one.dials.unjudged
        rows.append([one.name, f"{n}{f', {unjudged} unjudged' if unjudged else ''}", *rates, *reads])
    kinds = [f"AUROC, declines {LABEL[kind]}" for kind in result.asked[0].reads]
    yield Table(title, ["perturbation", "n", *(rate.replace("_", " ") for rate in RATES), *kinds], rows)
    if result.left_out:
        named = ", ".join(f"{name} ({tokens:,} tokens)" for name, tokens in result.left_out.items())
        yield f"Left out, since they do not fit into the model's context: {named}."


def pressure_chart(result: PressureResult) -> Chart:
    """Draw a panel a rate: a row a perturbation, without dials and with them, with 95 % intervals."""
    return rates_by_run(
        [
            {"run": one.name, "rate": RISK_NAMES[rate], "when": when, **fields(rates.of(rate))}
            for rate in RATES
            for one in result.asked
            for when, rates in (("no dials", one.plain), ("with the dials", one.dials))
        ]
    )
