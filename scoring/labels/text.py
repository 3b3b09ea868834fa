"""Corrected rates, agreement and the judge-error band as lines of text for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scoring.labels.corrected import LEAST, AnnotatorPair, Corrected, CorrectedRate
from scoring.labels.judge_error import NAME, ErrorBand
from scoring.rates import RATES, JointRates

WIDTH = 18  # of the column that names a rate


def corrected_lines(found: Corrected, judged: JointRates) -> Iterator[str]:
    """Yield a line for each rate as judged and as corrected, then lines about the labels."""
    yield f"rates as judged, and corrected by {found.labels} hand-labelled completions:"
    for name in RATES:
        yield f"{name:<{WIDTH}} judged {judged.of(name):.1%}; {_corrected(found.rates[name])}"
    for pair in found.agreement:
        yield pair_line(pair)
    if found.unused:
        yield f"Note: labels of completions that no rate counts (not judged, or another label): {found.unused}"


def _corrected(rate: CorrectedRate) -> str:
    if not rate.rate.known:
        least = f"at least {LEAST} are needed" if rate.labels < LEAST else "they are no random draw"
        return f"corrected: not enough labels ({rate.labels}; {least})"
    more = (
        f"{rate.labels_to_halve} would halve the interval"
        if rate.labels_to_halve
        else f"labelling all {rate.rate.n} would not halve the interval, more prompts would"
    )
    return f"corrected {rate.rate:.1%}, labels {rate.labels} ({more})"


def pair_line(pair: AnnotatorPair) -> str:
    """Return a line with the agreement of two annotators."""
    who, n = " and ".join(pair.annotators), pair.agreement.n
    kappa = "not defined (both gave all the same label)" if not pair.kappa.known else f"{pair.kappa:.2f}"
    return f"{who}: same action {pair.agreement:.1%}, Cohen's kappa {kappa}, labelled by both {n}"


def band_lines(bands: Mapping[str, ErrorBand]) -> Iterator[str]:
    """Yield a line for each rate with a band."""
    for name, band in bands.items():
        (low, high), (inner, outer), (least, most) = band.at_lowest_accuracy, band.at_highest_accuracy, band.accuracy
        yield (
            f"{name + ': ' + NAME:<52} {low:.1%} to {high:.1%} at accuracy {least:.0%}, {inner:.1%} to {outer:.1%} at "
            f"{most:.0%} (lowest and highest model of public sets)"
        )
