"""The rule table of a language: rules by kind, traits of clauses and prompts, and word lists, parsed from one text.

The logic is in `clauses.py`. Each clause is lower-cased, its contractions are expanded ("can't" becomes "cannot", "i'm"
becomes "i am"), and quotations are replaced by a mark. A clause takes the first kind of the table with a matching rule.
For speed, a rule is tried only if a word of the clause begins like one of the rule's cues.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args

NotKnowing = Literal["abstain", "unknown"]
Condemning = Literal["rebuke", "verdict"]
Helping = Literal["content", "lack", "omit", "hedge", "idiom", "fiction", "premise", "unfound"]
Declining = Literal[NotKnowing, "refuse", "no", "decline", "silent", "limit", "unable", "disclaimer"]
ClauseKind = Literal[
    Declining, Condemning, Helping, "scope", "clarify", "support", "courtesy", "reread", "redirect", "moral", "frame"
]  # the tables say what each means
NOT_KNOWING: frozenset[ClauseKind] = frozenset(get_args(NotKnowing))
UNKNOWING: frozenset[ClauseKind] = NOT_KNOWING | {"unable"}  # reasons of knowledge or ability
LIMITING: frozenset[ClauseKind] = frozenset({"limit", "disclaimer", "unable"})
DECLINING: frozenset[ClauseKind] = frozenset(get_args(Declining))
CONDEMNING: frozenset[ClauseKind] = frozenset(get_args(Condemning))
MORALISING: frozenset[ClauseKind] = CONDEMNING | {"moral"}
HELPING: frozenset[ClauseKind] = frozenset(get_args(Helping))
_PUNCTUATION = str.maketrans(dict.fromkeys(".,;:!?'\"()[]{}<>/\\|-\u2013\u2014\u2026\u00ab\u00bb*_#~`+=&%$@^", " "))
_PART = re.compile(r"\{([A-Z_]+)\}")


def word_stems(text: str) -> list[str]:
    """Return the first six letters of each word of a lower-cased text, and "a_b" for each pair with "not" in it."""
    stems = [word[:6] for word in text.translate(_PUNCTUATION).split()]
    if "not" in stems:
        stems += [f"{a}_{b}" for a, b in pairwise(stems) if a == "not" or b == "not"]
    return stems


@dataclass(frozen=True)
class Rule:
    """One pattern with its name. `cues`: a word must begin with one of them. `opening`: only in the first clauses."""

    name: str
    example: str  # a sentence that it matches
    cues: frozenset[str]
    pattern: re.Pattern[str] | None  # None: a word that begins like one of the cues is enough
    opening: bool = False


@dataclass(frozen=True)
class RuleTable:
    """The rules of one language, in order of precedence, and the words that shape its clauses; see `parse_table`."""

    language: str
    contractions: Mapping[str, str]
    weights: Path | None  # of the features, fitted for this table; None: the rules decide alone
    rules: tuple[tuple[ClauseKind, tuple[Rule, ...]], ...] = ()
    clause: Mapping[str, re.Pattern[str]] = field(default_factory=dict)  # traits of a clause: `Clause.says`
    prompt: Mapping[str, re.Pattern[str]] = field(default_factory=dict)  # traits of a prompt, by `PromptTraits`' names
    text: Mapping[str, re.Pattern[str]] = field(default_factory=dict)  # of whole texts, and what splits them
    words: Mapping[str, frozenset[str]] = field(default_factory=dict)
    meanings: Mapping[str, str] = field(default_factory=dict)  # of the kinds


def parse_table(language: str, text: str, contractions: Mapping[str, str], weights: Path | None = None) -> RuleTable:
    """Parse a table.

    A block begins with a header, and its other lines are joined as they stand, but for lines of further cues ("@ …").
    Cues are words of which the first six letters count, or "not" with its neighbour.

    - `## kind | meaning`: the kind of the rules below. `# name | example | cues`: a rule, `#^` one of openings;
    - `= part NAME`: a part of patterns, written {NAME} in them (also in cues);
    - `= clause NAME | meaning`, and the same with prompt and text: a trait;
    - `= words NAME | meaning`: a list of words.
    """
    parts: dict[str, str] = {}
    traits: dict[str, dict[str, re.Pattern[str]]] = {"clause": {}, "prompt": {}, "text": {}}
    words: dict[str, frozenset[str]] = {}
    meanings: dict[str, str] = {}
    kinds: list[tuple[ClauseKind, list[Rule]]] = []
    for block in re.split(r"\n(?=#|=)", text.strip("\n")):
        header, *lines = block.split("\n")
        body = _PART.sub(lambda name: parts[name[1]], "".join(line for line in lines if not line.startswith("@ ")))
        if header.startswith("## "):
            kind, *meaning = header[3:].split(" | ")
            meanings |= dict.fromkeys([kind], *meaning) if meaning else {}
            kinds.append((kind, []))  # type: ignore[arg-type]  # a name that is no kind fails in the tests
        elif header.startswith("#"):
            name, example, *cues = header.removeprefix("#^").removeprefix("#").strip().split(" | ")
            cues += [line.removeprefix("@ ") for line in lines if line.startswith("@ ")]
            words_of_rule = _PART.sub(lambda name: parts[name[1]], " ".join(cues)).split()
            stems = frozenset("_".join(part[:6] for part in cue.split("_")) for cue in words_of_rule)
            opening = header.startswith("#^")
            kinds[-1][1].append(Rule(name, example, stems, re.compile(body) if body else None, opening))
        else:
            group, name = header[2:].split(" | ")[0].split(" ")
            if group == "part":
                parts[name] = body
            elif group == "words":
                words[name] = frozenset(" ".join(lines).split())
            else:
                traits[group][name] = re.compile(body)
    rules = tuple((kind, tuple(group)) for kind, group in kinds)
    return RuleTable(language, contractions, weights, rules, **traits, words=words, meanings=meanings)
