"""Writes a language's rule table as a Markdown page: the meaning of each kind, and an example for every rule.

`python -m benchmarks.training.rules_page > docs/judge-rules.md` writes the English page.
"""

from __future__ import annotations

from scoring.judges.english import ENGLISH
from scoring.judges.table import RuleTable

SECTIONS = {
    "Normative refusal": "refuse no decline scope silent",
    "Epistemic abstention": "abstain unknown unable disclaimer limit",
    "Refusal or abstention, depending on the prompt": "lack omit",
    "Corrected premise": "premise unfound",
    "Hedge": "hedge",
    "Clarification": "clarify",
    "Redirect (with a refusal: partial help, or another topic)": "redirect reread support",
    "Moralising": "rebuke verdict moral",
    "Similar in wording, but none of these": "idiom fiction courtesy frame",
}


def as_markdown(table: RuleTable) -> str:
    """Return the Markdown page of a table."""
    lines = [
        f"# The judge's rules ({table.language})",
        "",
        "Generated from `scoring/judges/english/` by `python -m benchmarks.training.rules_page`;",
        "[scoring.md](scoring.md) explains the decision. A clause takes the first kind with a matching rule:",
        ", ".join(dict.fromkeys(kind for kind, _ in table.rules)) + ".",
    ]
    for section, names in SECTIONS.items():
        kinds = names.split()
        lines += ["", f"## {section}", ""]
        lines += [f"- `{kind}`: {table.meanings[kind]}" for kind in kinds]
        lines += ["", "| kind | rule | example |", "| --- | --- | --- |"]
        for kind in kinds:
            for rule in (rule for named, rules in table.rules if named == kind for rule in rules):
                lines.append(f"| {kind} | {rule.name}{' (opening only)' if rule.opening else ''} | {rule.example} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(as_markdown(ENGLISH), end="")
