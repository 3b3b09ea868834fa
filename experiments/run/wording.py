"""Sentences for verdicts, for the report and the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.run.behaviour import Basis
from probes.statistics.intervals import Estimate
from probes.statistics.permutation import MIN_LABELLINGS

VERDICTS = {
    "double_dissociation": "Two mechanisms (double dissociation)",
    "single_dissociation_normative": "Only refusing shows a mechanism of its own (single dissociation)",
    "single_dissociation_epistemic": "Only abstaining shows a mechanism of its own (single dissociation)",
    "graded_dissociation": "Two mechanisms that overlap (graded dissociation)",
    "one_direction_normative": "One direction for both, the normative one",
    "one_direction_epistemic": "One direction for both, the epistemic one",
    "shared_knob": "One shared knob",
    "no_effect": "No effect, ablating one layer from the last prompt token on",
    "nonlinear": "A mechanism that no single direction shows (nonlinear)",
    "intent_driven": "Intent-driven",
    "trigger_driven": "Trigger-driven",
    "mixed": "Mixed",
    "not_applicable": "Not applicable",
    "inconclusive": "Inconclusive",
}
BASES: dict[Basis, str] = {
    "wording": "",
    "reason": ", kinds by reason",
    "elicited": ", elicited by a system line",
    "free_thought": ", with thoughts free",
}


def verdict_text(verdict: str, basis: Basis = "wording") -> str:
    """Return a verdict in plain words, with its basis unless kinds are by wording."""
    return VERDICTS[verdict] + BASES[basis]


def p_text(p: float | None, spec: str = ".3f") -> str:
    """Return a p-value, or why a permutation test has none."""
    return f"none (fewer than {MIN_LABELLINGS:,} distinct permutations)" if p is None or p != p else f"{p:{spec}}"


def points(share: Estimate, unit: str = "") -> str:
    """Return a difference of shares with its limits in percentage points: `12 [3, 21]`; nothing where it is unknown."""
    if not share.known:
        return ""
    middle, low, high = (f"{100 * value:.0f}" for value in (share.estimate, share.low, share.high))
    return f"{middle}{unit} [{low}, {high}]"


def verdict_sentence(
    verdict: str, reasons: Sequence[str], trigger_share: Estimate | None = None, basis: Basis = "wording"
) -> str:
    """Return a verdict with its basis and reasons, and the trigger share if there is one."""
    text = f"{verdict_text(verdict, basis)}: {'; '.join(reason for reason in reasons if reason)}."
    return text if trigger_share is None else f"{text} Trigger share {trigger_share:.2f}."
