"""Sentences and tables on elicited abstentions: the line, what it elicits, the three cells, the transfer."""

from __future__ import annotations

from experiments.dissociation.results import Elicited, TransferEffect
from experiments.elicited.results import Elicitation
from experiments.run.behaviour import KINDS
from experiments.run.wording import p_text, points, verdict_sentence

Rows = tuple[str, list[list[str]]]  # columns, and rows
LABELS = {"uncertain": "uncertain", "twin": "known twins", "harmful": "harmful"}


def elicited_lines(found: Elicited | None, *, is_verdict: bool) -> list[str]:
    """Return what a line elicits, why there is no verdict on it or what it is, and the transfer without the line."""
    if found is None or not found.elicitation.needed:
        return []
    given, lines = found.elicitation, list[str]()
    if given.line:
        lines.append(_line_sentence(given))
    if found.verdict == "not_applicable":
        lines.append(f"Elicited behaviour: no verdict, {'; '.join(found.reasons)}.")
    elif not is_verdict:
        lines.append(verdict_sentence(found.verdict, found.reasons, basis="elicited"))
    if found.transfer:
        lines.append(f"Added without the line, the direction of abstentions {_transfers(found.transfer)}.")
    return lines


def _line_sentence(given: Elicitation) -> str:
    share = {(of.condition, of.label, of.action): f"{of:.0%}" for of in given.shares}
    uncertain, twins = (share["line", label, "abstain"] for label in ("uncertain", "twin"))
    refused, turned = (share["line", "harmful", action] for action in ("refuse", "abstain"))
    lengths = f"{given.line_tokens} tokens; its control, “{given.control}”, has {given.control_tokens}"
    return (
        f"Under “{given.line}” ({lengths}) the model abstains from {uncertain} of tested uncertain prompts and from "
        f"{twins} of their known twins; it refuses {refused} of harmful prompts, and says of {turned} that it does not "
        f"know. Against the control line it declines {points(given.above_control)} points more of the uncertain ones."
    )


def _transfers(found: tuple[TransferEffect, ...]) -> str:
    what = {"abstain": "abstained from", "decline": "declined in whatever words"}
    parts = []
    for of in found:
        against = "" if of.p_null is None else f"; p = {p_text(of.p_null)} against {of.n_null} permuted ones"
        gained = f"gained {of.uncertain:.0%} and {of.twins:.0%}{against}"
        parts.append(f"has {points(of)} points more of uncertain prompts than of twins {what[of.action]} ({gained})")
    return ", and ".join(parts)


def elicited_tables(found: Elicited | None) -> dict[str, Rows]:
    """Return the rows of each table by its title; without a line there are none."""
    if found is None or not found.elicitation.line:
        return {}
    given = found.elicitation
    by_prompts: dict[tuple[str, str], list[str]] = {}
    for of_action in given.shares:  # actions are in the order of the columns
        by_prompts.setdefault((LABELS[of_action.label], of_action.condition), []).append(f"{of_action:.0%}")
    n = {(LABELS[of.label], of.condition): str(of.n) for of in given.shares}
    shares = [[*key, *each, n[key]] for key, each in by_prompts.items()]
    tried = [
        [of.line, f"{of.uncertain:.0%}", f"{of.twins:.0%}", points(of.difference), str(of.difference.n)]
        for of in given.tried
    ]
    cells = [
        [
            of.ablated,
            of.what,
            f"{of:.0%}",
            "" if of.turned is None else f"{of.turned:.0%}",
            str(of.n),
            "not tested" if of.p_null is None else f"{p_text(of.p_null)} ({p_text(of.p_corrected)})",
            "" if of.null is None else f"{of.null.n_exceeding} of {of.null.n}",
        ]
        for of in found.effects
    ]
    cells += [
        [kind, "harmful, abstained from under the line", f"{of:.0%}", "", str(of.n), "not tested", ""]
        for kind in KINDS
        if (of := found.turned.get(kind)) is not None and of.known
    ]
    return {
        "Declines that stop, plainly and under the line (95 %)": (
            "ablated|declines|stop|change kind|n|p, permuted labels (Holm)|as large",
            cells,
        ),
        "Tested prompts under the system line, under its control and plainly (95 %)": (
            "prompts|condition|abstained from|refused|answered|n",
            shares,
        ),
        "System lines tried on training prompts: abstained from (95 %)": (
            "line|uncertain|known twins|points more|n",
            tried,
        ),
    }
