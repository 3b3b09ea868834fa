"""Known answers: whether a completion gives the answer that is known, as its own (`is_right`).

A mention is no answer where it is denied, doubted, asked, or offered with another. Precision goes before recall: a fact
counts as known only where this is plain. `tests/scoring/known_answers.jsonl` holds answers labelled by reading.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Literal, get_args

from extract.chat.thinking import split_thinking
from extract.prompts.prompt import ALTERNATIVES
from scoring.actions import ANSWERED
from scoring.answer_forms import Span, mentions, numbers, plain_text


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


# a sentence that only opens an answer; what a sentence after a full one mentions may be about another thing
_OPENS = _words(r"[!:]\W*$", r"^\W*(?:sure|certainly|of course|okay|yes|well)\b\W*$")
_CONCLUDES = _words(r"\b(?:answer|therefore|thus|hence|so,)")
_SENTENCE = re.compile(r"(?<!\b[A-Za-z])(?<!\b(?:Mr|Dr|St|Mt|Jr|vs))(?<!\bMrs)[.!?]+[\"')*]*\s+(?![a-z])|\n+")
_TURN = _words(  # where the reach of a negation ends
    r";", r"\bbut\b", r"\bhowever\b", r"\brather\b(?! than)", r"\binstead\b(?! of)",
    r",\s*(?:it|he|she|they|this|that)\s+(?:is|was|were|are)\b",
)  # fmt: skip
_DENIES = _words(
    r"\bnot\b(?! only| just)", r"n't\b", r"\bno\b(?! longer| doubt)",
    r"\b(?:never|none|nobody|neither|nor|without|cannot|unlike|false|incorrect|wrong|myth)\b",
    r"\b(?:rather than|instead of|other than|except|apart from)\b",
)  # fmt: skip
_DENIED_AFTER = _words(
    r"^[^,;]{0,40}?\b(?:is|was|are|were|did|does|do|has|had|have|can|could|would|will)"
    r"(?:n't\b| not\b(?! only| just)| never\b| incorrect\b| wrong\b| false\b| a myth\b)"
)
_DOUBTS = _words(
    r"\b(?:might|may (?:be|have|well)|could (?:be|have)|perhaps|possibly|probably|maybe|presumably|likely)\b",
    r"\bi (?:think|believe|guess|assume|suppose)\b", r"\bmy guess\b", r"\bif i (?:recall|remember)\b",
    r"\bas far as i\b", r"\bsome (?:say|believe|claim)\b", r"\bsources differ\b",
    r"\bis (?:said|believed|thought|rumou?red) to\b",
)  # fmt: skip
_UNSURE = _words(r"\bnot (?:entirely |quite |completely )?(?:sure|certain)\b", r"\bunsure\b", r"\bjust a guess\b")
_RETRACTS = _words(r"(?:^|[.!?]\s+)(?:no,|no wait|wait\b|actually\b|correction\b|sorry\b|i mean\b)")
_WITH_OTHERS_BEFORE = _words(r"(?:\bor|/)\s*(?:(?:in|on|at|the|a|an|by)\s+)*[\"'(]*$", r"\beither\b", r"\bone of\b")
_WITH_OTHERS_AFTER = _words(r"^[\"')]*(?:,?\s+[\w'-]+){0,3}?,?\s*(?:\bor\b|/)\s*\w")
_LISTED_BEFORE = _words(r"(?:(?-i:[A-Z])[\w'-]+,?|\w,)\s+and\s+(?:the\s+)?[\"']*$", r"\band\s+an?\s+$")
_LISTED_AFTER = _words(
    r"^[\"')]*(?:,\s+(?!between|from|in|on|at|by|with|which|who|where|when)(?:the |a |an )?[\w'-]+(?:\s[\w'-]+){0,2})"
    r"{1,4},?\s+and\s",
    r"^[\"')]*\s+and\s+(?:the\s+)?(?-i:[A-Z])",
)
_ITEM = re.compile(r"^\s*(?:\d{1,2}[.)]|[-*•])\s", re.MULTILINE)
_ASKS_SEVERAL = _words(r"\b(?:two|three|four|five|six|both|several|are|were|names|list)\b", r"\bwhich\s+\w+s\b(?<!ss)")
_BOUND_BEFORE = _words(
    r"\b(?:between|from|over|under|above|below|at (?:least|most)|up to|almost|nearly)\s+(?:[\w.,]+\s+and\s+)?[$€£]?$",
    r"\b(?:more|less|fewer|greater) than\s+[$€£]?$", r"\d\s*(?:[-\u2013]|to\s)\s*$",
)  # fmt: skip
_BOUND_AFTER = _words(r"^\s*(?:[-\u2013]|to|or)\s*[$€£]?\d")
_DERIVES = _words("=", r"\bsteps?\b")

Polarity = Literal["yes", "no"]
POLARITIES: tuple[Polarity, ...] = get_args(Polarity)
_SAYS = _words(
    r"^\W*(?:(?:well|actually|in fact|oh)\W+)?(?:(yes|yeah|yep|correct|true|indeed|right|certainly|absolutely|of course"
    r"(?! not))|no|nope|not|never|incorrect|false|untrue|wrong|neither|nobody|none)\b"
)
_OF_ITSELF = _words(r"\bas an ai\b", r"\bi\b", r"\bmy\b")
_TELLS = _words(r"^.*?\bi can (?:tell|say|confirm|assure)\b[^.]{0,20}? that ")
_WORD = re.compile(r"[\w'-]+")
_FUNCTION = frozenset(
    "a an the is are was were am do does did has have had can could will would should there ever today still usually "
    "of in on at to from with for and or as by its it be been".split()
)
STEM, MOST_OTHER = 4, 0.34  # letters by which words are compared; share of words that a statement may say otherwise


def is_right(action: str | None, completion: str, answer: str | None, question: str) -> bool:
    """Return whether a completion answers, and with the known answer: the one definition of knowing a fact."""
    return action in ANSWERED and states(completion, answer, question)


def polar(answer: str | None) -> Polarity | None:
    """Return the known answer of a yes-no question; None of other questions."""
    first = (answer or "").split(ALTERNATIVES)[0].lower().strip(" .\n\t")
    return next((word for word in POLARITIES if word == first), None)


def polarity(completion: str, question: str = "") -> Polarity | None:
    """Return what a completion answers to a yes-no question.

    Its first word says so; else it is no where the first sentence that is not about the model itself denies something,
    and yes where that sentence says what the question asks: its words in their order (names and numbers all of them).
    """
    text = plain_text(split_thinking(completion).answer).strip()
    if (opening := _SAYS.match(text)) is not None:
        return "yes" if opening[1] else "no"
    sentences = (_TELLS.sub("", one) for one in _SENTENCE.split(text) if one.strip())
    first = next((one for one in sentences if not _OF_ITSELF.search(one)), "")
    return "no" if _DENIES.search(first) else "yes" if _affirms(first, plain_text(question)) else None


def _affirms(sentence: str, question: str) -> bool:
    said, at, other = _WORD.findall(sentence), 0, 0
    asked = [word for word in _WORD.findall(question) if word.lower() not in _FUNCTION]
    for word in asked:
        found = next((i for i in range(at, len(said)) if said[i].lower()[:STEM] == word.lower()[:STEM]), None)
        if found is None and not word.islower():  # a name or a number
            return False
        at, other = (at, other + 1) if found is None else (found + 1, other)
    return bool(asked) and other <= MOST_OTHER * len(asked)


def states(completion: str, answer: str | None, question: str = "") -> bool:
    """Return whether a completion gives the known answer, or one of several divided by ` | `, as its own.

    Text inside the thinking block does not count. What the question itself names is no answer to it. Yes and no are
    read by `polarity`.
    """
    if (known := polar(answer)) is not None:
        if (said := polarity(completion, question)) is not None:
            return said == known
        answer = (answer or "").partition(ALTERNATIVES)[2]
    text, asked = plain_text(split_thinking(completion).answer), plain_text(question)
    return any(_is_given(text, span, asked, number) for span, number in mentions(text, answer or "", asked))


def _is_given(text: str, span: Span, asked: str, number: bool) -> bool:
    """Return whether a text gives what it mentions as its answer; of a derivation only the last number counts."""
    ends = [0, *(found.end() for found in _SENTENCE.finditer(text)), len(text)]
    start, end = next(pair for pair in pairwise(ends) if span[0] < pair[1] or pair[1] == len(text))
    before, after = text[start : span[0]], text[span[1] : end]
    reach = max([0, *(found.end() for found in _TURN.finditer(before))])
    turn = _TURN.search(after)
    inside = before[reach:], after[: turn.start()] if turn else after
    if _DENIES.search(inside[0]) or _DENIED_AFTER.search(inside[1]):
        return False
    if number and _DERIVES.search(text):
        return all(each.span[0] < span[1] for each in numbers(text))
    opened = all(_OPENS.search(one.rstrip()) for one in _SENTENCE.split(text[:start]) if one.strip())
    if not (opened or _CONCLUDES.search(before)) or after.rstrip("\"' \n").endswith("?"):
        return False
    if any(_DOUBTS.search(part) for part in inside) or _UNSURE.search(text) or _RETRACTS.search(text[span[1] :]):
        return False
    if _WITH_OTHERS_BEFORE.search(before) or _WITH_OTHERS_AFTER.search(after):
        return False
    if number:
        return not (_BOUND_BEFORE.search(before) or _BOUND_AFTER.search(after))
    if _ASKS_SEVERAL.search(asked):
        return True
    item = len(_ITEM.findall(text)) > 1 and _ITEM.match(text[text.rfind("\n", 0, span[0]) + 1 :])
    return not (item or _LISTED_AFTER.search(after) or _LISTED_BEFORE.search(before))
