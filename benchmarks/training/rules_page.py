"""Writes a language's rule table as Markdown: the meaning of each kind, and an example for every rule.

`python -m benchmarks.training.rules_page` writes the English pages, docs/judge-rules.md and
docs/judge-rules-other.md.
"""

from __future__ import annotations

from textwrap import wrap

from extract.shipped import ROOT
from scoring.judges.english import ENGLISH
from scoring.judges.table import RuleTable

DECLINES = {
    "Normative refusal": "refuse no decline scope silent",
    "Epistemic abstention": "abstain unknown unable disclaimer limit",
    "Refusal or abstention, depending on the prompt": "lack omit",
}
OTHERS = {
    "Corrected premise": "premise unfound",
    "Hedge": "hedge",
    "Clarification": "clarify",
    "Redirect (with a refusal: partial help, or another topic)": "redirect reread support",
    "Moralising": "rebuke verdict moral",
    "Similar in wording, but none of these": "idiom fiction courtesy frame",
}
PAGES = {
    "judge-rules.md": ("The judge's rules for declines", DECLINES),
    "judge-rules-other.md": ("The judge's other rules", OTHERS),
}


def as_markdown(table: RuleTable, title: str, sections: dict[str, str]) -> str:
    """Return a page with these sections of a table."""
    lines = [
        f"# {title} ({table.language})",
        "",
        "Generated from `scoring/judges/english/` by `python -m benchmarks.training.rules_page`;",
        "[judge.md](judge.md) explains the decision. A clause takes the first kind with a matching rule:",
        *wrap(", ".join(dict.fromkeys(kind for kind, _ in table.rules)) + ".", 120),
        "Declines are in [judge-rules.md](judge-rules.md), all others in [judge-rules-other.md](judge-rules-other.md).",
    ]
    for section, names in sections.items():
        kinds = names.split()
        lines += ["", f"## {section}", ""]
        lines += [f"- `{kind}`: {table.meanings[kind]}" for kind in kinds]
        lines += ["", "| kind | rule | example |", "| --- | --- | --- |"]
        for kind in kinds:
            for rule in (rule for named, rules in table.rules if named == kind for rule in rules):
                lines.append(f"| {kind} | {rule.name}{' (opening only)' if rule.opening else ''} | {rule.example} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name, (title, sections) in PAGES.items():
        (ROOT / "docs" / name).write_text(as_markdown(ENGLISH, title, sections), encoding="utf-8")
