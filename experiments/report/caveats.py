"""What a reader must know before believing a run's numbers."""

from __future__ import annotations

from experiments.report.results import RunResults
from scoring.wording import RATE_MEANING

WIDE = 0.3  # of an interval: its ends lie a third of the scale apart


def reading_caveats(results: RunResults, judge: str) -> list[str]:
    """List what to keep in mind with any run's figures: few prompts, the judge's error, what was not settled.

    Args:
        judge: `rules`, or the file that names another one.
    """
    rates = {meaning: results.rates.before.of(name) for name, meaning in RATE_MEANING.items()}
    wide = [
        f"{meaning.partition(':')[0]} ({rate.n} prompts, interval {rate.high - rate.low:.0%} wide)"
        for meaning, rate in rates.items()
        if rate.high is not None and rate.low is not None and rate.high - rate.low >= WIDE
    ]
    lines = [f"Few independent prompts: {', '.join(wide)}."] if wide else []
    for name, verdict in (("dissociation", results.dissociation.verdict), ("triggers", results.triggers.verdict)):
        if verdict == "inconclusive":
            lines.append(f"The verdict of {name} is inconclusive; what would settle it is named there.")
    lines.append(
        "Rules say what each completion does; they agree with people on 93 % of XSTest's (complied or not), and the "
        "intervals do not hold that error."
        if judge == "rules"
        else f"{judge} says what each completion does; the intervals do not hold its error."
    )
    return lines


def caveats(results: RunResults) -> list[str]:
    """List what qualifies this run: an organism, absent dials, unjudged completions, weak reads, unsound writes."""
    lines = []
    if results.organism:
        lines.append("This model is an organism: trained from scratch on a generated grammar, its mechanism planted. "
                     "It shows that the method works; it is not evidence about real models.")  # fmt: skip
    if results.dials_absent:
        lines.append(f"No {' and no '.join(results.dials_absent)} dial could be built: the behaviour is too rare here.")
    if unjudged := results.rates.before.unjudged + results.rates.after.unjudged:
        lines.append(f"{unjudged} completions could not be judged and are left out of the rates.")
    for name, site in results.sites.items():
        if not site.beats_bag_of_words:
            lines.append(f"The {name} probe does not clearly beat a bag of words on these prompts "
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
