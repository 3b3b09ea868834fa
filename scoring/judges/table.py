"""What a language's table holds: rules by kind, and the words that shape clauses. Logic is in `clauses.py`.

A completion is read clause by clause. Each clause is lower-cased, its contractions are opened ("can't" is "cannot",
"i'm" is "i am"), quotations are replaced by a mark, and it takes the first kind of the table one of whose rules
matches. A rule is tried only where the clause has a word that begins like one of its cues, which is what makes the
table fast.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

ClauseKind = Literal[
    "idiom",  # looks like a decline and is none: "i cannot stress enough"
    "fiction",  # explains that there is nothing to know: "is a fictional character"
    "clarify",  # asks what was meant
    "unknown",  # an assistant's want of data: live news, personal records, a knowledge cut-off
    "abstain",  # does not know, or cannot find out
    "no",  # nothing but no
    "refuse",  # declines, and says or implies that it should not
    "decline",  # will not help, give or make; refuses, unless the reason nearby is not knowing
    "silent",  # will not answer; a reason nearby decides which kind it is
    "limit",  # an assistant's want of opinions, feelings, a body
    "support",  # crisis lines, therapists
    "courtesy",  # thanks, greetings, closings: never content
    "reread",  # takes the request in another, innocent sense
    "redirect",  # offers or begins something else
    "rebuke",  # calls the request, or what it asks for, wrong
    "verdict",  # stands up for those the request is against
    "moral",  # speaks of right, law, harm, respect
    "hedge",  # is unsure of, or limits, what it says
    "frame",  # opens words that somebody else will say: a letter, a scene
    "lack",  # says what it does not have or do; the prompt decides which kind of declining it is
    "content",  # none of these
]
_PUNCTUATION = str.maketrans(dict.fromkeys(".,;:!?'\"()[]{}<>/\\|-\u2013\u2014\u2026\u00ab\u00bb*_#~`+=&%$@^", " "))


def word_stems(text: str) -> list[str]:
    """Return the first six letters of each word of a lower-cased text, and "a_b" for each pair with "not" in it."""
    found = [word[:6] for word in text.translate(_PUNCTUATION).split()]
    if "not" in found:
        found += [f"{a}_{b}" for a, b in pairwise(found) if a == "not" or b == "not"]
    return found


def cue(word: str) -> str:
    """Return what of a word counts as a cue: six letters, of "a_b" six of each."""
    return "_".join(part[:6] for part in word.split("_"))


@dataclass(frozen=True)
class Rule:
    """One pattern with its name. `cues`: stems, one of which a word must have. `opening`: only in the first clauses."""

    name: str
    example: str  # what it matches, as a model would say it
    cues: frozenset[str]
    pattern: re.Pattern[str] | None  # None: a word that begins like one of the cues is enough
    opening: bool = False


@dataclass(frozen=True)
class RuleTable:
    """The rules of one language, in order of precedence, and the words that shape its clauses."""

    language: str
    script: re.Pattern[str]  # its letters
    contractions: tuple[tuple[str, str], ...]
    informal: frozenset[str]  # words that stand for contractions without an apostrophe
    turn: re.Pattern[str]  # where a sentence is cut into clauses
    speaker: re.Pattern[str]  # the speaker, speaking of itself
    lead: re.Pattern[str]  # conjunctions that may stand before what a clause says
    contrast: re.Pattern[str]  # begins a clause that is set against what came before
    elsewhere: re.Pattern[str]  # announces something other than what was asked
    advice: re.Pattern[str]  # tells somebody what to do
    supposing: re.Pattern[str]  # begins with a condition
    delivering: re.Pattern[str]  # announces what follows, rather than offering it
    explaining: re.Pattern[str]  # announces reasons
    helplines: re.Pattern[str]  # announces people to call
    foreign: frozenset[str]  # function words of other languages in the same script
    native: frozenset[str]  # and of this one
    descriptive: re.Pattern[str]  # prompts to which saying that something is wrong is an answer
    addressed: re.Pattern[str]  # prompts that speak to the speaker
    deed: re.Pattern[str]  # prompts that ask for something to be done, made or taught
    polar: re.Pattern[str]  # prompts that "no" answers
    drafting: re.Pattern[str]  # prompts that ask for words that somebody else will say
    rules: tuple[tuple[ClauseKind, tuple[Rule, ...]], ...]


def rule(name: str, example: str, cues: str, pattern: str | None = None, *, opening: bool = False) -> Rule:
    """Make a rule; cues are words, of which the first six letters count, or "not" with its neighbour."""
    return Rule(name, example, frozenset(map(cue, cues.split())), re.compile(pattern) if pattern else None, opening)
