"""The terminal output of `refusal prompts check`."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.prompt_check.results import PromptCheck, WordCues
from probes.statistics.metrics import enough


def print_check(check: PromptCheck) -> None:
    """Print a check: counts, how well words alone separate the labels, and problems."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    for key, value in check.to_dict().items():
        if key not in ("words", "problems"):
            console.print(f"{key:<28} {escape(_shown(key, value))}", soft_wrap=not console.is_terminal)
    words = Table(title="AUROC of words alone (whole groups held out; 95 % intervals)", title_justify="left")
    for column in ("prompts", "n", "bag of words", "number of words"):
        words.add_column(column, overflow="fold")
    for name, found in check.words.items():
        words.add_row(escape(name), *map(escape, _row(found)))
    console.print(words)
    for name, found in check.words.items():
        if not isinstance(found, str):
            console.print(escape(f"{name}, words by class (positive:negative prompts): {_class_words(found)}"))
    if not check.problems:
        unmeasured = any(isinstance(found, str) for found in check.words.values())
        where = " in the contrasts with prompts on both sides" if unmeasured else ""
        console.print(f"[green]No problem found[/]{where}. Cues other than words and surface features are not checked.")
    for problem in check.problems:
        console.print(f"[yellow]Problem:[/] {escape(problem)}.", soft_wrap=not console.is_terminal)


def _shown(key: str, value: object) -> str:
    if key == "certifiable rate":
        return f"{value:.2%} (if none of them is declined, one prompt a group; 95 % confidence)"
    if isinstance(value, Mapping):
        return "; ".join(f"{name} {_shown('', of)}" for name, of in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "nothing"
    return str(value)


def _row(found: WordCues | str) -> list[str]:
    if isinstance(found, str):
        return ["", found, ""]
    alike = "all alike" if enough(*found.n) else "too few prompts"
    aurocs = (found.bag_of_words, found.features.get("the number of words", alike))
    return [" + ".join(map(str, found.n)), *(of if isinstance(of, str) else f"{of:.2f}" for of in aurocs)]


def _class_words(found: WordCues) -> str:
    sides = (found.words_of_the_positive_side, found.words_of_the_negative_side)
    return "; ".join(", ".join(f"{word} {a}:{b}" for word, a, b in side[:5]) for side in sides)
