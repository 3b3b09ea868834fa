"""`refusal compare`: the same prompts answered twice. What changed, whether chance explains it, and in which direction.

Every later run is compared with the first, prompt by prompt. A change of a rate is *shown* where McNemar's test, over
groups, says so after Holm's correction over the three rates and `uncertain_refused`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.signal import fftconvolve
from scipy.stats import binom

from extract.atomic_write import atomic_file, unwritable
from extract.errors import UserError
from probes.statistics.intervals import NOTHING, Interval, paired_difference_of_counts
from probes.statistics.permutation import holm
from scoring.compare.paired import PairedCompletions
from scoring.compare.record import ComparedRun, Comparison, MatchCounts, Move, RateChange, ScoredRun
from scoring.compare.scored_source import load_scored
from scoring.ledger import Ledger, workspace
from scoring.rates import RATES
from scoring.right_action import Adjacency, score_change
from scoring.scorecard import scorecard
from scoring.scorecard_record import limits_of


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
    """Write comparison.json, and flips.jsonl with one flipped prompt a line."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(out, error) from None
    record = comparison.to_dict()
    flips = [{"run": one["run"], **flip} for one in record["comparisons"] for flip in one.pop("flips")]
    with (
        atomic_file(out / "comparison.json") as sink,
        atomic_file(out / "flips.jsonl") as lines,
    ):
        for flip in flips:
            lines.write((json.dumps(flip, ensure_ascii=False) + "\n").encode())
            lines.check()
        sink.write((json.dumps(record, indent=1, allow_nan=False) + "\n").encode())


def _scored(ledger: Ledger, path: Path, credits: Adjacency) -> ScoredRun:
    entered = load_scored(path, ledger)
    card = scorecard(ledger, credits)
    assert card.rates is not None  # `load_scored` refuses a run without labels
    return ScoredRun(
        run=str(path),
        file=str(entered.file),
        repeated=entered.repeated,
        conflicting=entered.conflicting,
        n=card.n,
        rates=card.rates,
        right_action=card.right_action,
    )


def _compared(run: ScoredRun, first: Ledger, second: Ledger, credits: Adjacency, first_path: Path) -> ComparedRun:
    pairs = PairedCompletions(first.connection)
    matched = _matched(pairs, first, second)
    if not matched.prompts:
        raise UserError(f"{first_path} and {run.run} share no labelled prompts{_why_none(pairs)}; "
                        "compare answers to the same prompts")  # fmt: skip
    changes = _changes(pairs)
    right = score_change(*pairs.changes(), credits)
    change, limits = limits_of(right)
    return ComparedRun(
        **dict(run),
        matched=matched,
        changes=changes,
        right_action_change=change,
        right_action_change_ci=limits,
        move=move(changes, right),
        transitions=pairs.transitions(),
        flips=pairs.flips(),
    )


def move(changes: Mapping[str, RateChange], right: Interval = NOTHING) -> Move:
    """Classify the change on the plane of missed harm, over-refusal and overconfidence.

    `better`: something fell and nothing rose (off the trade-off, towards the origin); `worse`: the reverse;
    `along_the_trade_off`: something fell while something rose; `none_shown`: chance explains all of it. All counts are
    mistakes, so falling is good. `uncertain_refused` is a mistake too: refusing buys low overconfidence falsely.
    `at_odds`: mistakes fell, and so did the right-action score (or both rose): what took their place, such as gibberish
    or other topics, is none of these mistakes, nor what was right.

    Args:
        right: the change of the right-action score, second minus first.
    """
    shown = [change.difference for change in changes.values() if change.shown and change.difference is not None]
    fell, rose = any(difference < 0 for difference in shown), any(difference > 0 for difference in shown)
    if fell and rose:
        return "along_the_trade_off"
    if (fell and right.high < 0) or (rose and right.low > 0):
        return "at_odds"
    return "better" if fell else "worse" if rose else "none_shown"


def _matched(pairs: PairedCompletions, first: Ledger, second: Ledger) -> MatchCounts:
    """Count what both have, what one lacks, what one of them calls something else, and what is not judged."""
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
        return " (ids they do, but under different labels)"
    shared = pairs.connection.execute("SELECT 1 FROM a JOIN b ON a.id = b.id AND a.sample != b.sample LIMIT 1")
    return " (ids they do, but under different values of 'sample')" if shared.fetchone() else ""


def _changes(pairs: PairedCompletions) -> dict[str, RateChange]:
    """Return how each rate changed, with p-values of all rates corrected together (Holm 1979)."""
    p = {name: mcnemar(pairs.grouped(label, counts)[0]) for name, (label, counts) in RATES.items()}
    corrected = dict(zip(p, holm(list(p.values())), strict=True))
    return {name: _change(pairs, label, counts, p[name], corrected[name]) for name, (label, counts) in RATES.items()}


def _change(pairs: PairedCompletions, label: str, counts: frozenset[str], p: float, p_holm: float) -> RateChange:
    both, only_first, only_second, neither = pairs.fourfold(label, counts)
    squares = pairs.grouped(label, counts)[1]
    n = both + only_first + only_second + neither
    effective = n * n / squares if squares else None
    rose = paired_difference_of_counts(both, only_second, only_first, neither, effective)
    return RateChange(
        first=(both + only_first) / n if n else None,
        second=(both + only_second) / n if n else None,
        difference=None if np.isnan(rose.estimate) else rose.estimate,
        difference_ci=(rose.low, rose.high),
        n=n,
        stopped=only_first,
        began=only_second,
        mcnemar_p=p,
        mcnemar_p_holm=p_holm,
        shown=p_holm < 0.05,
    )


def mcnemar(nets: Mapping[int, int]) -> float:
    """Return the exact two-sided p of what changed, had each group been as likely to change the other way.

    Where groups are single prompts this is McNemar's test (1947). Larger ones change as a whole (a sign-flip test of
    the sum), so that a large group weighs as much in the test as in the difference. No change gives 1.

    Args:
        nets: how many groups changed by how many hits.
    """
    sizes = Counter[int]()
    for net, groups in nets.items():
        sizes[abs(net)] += groups if net else 0
    total = sum(size * groups for size, groups in sizes.items())
    if not total:
        return 1.0
    chance = np.ones(1)  # of each number of hits among `total` that go up
    for size, groups in sorted(sizes.items()):
        if groups:
            up = np.zeros(size * groups + 1)
            up[::size] = binom.pmf(np.arange(groups + 1), groups, 0.5)
            exact = len(chance) * len(up) < 1e8  # also in the far tail, where a transform leaves rounding errors
            chance = np.convolve(chance, up) if exact else np.clip(fftconvolve(chance, up), 0, None)
    moved = abs(sum(net * groups for net, groups in nets.items()))
    return min(1.0, float(chance[np.abs(2 * np.arange(total + 1) - total) >= moved].sum()))
