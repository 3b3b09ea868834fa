"""Results in words a newcomer understands, for the report and the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def verdict_sentence(record: dict[str, Any]) -> str:
    """Return a verdict with its reasons, and the trigger share where there is one."""
    reasons = record.get("reasons") or [record.get("reason", "")]
    text = f"{VERDICTS[record['verdict']]}: {'; '.join(reason for reason in reasons if reason)}."
    share = record.get("trigger_share")
    if share is not None:
        low, high = record["trigger_share_ci"]
        text += f" Trigger share {share:.2f} [{low:.2f}, {high:.2f}]."
    return text


WIDE = 0.3  # of an interval: what it holds could be told a third of the scale apart


def reading_caveats(results: Mapping[str, Any], judge: str) -> list[str]:
    """List what to keep in mind with any run's figures: few prompts, the judge's error, what was not settled.

    Args:
        judge: `rules`, or the file that names another one.
    """
    before = results["rates"]["before"]
    wide = [
        f"{meaning.partition(':')[0]} ({before[f'{name}_n']} prompts, interval {high - low:.0%} wide)"
        for name, meaning in RATE_MEANING.items()
        for low, high in [before[f"{name}_ci"]]
        if high - low >= WIDE
    ]
    lines = [f"Few independent prompts: {', '.join(wide)}."] if wide else []
    for name in ("dissociation", "triggers"):
        if results[name]["verdict"] == "inconclusive":
            lines.append(f"The verdict of {name} is inconclusive; what would settle it is named there.")
    lines.append(
        "Rules say what each completion does; they agree with people on 93 % of XSTest's (complied or not), and the "
        "intervals do not hold that error."
        if judge == "rules"
        else f"{judge} says what each completion does; the intervals do not hold its error."
    )
    return lines

    return lines


def caveats(results: dict[str, Any]) -> list[str]:
    """List what a reader must know before believing the numbers."""
    lines = []
    if results["organism"]:
        lines.append("This model is an organism: trained from scratch on a generated grammar, its mechanism planted. "
                     "It shows that the method works; it is not evidence about real models.")  # fmt: skip
    if results["dials_absent"]:
        lines.append(
            f"No {' and no '.join(results['dials_absent'])} dial could be built: the behaviour is too rare here."
        )
    unjudged = results["rates"]["before"]["unjudged"] + results["rates"]["after"]["unjudged"]
    if unjudged:
        lines.append(f"{unjudged} completions could not be judged and are left out of the rates.")
    for kind, site in results["sites"].items():
        if not site["beats_bag_of_words"]:
            lines.append(f"The {kind} probe does not clearly beat a bag of words on these prompts "
                         f"(AUROC {site['auroc']:.2f} against {site['bag_of_words_auroc']:.2f}).")  # fmt: skip
    for kind, write in results["writes"].items():
        if write["available"] and not write["within_label"]:
            lines.append(f"The {kind} write direction contrasts two labels, since the model does not do both within "
                         "one: it may carry what the prompts are about as well as declining.")  # fmt: skip
        if write["available"] and not write["meets_selection_rules"]:
            lines.append(
                f"No locus met the selection rules for the {kind} write direction; the least bad one is shown."
            )
    return lines
