"""Prints a comparison on the terminal: a table of the rates, the flipped prompts, and the direction of the change."""

from __future__ import annotations

from extract.table import Table, print_blocks
from scoring.compare.comparison import ComparedRun, Comparison, ScoredRun
from scoring.wording import RATE_MEANING

SHOWN_FLIPS = 10
SHOWN_TRANSITIONS = 6
MOVES = {
    "better": "Fewer mistakes, without a trade-off",
    "worse": "More mistakes, without a trade-off",
    "along_the_trade_off": "A trade-off: one kind of mistake fell and another rose",
    "at_odds": "The rates and the right-action score disagree: see the changes of action below",
    "none_shown": "No change shown",
}
NOTES = {  # text for each count in `matched`
    "only_in_first": "are only in the first run",
    "only_in_second": "are only in the second run",
    "label_differs": "are left out, since the two runs label them differently",
    "text_differs": "have different prompt texts",
    "right_action_differs": "are left out of the right-action score, since the two runs differ in the right action",
    "unjudged_in_first": "are unjudged in the first run",
    "unjudged_in_second": "are unjudged in the second run",
}


def print_comparison(comparison: Comparison) -> None:
    """Print each later run compared with the first."""
    first = comparison.first
    for run in comparison.comparisons:
        print_blocks([_table(first.file, run), *_lines(run), *_repeated_ids(first), *_repeated_ids(run)])


def _table(first: str, run: ComparedRun) -> Table:
    rows = []
    for key, meaning in RATE_MEANING.items():
        change = run.changes[key]
        n = change.difference.n
        if not n:
            rows.append([meaning, "none judged", "", "", "", "0"])
            continue
        p = f"{change.mcnemar_p_holm:.2g}" + (" *" if change.shown else "")
        rows.append(
            [
                meaning,
                f"{change.first:.1%}",
                f"{change.second:.1%}",
                f"{change.difference:+.1%}",
                p,
                str(change.difference.n),
            ]
        )
    if run.right_action_change.known:
        rows.append(["right-action score", "", "", f"{run.right_action_change:+.2f}", "", ""])
    title = f"{first} → {run.file}: {run.matched.prompts} completions of the same prompts"
    return Table(title, ["", "first", "second", "change (95 %)", "McNemar p", "n"], rows)


def _lines(run: ComparedRun) -> list[str]:
    lines = [f"{MOVES[run.move]}: {_reasons(run)}."]
    counts = {words: getattr(run.matched, name) for name, words in NOTES.items()}
    lines += [f"Note: {n} completions {words}." for words, n in counts.items() if n]
    counted = ", ".join(
        f"{t.label or 'unlabelled'}: {t.first} → {t.second} {t.n}" for t in run.transitions[:SHOWN_TRANSITIONS]
    )
    if run.flips:
        more = ", …" if len(run.transitions) > SHOWN_TRANSITIONS else ""
        lines.append(f"{len(run.flips)} completions changed their action ({counted}{more}):")
    for flip in run.flips[:SHOWN_FLIPS]:
        text = " ".join((flip.text or "").split())
        lines.append(
            f"  {flip.id} ({flip.label or 'unlabelled'}): {flip.first or 'unjudged'} → "
            f"{flip.second or 'unjudged'}: {text[:90]}"
        )
    if len(run.flips) > SHOWN_FLIPS:
        lines.append(f"  … and {len(run.flips) - SHOWN_FLIPS} more; --out DIR writes them all to flips.jsonl")
    return lines


def _repeated_ids(run: ScoredRun) -> list[str]:
    if not run.conflicting:
        return []
    return [f"Note: {run.conflicting} completions of {run.file} repeat an earlier id; they are matched in order."]


def _reasons(run: ComparedRun) -> str:
    """Return which rates fell or rose, and the upper limit of the change of the others."""
    shown, open_ = [], []
    for name in RATE_MEANING:
        change = run.changes[name]
        if change.shown:
            shown.append(f"{name} {'fell' if change.difference.estimate < 0 else 'rose'}")
        elif change.difference.n and change.difference.high > 0:
            open_.append(f"{name} {change.difference.high:.1%}")
    if open_:
        shown.append(f"not shown to change, and may have risen by up to: {', '.join(open_)}")
    return "; ".join(shown) or "no prompt was judged in both runs"
