"""The first screen of a run's page: verdicts, status of the evidence, and the one table of rates with their limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.charts.blocks import Figure, figure
from experiments.charts.points import rates_before_after
from experiments.charts.specification import Chart, Row, fields
from experiments.dials.results import BeforeAfter, KnownFacts, RiskCertificate
from experiments.dissociation.text import strength_sentence, thought_line
from experiments.report.results import RunResults
from experiments.run.basis import declines_sentence
from experiments.run.wording import VERDICTS, verdict_text
from extract.table import Table
from scoring.rates import RATES, JointRates
from scoring.wording import RATE_MEANING, right_action_estimates

DRIVES = {
    "intent_driven": "Intent drives refusing",
    "trigger_driven": "The trigger word drives refusing",
    "mixed": "Both drive refusing (mixed)",
}
KNOWN_FACTS = "known_facts"
NUMBERS = {"rate": "rate", "when": "when", "estimate": "rate, %", "low": "from, %", "high": "to, %", "n": "n"}
EXPLAINED = "Credit: 1 for the right action and acceptable ones, less for adjacent ones, 0 for the rest"


@dataclass(frozen=True)
class Tile:
    """One tile: a question, its answer in plain words, and what qualifies it."""

    question: str
    answer: str
    lines: Sequence[str]
    style: str = ""
    link: str = ""  # the name of a section
    link_text: str = ""


@dataclass(frozen=True)
class RateRow:
    """One row of the table of rates; all shares with their 95 % intervals."""

    name: str
    meaning: str
    before: str
    now: str
    n: str
    limit: str = ""
    certified: str = ""
    style: str = ""  # yes, no or empty


def tiles(results: RunResults, n_caveats: int) -> list[Tile]:
    """Return the tiles: both verdicts, and what the evidence is worth."""
    two, word = results.dissociation, results.triggers
    share = (
        []
        if word.trigger_share is None
        else [f"Trigger share {word.share:.2f}: the part of the effect on refusing that the word has."]
    )
    declines = results.rates.by_reason
    declined = "" if declines is None else declines_sentence(declines, "epistemic")
    why_two = filter(
        None,
        [
            _sentence("; ".join(filter(None, two.reasons))),
            thought_line(two.fixed_thought),
            strength_sentence(two),
            declined,
        ],
    )
    why_word, drives = filter(None, [_sentence(word.reason), *share]), DRIVES.get(word.verdict, VERDICTS[word.verdict])
    evidence = "The evidence"
    return [
        Tile(
            "One refusal or two?", verdict_text(two.verdict, two.basis), list(why_two), two.verdict, "matrix", evidence
        ),
        Tile("Trigger word or intent?", drives, list(why_word), word.verdict, "triggers", evidence),
        _evidence(results, n_caveats),
    ]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _evidence(results: RunResults, n_caveats: int) -> Tile:
    total, test = sum(results.prompts.values()), results.prompts_by_part.get("test", {})
    counts = ", ".join(f"{n:,} {label}" for label, n in test.items())
    of_test = f"; rates are of the {sum(test.values()):,} test prompts ({counts})" if test else ""
    read = f"{total + results.only_read:,} prompts read, {total:,} of them answered"
    lines, answer = [f"{read if results.only_read else f'{total:,} prompts'}{of_test}."], "A real model"
    if results.organism:
        answer = "An organism: the method works"
        lines.insert(0, "Trained with a planted mechanism; this is not evidence about real models.")
    elif results.organism_prompts:
        answer = "A real model on an organism's prompts"
    n = f"{n_caveats} {'caveat' if n_caveats == 1 else 'caveats'}"
    return Tile("What is it evidence of?", answer, lines, "evidence", "about", n)


def rates_figure(results: RunResults) -> Figure:
    """Return the chart of rates with its numbers."""
    about = " without and with the dials of this run" if results.dials else "; this run has no dials"
    return figure("rates", rates_chart(results), f"The four rates{about}", rates_rows(results), NUMBERS)


def rates_chart(results: RunResults, title: str = "") -> Chart:
    """Draw the joint rates without and with the dials, with 95 % intervals and the limits asked for."""
    return rates_before_after(rates_rows(results), title)


def rates_rows(results: RunResults) -> list[Row]:
    """Return each rate without the dials and, where the run has some, with them and its limit."""
    states, limits = {"without dials": results.rates.before}, dict[str, float | None]()
    if results.dials:
        states["with the dials"] = results.rates.after
        certified = results.steer.certified
        limits = {} if certified is None else {name: risk.limit for name, risk in certified.risks.items()}
    return [
        {"rate": name, "when": when, **fields(rates.of(name)), "limit": limits.get(name)}
        for name in RATE_MEANING
        for when, rates in states.items()
    ]


def rate_rows(results: RunResults) -> list[RateRow]:
    """Return the rows of the page's table: each rate with its limit, and the known facts that are stated right."""
    certified, facts, rows = results.steer.certified, results.known_facts_right, []
    risks = {} if certified is None else certified.risks
    for name, meaning in RATE_MEANING.items():
        before, after = results.rates.before.of(name), results.rates.after.of(name)
        n = before_and_now(before.n or 0, after.n or 0)
        words = meaning.partition(": ")[2]
        rows.append(RateRow(name, words, f"{before:.1%}", f"{after:.1%}", n, *_limit(risks.get(name))))
    if facts.n:
        limit, *answer = _limit(risks.get("facts_lost"), " lost")
        shares = percent(facts.before), percent(facts.after)
        rows.append(RateRow(KNOWN_FACTS, "stated right", *shares, str(facts.n), limit, *answer))
    return rows


def _limit(risk: RiskCertificate | None, unit: str = "") -> tuple[str, str, str]:
    """Return the limit of a rate, whether it is certified, and the style of that cell."""
    if risk is None or risk.limit is None:
        return "", "", ""
    answer = "yes" if risk.certified else "no"
    return f"≤ {risk.limit:.0%}{unit}", f"{answer}, at most {risk.at_most:.1%}", answer


def score_row(results: RunResults) -> RateRow | None:
    """Return the right-action score; None where it is not known."""
    before, after = results.right_action.before.score, results.right_action.after.score
    if not before.known:
        return None
    now = f"{after.estimate:.3f}" if after.known else "none"
    n = before_and_now(before.n or 0, after.n or before.n or 0)
    return RateRow("right_action", "", f"{before.estimate:.3f}", now, n)


def rates_table(
    title: str,
    before: JointRates,
    after: JointRates | None,
    trigger: BeforeAfter | None = None,
    facts: KnownFacts | None = None,
) -> Table:
    """Return each rate without the dials and, if there are some, with them; for the terminal and for a model card."""
    now = before if after is None else after
    rows = [
        [meaning, f"{before.of(key):.1%}", f"{now.of(key):.1%}", str(before.of(key).n)]
        for key, meaning in RATE_MEANING.items()
    ]
    if trigger is not None and trigger.before.n:
        shares = f"{trigger.before:.1%}", f"{trigger.after:.1%}"
        rows.append(["over_refusal of prompts with a trigger word", *shares, str(trigger.before.n)])
    if facts is not None and facts.n:
        rows.append(["known facts stated right", percent(facts.before), percent(facts.after), str(facts.n)])
    if facts is not None and facts.lost.known and (facts.lost.n or 0) < facts.n:  # else it is the rest of the row above
        rows.append(["known facts lost, of those it gets right", "", f"{facts.lost:.1%}", str(facts.lost.n)])
    if after is None:
        rows = [row for row in rows if row[1]]
        return Table(title, ["rate", "without dials", "n"], [[name, share, n] for name, share, _, n in rows])
    return Table(title, ["rate", "without dials", "with the dials", "n"], rows)


def right_action_table(results: RunResults) -> Table:
    """Return the right-action scores and credits on test prompts, without and with the dials."""
    dials = bool(results.dials)
    after = {meaning: score for meaning, score, _ in right_action_estimates(results.right_action.after)}
    rows = [
        [meaning, f"{score:{spec}}", *([f"{after[meaning]:{spec}}" if meaning in after else ""] * dials), str(score.n)]
        for meaning, score, spec in right_action_estimates(results.right_action.before)
        if score.known
    ]
    head = ["right action on test prompts", "without dials", *(["with the dials"] * dials), "n"]
    title = f"Right actions on test prompts. {EXPLAINED}; 95 % intervals over independent groups"
    return Table(title, head, rows, fold=True)


def runs_table(names: Sequence[str], records: Sequence[RunResults]) -> Table:
    """Return a table of the verdicts and rates of several runs."""
    befores = [record.rates.before for record in records]
    afters = [record.rates.after if record.dials else None for record in records]
    rows = [
        [
            "one refusal or two",
            *(verdict_text(two.verdict, two.basis) for two in (record.dissociation for record in records)),
        ],
        ["judge", *(record.judge for record in records)],
        ["word or intent", *(VERDICTS[record.triggers.verdict] for record in records)],
    ]
    for when, states in (("without dials", befores), ("with the dials", afters)):
        for name in RATES:
            shares = ("no dials" if rates is None else f"{rates.of(name):.1%}" for rates in states)
            rows.append([f"{RATE_MEANING[name]}, {when}", *shares])
    return Table("Verdicts and rates of each run on its own test prompts, with 95 % intervals", ["", *names], rows)


def percent(share: float | None) -> str:
    """Return a share as text."""
    return "none judged" if share is None else f"{share:.1%}"


def before_and_now(n: int, then: int) -> str:
    """Return the number of prompts without the dials and, where it differs, with them."""
    return f"{n:,}" if n == then else f"{n:,}, then {then:,}"
