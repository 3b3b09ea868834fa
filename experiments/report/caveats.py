"""Caveats: limits of the results of a run, in sentences for the report and the terminal."""

from __future__ import annotations

from experiments.report.results import RunResults
from experiments.run.config import QUESTIONS
from experiments.run.organism_prompts import warning
from scoring.wording import RATE_MEANING

JUDGES = {  # how far a judge agreed with people
    "rules": " On models that they were not written for they agreed with people on 92 % of XSTest (complied or not).",
    "local": " It is about as good as the rules on public sets, and better on answers that neither was made with.",
}
WIDE = 0.3  # the width of an interval, in shares, from which on a rate is reported as uncertain


def reading_caveats(results: RunResults) -> list[str]:
    """List the caveats of every run: wide intervals, inconclusive verdicts, the judge's error."""
    rates = {name: results.rates.before.of(name) for name in RATE_MEANING}
    widths = {name: rate.high - rate.low for name, rate in rates.items()}
    wide = [f"{name} (n = {rates[name].n}, interval {w:.0%} wide)" for name, w in widths.items() if w >= WIDE]
    lines = [f"Too few independent prompts for a narrow interval: {', '.join(wide)}."] if wide else []
    for name, verdict in (("dissociation", results.dissociation.verdict), ("triggers", results.triggers.verdict)):
        if verdict == "inconclusive":
            lines.append(f"The {name} verdict is inconclusive; the reasons given with it name the data it needs.")
    about = JUDGES.get(results.judge.split(" ")[0], "")
    lines.append(
        f"The action of each completion is judged by {results.judge or 'a judge that is not recorded'}.{about} The "
        "intervals do not include its error."
    )
    return lines


def caveats(results: RunResults) -> list[str]:
    """List what limits the results of this run in particular."""
    lines = [contrast_line(results.contrast)] if results.contrast else []
    if results.organism:
        lines.append(
            "This model is an organism: trained from scratch on a generated grammar, with a planted "
            "mechanism. It shows that the method works; it is not evidence about real models."
        )
    if results.organism_prompts:
        lines.append(warning(results.model.name))
    if unasked := [question for question in QUESTIONS if question not in results.ask]:
        lines.append(f"Not asked: {', '.join(unasked)}.")
    if results.dials_absent:
        absent = " and no ".join(results.dials_absent)
        lines.append(f"No {absent} dial could be built: the model declines too rarely in that way.")
    if unjudged := results.rates.before.unjudged + results.rates.after.unjudged:
        lines.append(f"{unjudged} completions could not be judged and are left out of the rates.")
    if results.left_out:
        lines.append("A time budget cut this run: " + " ".join(results.left_out))
    for name, site in results.sites.items():
        if not site.beats_bag_of_words:
            lines.append(
                f"The {name} probe does not clearly beat a bag of words on these prompts "
                f"(AUROC {site.shown} against {site.bag_of_words_auroc:.3f})."
            )
    for kind, write in results.writes.items():
        if write.available and not write.within_label:
            lines.append(
                f"The {kind} write direction contrasts two labels, because the model does not do both within "
                "one label, or because the direction within labels stops no declines: it may carry the topic "
                "of the prompts as well as declining."
            )
        if write.available and not write.meets_selection_rules:
            lines.append(
                f"No locus met the selection rules for the {kind} write direction; the one that misses them least is "
                "used."
            )
    return lines


def contrast_line(ways: tuple[str, str]) -> str:
    """Say what the names of the two refusals stand for in a run that contrasts two other ways of declining."""
    return (
        f"This run contrasts two ways of declining: normative stands for {ways[0]}, epistemic for {ways[1]}. A "
        "decline counts as that of its prompt, however it is worded."
    )
