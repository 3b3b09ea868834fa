"""Results in words a newcomer understands, for the report and the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from extract.record import Record
from probes.statistics.intervals import Interval
from scoring.estimate import Limits
from scoring.rates import RatesRecord
from scoring.wording import RATE_MEANING

VERDICTS = {
    "double_dissociation": "Two mechanisms (double dissociation)",
    "single_dissociation_normative": "Only refusing shows a mechanism of its own (single dissociation)",
    "single_dissociation_epistemic": "Only abstaining shows a mechanism of its own (single dissociation)",
    "shared_knob": "One shared knob",
    "no_effect": "No effect, ablating one layer from the last prompt token on",
    "intent_driven": "Intent-driven",
    "trigger_driven": "Trigger-driven",
    "mixed": "Mixed",
    "not_applicable": "Not applicable",
    "inconclusive": "Inconclusive",
}


class Verdict(Record):
    """What a verdict's part of results.json gives to put into words."""

    verdict: str
    reason: str | None = None
    reasons: tuple[str, ...] | None = None
    trigger_share: float | None = None
    trigger_share_ci: Limits | None = None


class Site(Record):
    """A read site's AUROC, and that of a bag of words on the same prompts."""

    auroc: float | None = None
    bag_of_words_auroc: float | None = None
    beats_bag_of_words: bool


class Write(Record):
    """How a write direction was found."""

    available: bool
    within_label: bool = True
    meets_selection_rules: bool = True


class RatesBeforeAfter(Record):
    """The joint rates with no dial and under the dials."""

    before: RatesRecord
    after: RatesRecord


class ResultsInWords(Record):
    """The parts of results.json that its caveats are about."""

    organism: bool = False
    dials_absent: tuple[str, ...] = ()
    rates: RatesBeforeAfter
    sites: dict[str, Site] = {}
    writes: dict[str, Write] = {}
    dissociation: Verdict = Verdict(verdict="not_applicable")
    triggers: Verdict = Verdict(verdict="not_applicable")


def verdict_sentence(found: Verdict) -> str:
    """Return a verdict with its reasons, and the trigger share where there is one."""
    reasons = found.reasons or (found.reason or "",)
    text = f"{VERDICTS[found.verdict]}: {'; '.join(reason for reason in reasons if reason)}."
    if found.trigger_share is not None and found.trigger_share_ci is not None:
        text += f" Trigger share {Interval(found.trigger_share, *found.trigger_share_ci):.2f}."
    return text


def strength_sentence(dissociation: Mapping[str, Any]) -> str:
    """Say how much more each direction's ablation stops its own way of declining than the other's does."""
    found = dissociation.get("contrasts") or {}
    told = [
        f"{100 * c['estimate']:.0f} points more of the {own} [{100 * c['low']:.0f}, {100 * c['high']:.0f}]"
        for own, kind in (("refusals", "normative"), ("abstentions", "epistemic"))
        if (c := found.get(f"own_minus_other_on_{kind}")) and c["estimate"] is not None
    ]
    return f"Ablating its own direction stops {' and '.join(told)} than ablating the other." if told else ""


WIDE = 0.3  # of an interval: what it holds could be told a third of the scale apart


def reading_caveats(results: ResultsInWords, judge: str) -> list[str]:
    """List what to keep in mind with any run's figures: few prompts, the judge's error, what was not settled.

    Args:
        judge: `rules`, or the file that names another one.
    """
    wide = []
    for name, meaning in RATE_MEANING.items():
        rate = results.rates.before.of(name)
        width = rate.interval.high - rate.interval.low
        if width >= WIDE:
            wide.append(f"{meaning.partition(':')[0]} ({rate.n} prompts, interval {width:.0%} wide)")
    lines = [f"Few independent prompts: {', '.join(wide)}."] if wide else []
    for name, found in (("dissociation", results.dissociation), ("triggers", results.triggers)):
        if found.verdict == "inconclusive":
            lines.append(f"The verdict of {name} is inconclusive; what would settle it is named there.")
    lines.append(
        "Rules say what each completion does; they agree with people on 93 % of XSTest's (complied or not), and the "
        "intervals do not hold that error."
        if judge == "rules"
        else f"{judge} says what each completion does; the intervals do not hold its error."
    )
    return lines


FACTORS = {"asker": "Who asks", "system": "The system line", "earlier_turns": "What was said before the last turn"}
MOVES = {True: "moves refusing", False: "does not move refusing", None: "is not known to move refusing"}


def factor_lines(triggers: dict[str, Any], *, notable: bool = False) -> list[str]:
    """Say of each factor whether it moves refusing, and whether the last turn alone suffices to tell harm.

    Args:
        notable: only what a reader of the verdict alone would miss.
    """
    lines = [
        f"{FACTORS[name]} {MOVES[record['moves']]}: {record['reason']}."
        if record["applicable"]
        else f"{record['reason'].capitalize()}."
        for name, record in triggers.get("factors", {}).items()
        if record["moves"] or not notable
    ]
    alone = triggers.get("last_turn_alone")
    if alone and alone["applicable"] and (alone["sufficient"] is False or not notable):
        judged = {True: "suffices", False: "is insufficient", None: "was not judged"}[alone["sufficient"]]
        lines.append(f"Reading the last turn alone {judged}: {alone['reason']}.")
    return lines


def independence_lines(independence: dict[str, Any]) -> list[str]:
    """Say, a line each way, how far ablating one write direction moves the stream along the other."""
    lines = []
    for name, record in independence.items():
        ablated, watched = name.removeprefix("ablate_").split("_watch_")
        moved, cosine = record["projection"], record["cosine"]
        if moved["p_null"] is None:
            continue
        beyond = "more" if moved["p_null"] <= 0.05 else "no more"
        of_own = "" if moved["share"] is None else f"{moved['share']:.0%} of its own move, "
        lines.append(
            f"Ablating the {ablated} direction moves the stream along the {watched} one by {moved['change']:.2f} of "
            f"the gap between declining and answering ({of_own}cosine by {cosine['change']:.2f}): {beyond} than "
            "permuted-label directions do "
            f"(95th percentile {moved['null_95th_percentile']:.2f}, p = {moved['p_null']:.2f})."
        )
    return lines


def caveats(results: ResultsInWords) -> list[str]:
    """List what a reader must know before believing the numbers."""
    lines = []
    if results.organism:
        lines.append("This model is an organism: trained from scratch on a generated grammar, its mechanism planted. "
                     "It shows that the method works; it is not evidence about real models.")  # fmt: skip
    if results.dials_absent:
        lines.append(f"No {' and no '.join(results.dials_absent)} dial could be built: the behaviour is too rare here.")
    if unjudged := results.rates.before.unjudged + results.rates.after.unjudged:
        lines.append(f"{unjudged} completions could not be judged and are left out of the rates.")
    for kind, site in results.sites.items():
        if not site.beats_bag_of_words:
            lines.append(f"The {kind} probe does not clearly beat a bag of words on these prompts "
                         f"(AUROC {site.auroc:.2f} against {site.bag_of_words_auroc:.2f}).")  # fmt: skip
    for kind, write in results.writes.items():
        if write.available and not write.within_label:
            lines.append(f"The {kind} write direction contrasts two labels, since the model does not do both within "
                         "one: it may carry what the prompts are about as well as declining.")  # fmt: skip
        if write.available and not write.meets_selection_rules:
            lines.append(
                f"No locus met the selection rules for the {kind} write direction; the least bad one is shown."
            )
    return lines


def dependence_lines(dissociation: Mapping[str, Any]) -> list[str]:
    """Say whether the two write directions are independent, which is another question than the verdict's."""
    found = dissociation.get("dependence")
    if found is None:
        return []
    low, high = found["cosine_ci"]
    said = f"Beside the verdict: the two write directions lie at cosine {found['cosine']:.2f} [{low:.2f}, {high:.2f}]"
    moved = [name.removeprefix("ablate_").replace("_watch_", " moves the ") for name in found["moved_under_ablation"]]
    if moved:
        said += f"; ablating the {', and the '.join(moved)} one more than permuted-label directions do"
    return [said + ("; so they are not independent." if found["dependent"] else ", and neither moves the other.")]
