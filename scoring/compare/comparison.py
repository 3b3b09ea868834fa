"""`refusal compare`: paired changes of the joint rates between runs on the same prompts, with tests.

Every later run is compared with the first, prompt by prompt. A change of a rate is *shown* where McNemar's test over
groups is significant at 5 % after Holm's correction over the three rates and `uncertain_refused`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.special import gammaln

from extract.atomic_write import atomic_file, unwritable
from extract.errors import UserError
from extract.record import Record
from probes.statistics.intervals import NO_DIFFERENCE, NO_ESTIMATE, Estimate
from probes.statistics.permutation import holm
from probes.statistics.tango import tango_of_shares
from scoring.compare.paired import Flip, PairedCompletions, Transition
from scoring.ledger import Ledger, workspace
from scoring.rates import RATES, JointRates
from scoring.right_action import Adjacency, score_change
from scoring.scorecard import scorecard
from scoring.scored_file import load_scored

Move = Literal["better", "worse", "along_the_trade_off", "at_odds", "none_shown"]


class ScoredRun(Record):
    """A run: the file of its judged completions, its numbers of repeated and conflicting ids, and its joint rates."""

    run: str
    file: str
    repeated: int = 0
    conflicting: int = 0
    n: int
    rates: JointRates
    right_action: Estimate


class MatchCounts(Record):
    """Numbers of completions that two runs share, lack or label differently; `prompts`: same prompt and label."""

    prompts: int
    only_in_first: int
    only_in_second: int
    label_differs: int
    right_action_differs: int
    text_differs: int
    unjudged_in_first: int
    unjudged_in_second: int


class RateChange(Record):
    """The change of one rate on the prompts that both runs judged; the difference is second minus first."""

    first: float | None
    second: float | None
    difference: Estimate
    stopped: int  # hits of the first run only
    began: int  # hits of the second run only
    mcnemar_p: float
    mcnemar_p_holm: float
    shown: bool  # significant at 5 %, corrected over the rates


class ComparedRun(ScoredRun):
    """A later run, compared with the first."""

    matched: MatchCounts
    changes: dict[str, RateChange]
    right_action_change: Estimate
    move: Move
    transitions: tuple[Transition, ...] = ()
    flips: tuple[Flip, ...] = ()  # written to flips.jsonl, not to comparison.json


class FailedCondition(Record):
    """A condition of `--fail-if` that a run meets, or that cannot be evaluated (`known` is false)."""

    run: str
    condition: str
    known: bool
    value: float | None


class Comparison(Record):
    """The first run, and every later run compared with it."""

    first: ScoredRun
    comparisons: tuple[ComparedRun, ...]
    failed: tuple[FailedCondition, ...] = ()


def compare_runs(paths: Sequence[Path], credits: Adjacency) -> Comparison:
    """Return the comparison of each later run with the first.

    Raises:
        UserError: a run cannot be read, or shares no labelled prompt with the first.
    """
    with workspace() as connection:
        first = Ledger(connection, "a")
        described, compared = _scored(first, paths[0], credits), []
        for path in paths[1:]:
            connection.execute("DROP TABLE IF EXISTS b")
            second = Ledger(connection, "b")
            run = _scored(second, path, credits)
            compared.append(_compared(run, first, second, credits, paths[0]))
    return Comparison(first=described, comparisons=tuple(compared))


def write_comparison(comparison: Comparison, out: Path) -> None:
    """Write comparison.json, and flips.jsonl with one flipped prompt a line.

    Raises:
        UserError: `out` cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(out, error) from None
    record = comparison.to_dict()
    flips = [{"run": one["run"], **flip} for one in record["comparisons"] for flip in one.pop("flips")]
    with atomic_file(out / "comparison.json") as sink, atomic_file(out / "flips.jsonl") as lines:
        for flip in flips:
            lines.write((json.dumps(flip, ensure_ascii=False) + "\n").encode())
            lines.check()
        sink.write((json.dumps(record, indent=1, allow_nan=False) + "\n").encode())


def _scored(ledger: Ledger, path: Path, credits: Adjacency) -> ScoredRun:
    loaded = load_scored(path, ledger)
    card = scorecard(ledger, credits)
    assert card.rates is not None  # `load_scored` refuses a run without labels
    return ScoredRun(
        run=str(path),
        file=str(loaded.file),
        repeated=loaded.repeated,
        conflicting=loaded.conflicting,
        n=card.n,
        rates=card.rates,
        right_action=card.right_action.score,
    )


def _compared(run: ScoredRun, first: Ledger, second: Ledger, credits: Adjacency, first_path: Path) -> ComparedRun:
    pairs = PairedCompletions(first.connection)
    matched = _matched(pairs, first, second)
    if not matched.prompts:
        raise UserError(
            f"{first_path} and {run.run} share no labelled prompts{_why_none(pairs)}; "
            "compare completions of the same prompts"
        )
    changes = _changes(pairs)
    right = score_change(*pairs.changes(), credits)
    return ComparedRun(
        **dict(run),
        matched=matched,
        changes=changes,
        right_action_change=right,
        move=move(changes, right),
        transitions=pairs.transitions(),
        flips=pairs.flips(),
    )


def move(changes: Mapping[str, RateChange], right: Estimate = NO_ESTIMATE) -> Move:
    """Classify the change of the four rates, all of which count mistakes, so that lower is better.

    `better`: a rate fell and none rose; `worse`: the reverse; `along_the_trade_off`: one fell while another rose;
    `none_shown`: no change is significant. `uncertain_refused` counts too, since refusing uncertain prompts lowers
    overconfidence without abstaining. `at_odds`: the rates fell and so did the right-action score, or both rose: other
    wrong actions, such as gibberish or changes of topic, took the place of these mistakes.

    Args:
        right: the change of the right-action score, second minus first.
    """
    shown = [change.difference.estimate for change in changes.values() if change.shown]
    fell, rose = any(difference < 0 for difference in shown), any(difference > 0 for difference in shown)
    if fell and rose:
        return "along_the_trade_off"
    if (fell and right.high < 0) or (rose and right.low > 0):
        return "at_odds"
    return "better" if fell else "worse" if rose else "none_shown"


def _matched(pairs: PairedCompletions, first: Ledger, second: Ledger) -> MatchCounts:
    """Count shared completions, those in one run only, those labelled differently, and unjudged ones."""
    labelled = "same_label AND label IS NOT NULL"
    return MatchCounts(
        prompts=pairs.count(labelled),
        only_in_first=pairs.alone(first, second),
        only_in_second=pairs.alone(second, first),
        label_differs=pairs.count("NOT same_label"),
        right_action_differs=pairs.count("same_label AND NOT same_right"),
        text_differs=pairs.count("other_text"),
        unjudged_in_first=pairs.count(f"{labelled} AND first IS NULL"),
        unjudged_in_second=pairs.count(f"{labelled} AND second IS NULL"),
    )


def _why_none(pairs: PairedCompletions) -> str:
    if pairs.count("NOT same_label"):
        return " (they share ids, but with different labels)"
    shared = pairs.connection.execute("SELECT 1 FROM a JOIN b ON a.id = b.id AND a.sample != b.sample LIMIT 1")
    return " (they share ids, but with different values of 'sample')" if shared.fetchone() else ""


def _changes(pairs: PairedCompletions) -> dict[str, RateChange]:
    """Return the change of each rate, with p-values corrected over the rates (Holm 1979)."""
    p = {name: mcnemar(pairs.grouped(label, counts)[0]) for name, (label, counts) in RATES.items()}
    corrected = dict(zip(p, holm(list(p.values())), strict=True))
    return {name: _change(pairs, label, counts, p[name], corrected[name]) for name, (label, counts) in RATES.items()}


def _change(pairs: PairedCompletions, label: str, counts: frozenset[str], p: float, p_holm: float) -> RateChange:
    both, only_first, only_second, neither = pairs.fourfold(label, counts)
    squares = pairs.grouped(label, counts)[1]
    n = both + only_first + only_second + neither
    effective = n * n / squares if squares else None
    rose = tango_of_shares(only_second / n, only_first / n, effective) if effective else NO_DIFFERENCE
    return RateChange(
        first=(both + only_first) / n if n else None,
        second=(both + only_second) / n if n else None,
        difference=replace(rose, n=n),
        stopped=only_first,
        began=only_second,
        mcnemar_p=p,
        mcnemar_p_holm=p_holm,
        shown=p_holm < 0.05,
    )


def mcnemar(nets: Mapping[int, int]) -> float:
    """Return the exact two-sided p-value, under the null that each group is equally likely to change either way.

    With groups of one prompt this is McNemar's test (1947). Larger groups change as a whole (a sign-flip test of the
    sum), so that a large group has the same weight in the test as in the difference. No change gives 1.

    Args:
        nets: net change in hits: number of groups with that change.
    """
    sizes = Counter[int]()
    for net, groups in nets.items():
        sizes[abs(net)] += groups if net else 0
    total = sum(size * groups for size, groups in sizes.items())
    if not total:
        return 1.0
    chance = np.ones(1)  # probability of each number of hits among `total` that go up
    for size, groups in sorted(sizes.items()):
        if groups:
            up = np.zeros(size * groups + 1)
            up[::size] = _fair_coin(groups)
            exact = len(chance) * len(up) < 1e8  # a Fourier transform leaves rounding errors in the far tail
            chance = np.convolve(chance, up) if exact else _convolved_fast(chance, up)
    moved = abs(sum(net * groups for net, groups in nets.items()))
    return min(1.0, float(chance[np.abs(2 * np.arange(total + 1) - total) >= moved].sum()))


def _fair_coin(n: int) -> np.ndarray:
    """Return the probability of each number of heads among n."""
    k = np.arange(n + 1)
    chances: np.ndarray = np.exp(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) - n * np.log(2))
    return chances


def _convolved_fast(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    from scipy.signal import fftconvolve  # it takes long to import and is needed seldom

    return np.clip(fftconvolve(a, b), 0, None)
