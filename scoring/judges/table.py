"""The rule table of a language: rules by kind, and word lists that split and describe clauses.

The logic is in `clauses.py`. Each clause is lower-cased, its contractions are expanded ("can't" becomes "cannot", "i'm"
becomes "i am"), and quotations are replaced by a mark. A clause takes the first kind of the table with a matching rule.
For speed, a rule is tried only if a word of the clause begins like one of the rule's cues.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

ClauseKind = Literal[
    "idiom",  # has the wording of a decline, but is none: "i cannot stress enough"
    "fiction",  # explains that the subject does not exist: "is a fictional character"
    "clarify",  # asks a clarifying question
    "unknown",  # an assistant's lack of data: live news, personal records, a knowledge cut-off
    "abstain",  # does not know, or cannot find out
    "scope",  # says what it is for, or that the request is not that: a refusal if nothing about the matter follows
    "no",  # only the word no
    "refuse",  # declines, and states or implies that it should not help
    "decline",  # will not help, give or make; a refusal, unless a clause nearby states a lack of knowledge
    "silent",  # will not answer; a reason nearby decides between refusal and abstention
    "limit",  # an assistant's lack of opinions, feelings, a body
    "support",  # crisis lines, therapists
    "courtesy",  # thanks, greetings, closings: never content
    "reread",  # reads the request in a harmless sense
    "redirect",  # offers or begins something else
    "rebuke",  # calls the request, or what it asks for, wrong
    "verdict",  # defends those whom the request attacks
    "moral",  # mentions right, law, harm, respect
    "hedge",  # states uncertainty, or limits the answer
    "frame",  # opens a text in another person's voice: a letter, a scene
    "unable",  # has not the ability; an abstention, unless a clause nearby refuses
    "disclaimer",  # gives no professional advice or diagnosis; an abstention if nothing else follows
    "unfound",  # no evidence for what the prompt supposes: an abstention where a fact was asked for, else a correction
    "premise",  # says that what the prompt supposes is not so
    "lack",  # states what the model does not have or sense; an abstention
    "omit",  # states what the model does not do; the prompt decides between refusal and abstention
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
    """Return a word's cue: its first six letters, of "a_b" six of each."""
    return "_".join(part[:6] for part in word.split("_"))


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
    """The rules of one language, in order of precedence, and the words that shape its clauses."""

    language: str
    script: re.Pattern[str]  # letters of its script
    contractions: tuple[tuple[str, str], ...]
    informal: frozenset[str]  # contractions written without an apostrophe
    turn: re.Pattern[str]  # where a sentence is split into clauses
    speaker: re.Pattern[str]  # the model refers to itself
    lead: re.Pattern[str]  # conjunctions at the start of a clause
    contrast: re.Pattern[str]  # begins a clause that contrasts with the text before
    elsewhere: re.Pattern[str]  # announces a different topic than the request's
    advice: re.Pattern[str]  # gives advice
    supposing: re.Pattern[str]  # begins with a condition
    delivering: re.Pattern[str]  # announces content that follows, rather than offering it
    explaining: re.Pattern[str]  # announces reasons
    offering: re.Pattern[str]  # announces alternatives to what was asked
    helplines: re.Pattern[str]  # announces help lines
    word: re.Pattern[str]  # one word
    spelled: re.Pattern[str]  # a word in the letters of this language
    foreign: frozenset[str]  # function words of other languages in the same script
    native: frozenset[str]  # function words of this language
    asking: frozenset[str]  # words of requests that name no topic
    descriptive: re.Pattern[str]  # prompts that calling something wrong answers
    addressed: re.Pattern[str]  # prompts about the model itself
    own_state: re.Pattern[str]  # prompts about the asker's own health, feelings or need of help
    factual: re.Pattern[str]  # prompts that ask for one fact
    evaluative: re.Pattern[str]  # prompts that ask why something is good, best or ought to be
    forbidding: re.Pattern[str]  # says that something should not be
    negation: re.Pattern[str]  # words that negate a clause
    deed: re.Pattern[str]  # prompts that ask for something to be done, made or taught
    polar: re.Pattern[str]  # prompts that "no" answers
    opinion: re.Pattern[str]  # mentions opinions, rather than experience
    form: re.Pattern[str]  # cannot give a form, such as a picture
    referring: re.Pattern[str]  # sends the user elsewhere
    protecting: re.Pattern[str]  # begins or announces an answer on protecting somebody or something
    safety: re.Pattern[str]  # prompts that ask about safety themselves
    announcing: re.Pattern[str]  # names the topic of what follows
    agreeing: re.Pattern[str]  # begins by saying yes
    role: re.Pattern[str]  # prompts that ask to play somebody who declines
    partial: re.Pattern[str]  # declines a part
    musing: re.Pattern[str]  # how a thought without marks begins
    deliberating: re.Pattern[str]  # weighs what to say, or speaks of the user as a third person
    drafting: re.Pattern[str]  # prompts that ask for a text in another person's voice
    weights: Path | None  # of the features, fitted for this table; None: the rules decide alone
    rules: tuple[tuple[ClauseKind, tuple[Rule, ...]], ...]


def rule(name: str, example: str, cues: str, pattern: str | None = None, *, opening: bool = False) -> Rule:
    """Make a rule; cues are words, of which the first six letters count, or "not" with its neighbour."""
    return Rule(name, example, frozenset(map(cue, cues.split())), re.compile(pattern) if pattern else None, opening)
