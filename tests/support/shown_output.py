"""Compares the output that a page shows with what its code printed.

The comparison is of words; blanks, line ends and the lines of tables count for nothing. A word `…` stands for any
words, or none. A number may differ by 2 % of itself and two units of its last shown digit, since sums in another order
round differently; all else must be the same.
"""

import re

NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
TABLE_LINES = {code: " " for code in range(0x2500, 0x2580)}


def absent(shown: str, printed: str) -> str:
    """Return the first words shown that were not printed where they should have been; nothing where all were."""
    runs: list[list[str]] = [[]]
    for word in words(shown):
        if word == "…":
            runs.append([])
        else:
            runs[-1].append(word)
    found, start = words(printed), 0
    for i, run in enumerate(runs):
        last = len(found) - len(run)
        places = range(start, last + 1)
        if i == 0:
            places = places[:1]
        if i == len(runs) - 1:
            places = range(last, last + 1) if last in places else range(0)
        at = next((p for p in places if all(map(alike, run, found[p : p + len(run)]))), None)
        if at is None:
            return " ".join(run) or "nothing more"
        start = at + len(run)
    return ""


def words(text: str) -> list[str]:
    return text.translate(TABLE_LINES).split()


def alike(shown: str, printed: str) -> bool:
    """Whether two words are the same but for small differences of their numbers."""
    if NUMBER.split(shown) != NUMBER.split(printed):
        return False
    return all(map(close, NUMBER.findall(shown), NUMBER.findall(printed)))


def close(shown: str, printed: str) -> bool:
    mantissa, _, exponent = shown.partition("e")
    digit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(float(shown) - float(printed)) <= 0.02 * abs(float(shown)) + 2 * digit + 1e-12
