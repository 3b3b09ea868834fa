"""Where a text mentions an answer, in any of its usual writings: words, names, numbers, times and dates.

`scoring/known_answer.py` decides whether a mention is an answer.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import isclose

from extract.prompts.prompt import ALTERNATIVES

NEAR = 1e-6  # relative: 540.0 is 540
ROUNDED = 0.01  # most relative change by which a more precise number may round to the known one: 42.195 to 42
Span = tuple[int, int]

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_ORDINALS = (
    "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
    "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
).split()
_ROMAN = "- i ii iii iv v vi vii viii ix x xi xii xiii xiv xv xvi xvii xviii xix xx".split()
_SCALES = {"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
_VALUES = {word: float(n) for n, word in enumerate(_SMALL)} | {w: 20.0 + 10 * n for n, w in enumerate(_TENS)}
_MONTHS = "january february march april may june july august september october november december".split()
_UNITS = {  # unit: dimension and factor; one that is not here has no other writing
    name: (dimension, factor)
    for dimension, factor, names in (
        ("length", 1.0, "m metre metres meter meters"),
        ("length", 1e3, "km kilometre kilometres kilometer kilometers"),
        ("length", 1e-2, "cm centimetre centimetres centimeter centimeters"),
        ("length", 1e-3, "mm millimetre millimetres millimeter millimeters"),
        ("length", 1609.344, "mi mile miles"),
        ("length", 0.3048, "ft foot feet"),
        ("mass", 1.0, "g gram grams"),
        ("mass", 1e3, "kg kilogram kilograms kilo kilos"),
        ("mass", 453.59237, "lb lbs pound pounds"),
        ("time", 1.0, "second seconds"),
        ("time", 60.0, "min minute minutes"),
        ("time", 3600.0, "h hour hours"),
        ("time", 86400.0, "day days"),
        ("heat", 1.0, "°c celsius"),
        ("heat fahrenheit", 1.0, "°f fahrenheit"),
        ("share", 1.0, "% percent"),
    )
    for name in names.split()
}

_PLAIN = str.maketrans("\u2018\u2019\u201c\u201d\u2212", "''\"\"-")
_WORD_NUMBER = "|".join([*_VALUES, *_SCALES])
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_UNIT = r"(?:degrees?\s+)?(?P<unit>" + "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True)) + r")(?!\w)"
_NUMBER = re.compile(
    rf"(?<![\w.:/])(?P<sign>(?<![\w)])[-+])?[$€£]?(?P<digits>{_DIGITS})(?:\s+(?P<scale>{'|'.join(_SCALES)}))?(?![\w:/]|[.,]\d)"
    rf"|(?<![\w-])(?P<words>(?:{_WORD_NUMBER})(?:(?:[\s-]|\s+and\s+)(?:{_WORD_NUMBER}))*)(?![\w-])",
    re.IGNORECASE,
)
_HAS_UNIT = re.compile(rf"\s*(?:\\text\{{\s*)?{_UNIT}", re.IGNORECASE)
_ASKED_UNIT = re.compile(rf"\b(?:how many|in)\s+{_UNIT}", re.IGNORECASE)
_TIME = re.compile(r"(?<![\w:.])(\d{1,2}):(\d{2})(?![\d:])(?:\s*([ap])\.?m\b)?", re.IGNORECASE)
_MONTH = f"(?P<month>{'|'.join(_MONTHS)})"
_DATE = [
    re.compile(rf"(?<!\w){form}(?!\w)", re.IGNORECASE)
    for form in (
        r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)",
        rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of)?\s+{_MONTH},?(?:\s+(?P<year>\d{{4}}))?",
        rf"{_MONTH}\s+(?:the\s+)?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s+(?P<year>\d{{4}}))?",
        rf"{_MONTH}(?:\s+of)?,?\s+(?P<year>\d{{4}})",
    )
]
_PERSON = re.compile(
    r"\b(?:who|whom|whose)\b|\b(?:which|what|name of the)\s+(?:\w+\s+)?(?:actor|actress|author|artist|painter|poet|"
    r"composer|singer|player|golfer|footballer|driver|scientist|chemist|physicist|economist|president|king|queen|"
    r"explorer|director)\b",
    re.IGNORECASE,
)
_NO_FIRST_NAME = frozenset(
    "north south east west new great old red black white blue green united saint san los las el la le the of republic "
    "empire royal pink civil world".split()
)
_TITLE = re.compile(
    r"\b(?:mrs?|ms|dr|sir|lord|lady|president|king|queen|prince|pope|captain|general|professor|senator)\.?$", re.I
)


@dataclass(frozen=True)
class NumberMention:
    """A number where it stands, with the unit that follows it."""

    span: Span
    value: float
    decimals: int
    unit: str = ""

    def is_also(self, known: NumberMention, unit_asked: str) -> bool:
        """Return whether it is the known number: equal, more precise, or in another unit."""
        wanted, factor = _UNITS.get(known.unit or unit_asked, ("", 1.0))
        own, per = _UNITS.get(self.unit, ("", 1.0))
        if wanted.split()[:1] != own.split()[:1]:  # such as a count of something else, or no unit
            own, per, factor = wanted, 1.0, 1.0
        value = self.value * per / factor
        if own != wanted or not isclose(value, known.value, rel_tol=ROUNDED):
            return False
        precise = self.decimals > known.decimals or per != factor
        return isclose(value, known.value, rel_tol=NEAR) or (precise and round(value, known.decimals) == known.value)


@lru_cache(4096)
def plain_text(text: str) -> str:
    """Return a text without accents, marks of emphasis and typographic quotes; letter case is kept."""
    plain = unicodedata.normalize("NFKD", text)
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    plain = plain.translate(_PLAIN).replace("**", "")
    return re.sub(r"(?<=\d)\u202f(?=\d{3})", ",", plain)


def mentions(text: str, answer: str, asked: str) -> Iterator[tuple[Span, bool]]:
    """Yield each mention of the known answer, and whether it is a number."""
    writings = [one for part in plain_text(answer).split(ALTERNATIVES) if (one := part.strip(" .\n\t"))]
    new = [one for one in writings if not any(_words(asked, one))]  # what the question names is no answer to it
    for one in new if new and not re.search(r"\bor\b", asked) else writings:
        yield from ((span, False) for span in _words(text, one))
        if date := _date_of(one):
            yield from ((span, False) for span, other in _dates(text) if _within(date, other))
        elif time := _TIME.fullmatch(one):
            yield from ((found.span(), True) for found in _TIME.finditer(text) if _same_time(time, found))
        elif (known := _number_of(one)) is not None:
            named = _ASKED_UNIT.search(asked)
            unit = named["unit"].lower() if named else ""
            yield from ((each.span, True) for each in numbers(text) if each.is_also(known, unit))
        elif _PERSON.search(asked):
            yield from ((span, False) for span in _surname(text, one, asked))


# -- words and names ---------------------------------------------------------------------------------------------------


def _words(text: str, answer: str) -> Iterator[Span]:
    """Yield where the words of an answer stand; hyphens, full stops and initials may differ, or a plural's ending."""
    if _number_of(answer) is None and not _TIME.fullmatch(answer):
        yield from (found.span() for found in _pattern(answer).finditer(text))


@lru_cache(1024)
def _pattern(answer: str) -> re.Pattern[str]:
    answer = re.sub(r"\s*\([^)]*\)$", "", answer) or answer
    if re.fullmatch(r"[\w\s.,&'-]+", answer) is None or not re.search(r"\w", answer):
        return re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)", re.IGNORECASE)
    last_first = re.fullmatch(r"(\w+), (\w+)", answer)  # Dee, Jack
    words = re.findall(r"\w+|&", f"{last_first[2]} {last_first[1]}" if last_first else answer.replace("'", ""))
    if len(words) > 2 and words[0].lower() in ("the", "a", "an"):
        words = words[1:]
    between, pieces, initials = r"[\s.'-]*,?\s*(?:the\s+)?", list[str](), ""
    for place, word in enumerate(words):
        if 0 < place < len(words) - 1 and len(word) == 1 and word.isupper():
            initials += rf"{word}[\s.]*"  # all of them or none: George W. Bush is not George H. W. Bush
            continue
        pieces.append((f"(?:{initials})?" if initials else "") + _writings(word))
        initials = ""
    ending = "(?:s|es|'s)?" if len(words[-1]) > 2 and words[-1].isalpha() else ""
    return re.compile(rf"(?<!\w){between.join(pieces)}{ending}(?!\w)", re.IGNORECASE)


def _writings(word: str) -> str:
    """Return a pattern of a word, or of a small number in Roman numerals, digits or letters (of names)."""
    lower = word.lower()
    if lower == "&" or lower == "and":
        return "(?:&|and)"
    of_roman = {roman: n for n, roman in enumerate(_ROMAN) if len(roman) > 1}
    n = of_roman.get(lower, int(lower) if lower.isdecimal() and int(lower) <= 20 else None)
    if not n and word.isupper() and 1 < len(word) < 5:
        return r"\.?\s?".join(word) + r"\.?"  # JRR, J. R. R.
    if not n:
        return re.sub("(?<=..)(s)$", r"'?\1", re.escape(word), flags=re.IGNORECASE)
    forms = (str(n), f"{n}(?:st|nd|rd|th)", _ROMAN[n], _ORDINALS[n], *_SMALL[n : n + 1])
    return f"(?:{'|'.join(forms)})"


def _surname(text: str, answer: str, asked: str) -> Iterator[Span]:
    """Yield where a person's last name stands alone, or with initials or a title that fit, but no other first name."""
    names = answer.split()
    if not 2 <= len(names) <= 4 or not all(name[:1].isupper() for name in names) or names[0].lower() in _NO_FIRST_NAME:
        return
    first, last = names[0], names[-1].strip(".,")
    if len(last) < 4 or re.search(rf"(?<!\w){re.escape(last)}", asked, re.IGNORECASE):
        return
    for found in re.finditer(rf"(?<!\w){re.escape(last)}(?:'s)?(?!\w)", text):
        before = text[: found.start()].rstrip()
        word = re.search(r"[\w.'-]+$", before)
        alone = word is None or not word[0][0].isupper() or (before[-1] in ".!?:" and len(word[0]) > 3)
        fits = word is not None and (
            _TITLE.search(before) is not None or re.fullmatch(rf"{first[0]}\.?(?:\s?\w\.?)*", word[0])
        )
        if (alone or fits) and not re.match(r"\s+(?-i:[A-Z])", text[found.end() :]):
            yield found.span()


# -- numbers, times and dates ------------------------------------------------------------------------------------------


def numbers(text: str) -> list[NumberMention]:
    """Return the numbers of a text, in digits or words, in order."""
    return [_as_number(found, text) for found in _NUMBER.finditer(text)]


def _as_number(found: re.Match[str], text: str) -> NumberMention:
    unit = _HAS_UNIT.match(text, found.end())
    named = "" if unit is None else unit["unit"].lower()
    if found["words"]:
        return NumberMention(found.span(), _spelled(found["words"].lower()), 0, named)
    digits = found["digits"].replace(",", "")
    scale = _SCALES[found["scale"].lower()] if found["scale"] else 1.0
    value = float(digits) * scale * (-1 if found["sign"] == "-" else 1)
    return NumberMention(found.span(), value, 0 if found["scale"] else len(digits.partition(".")[2]), named)


def _spelled(words: str) -> float:
    """Return the value of number words: two hundred and five thousand."""
    total = part = 0.0
    for word in re.findall(r"[a-z]+", words.replace(" and ", " ")):
        if word == "hundred":
            part = max(part, 1.0) * 100
        elif word in _SCALES:
            total, part = total + max(part, 1.0) * _SCALES[word], 0.0
        else:
            part += _VALUES[word]
    return total + part


def _number_of(answer: str) -> NumberMention | None:
    """Return an answer that is a number, with a unit or without."""
    found = _NUMBER.match(answer)
    if found is None:
        return None
    number = _as_number(found, answer)
    rest = answer[found.end() :].strip().lower()
    return (
        number if rest in ("", "%") or (number.unit and rest.removeprefix("degrees ").strip() == number.unit) else None
    )


def _same_time(known: re.Match[str], found: re.Match[str]) -> bool:
    def minutes(of: re.Match[str], half: str | None) -> int:
        hour = int(of[1]) % 12 + 12 * (half in ("p", "P")) if half else int(of[1])
        return 60 * hour + int(of[2])

    if known[3] or not found[3] or int(known[1]) > 12:
        return minutes(known, known[3]) == minutes(found, found[3])
    return minutes(known, None) % 720 == minutes(found, found[3]) % 720


Date = tuple[int | None, int | None, int | None]  # year, month, day


def _dates(text: str) -> Iterator[tuple[Span, Date]]:
    for form in _DATE:
        yield from ((found.span(), _as_date(found)) for found in form.finditer(text))


def _as_date(found: re.Match[str]) -> Date:
    parts = found.groupdict()
    month = parts["month"].lower()
    number = _MONTHS.index(month) + 1 if month in _MONTHS else int(month)
    year, day = (int(parts[name]) if parts.get(name) else None for name in ("year", "day"))
    return year, number, day


def _date_of(answer: str) -> Date | None:
    return next((_as_date(found) for form in _DATE if (found := form.match(answer))), None)


def _within(known: Date, found: Date) -> bool:
    """Return whether a date is the known one, or a day of the known month."""
    return all(part is None or part == other for part, other in zip(known, found, strict=True))
