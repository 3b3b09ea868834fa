"""A comparison on the terminal: all three rates side by side, what flipped, and where the change leads."""

from __future__ import annotations

from typing import Any

from scoring.wording import RATE_MEANING

SHOWN_FLIPS = 10
MOVES = {
    "better": "Off the trade-off, towards fewer mistakes",
    "worse": "Off the trade-off, towards more mistakes",
    "along_the_trade_off": "Along the trade-off: one mistake bought with another",
    "at_odds": "The rates and the right-action score disagree: see what took the place of what",
    "none_shown": "No change shown",
}


def print_comparison(record: dict[str, Any]) -> None:
    """Print each later run against the first."""
    from rich.console import Console

    console = Console(highlight=False)
    for one in record["comparisons"]:
        console.print(_table(record["first"]["file"], one))
        for line in (*_lines(one), *_unclear(record["first"]), *_unclear(one)):
            console.print(line, markup=False, soft_wrap=True)


def _table(first: str, one: dict[str, Any]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    matched = one["matched"]
    table = Table(title=escape(f"{first} → {one['file']}: {matched['prompts']} completions of the same prompts"))
    for column in ("", "first", "second", "change (95 %)", "McNemar p", "n"):
        table.add_column(column)
    for key, meaning in RATE_MEANING.items():
        change = one["changes"][key]
        if not change["n"]:
            table.add_row(meaning, "none judged", "", "", "", "0")
            continue
        low, high = change["difference_ci"]
        table.add_row(
            meaning, f"{change['first']:.1%}", f"{change['second']:.1%}",
            escape(f"{change['difference']:+.1%} [{low:+.1%}, {high:+.1%}]"),
            f"{change['mcnemar_p_holm']:.2g}" + (" *" if change["shown"] else ""), str(change["n"]),
        )  # fmt: skip
    if one["right_action_change"] is not None:
        low, high = one["right_action_change_ci"]
        table.add_row(
            "right-action score", "", "", escape(f"{one['right_action_change']:+.2f} [{low:+.2f}, {high:+.2f}]")
        )
    return table


def _lines(one: dict[str, Any]) -> list[str]:
    lines = [f"{MOVES[one['move']]}: {_reasons(one)}."]
    matched, flips = one["matched"], one["flips"]
    beside = {"only_in_first": "only in the first", "only_in_second": "only in the second",
              "label_differs": "left out, since the two label them differently", "text_differs": "of differing text",
              "right_action_differs": "left out of the right-action score, since the two call another action right",
              "unjudged_in_first": "unjudged in the first", "unjudged_in_second": "unjudged in the second"}  # fmt: skip
    lines += [f"Note: {matched[key]} completions {words}." for key, words in beside.items() if matched[key]]
    counted = ", ".join(
        f"{t['label'] or 'unlabelled'}: {t['first']} → {t['second']} {t['n']}" for t in one["transitions"][:6]
    )
    if flips:
        lines.append(f"{len(flips)} changed what they do ({counted}{', …' if len(one['transitions']) > 6 else ''}):")
    for flip in flips[:SHOWN_FLIPS]:
        text = " ".join((flip["text"] or "").split())
        lines.append(f"  {flip['id']} ({flip['label'] or 'unlabelled'}): {flip['first'] or 'unjudged'} → "
                     f"{flip['second'] or 'unjudged'}: {text[:90]}")  # fmt: skip
    if len(flips) > SHOWN_FLIPS:
        lines.append(f"  … and {len(flips) - SHOWN_FLIPS} more; --out DIR writes them all to flips.jsonl")
    return lines


def _unclear(one: dict[str, Any]) -> list[str]:
    n = one["conflicting"]
    return (
        [f"Note: {n} completions of {one['file']} bear an id that came before; they are matched by their order."]
        if n
        else []
    )


def _reasons(one: dict[str, Any]) -> str:
    """Say which rates were shown to fall or rise, and how far the others may have risen unseen."""
    said, open_ = [], []
    for key, meaning in RATE_MEANING.items():
        change, name = one["changes"][key], meaning.removeprefix("beside it: ").split(":")[0]
        if change["shown"]:
            said.append(f"{name} {'fell' if change['difference'] < 0 else 'rose'}")
        elif change["n"] and change["difference_ci"][1] > 0:
            open_.append(f"{name} {change['difference_ci'][1]:.1%}")
    if open_:
        said.append(f"not shown to change, and may have risen by up to: {', '.join(open_)}")
    return "; ".join(said) or "nothing was judged in both"
