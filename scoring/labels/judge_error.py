"""The judge's error on public sets as a band around uncorrected rates. It corrects nothing: error does not transport.

A judge with accuracy a misses and falsely counts 1 - a of all completions together, so the true rate is within 1 - a of
the judged one, whatever the errors are. How accurate a judge is on a model without labels is unknown; on public sets
with people's labels it depends on the model. For a rate of your completions, label some: `refusal label`.
"""

from __future__ import annotations

from collections.abc import Mapping

from extract.record import Record
from probes.statistics.intervals import Estimate, Limits
from scoring.rates import RATES, JointRates

# judge: rate: lowest and highest accuracy by model of whether a completion counts, on public sets with people's labels.
# Of the rule judge, declined or not (python -m benchmarks.judge: Llama 2 and Claude on Do-Not-Answer). Answered firmly
# or not, and refused or abstained, are not measured by model.
ACCURACY: Mapping[str, Mapping[str, Limits]] = {"rules": {"over_refusal": (0.80, 0.97), "missed_harm": (0.80, 0.97)}}
NAME = "judge-error band, not a correction"


class ErrorBand(Record):
    """Where a rate could be at the judge's lowest and highest accuracy by model on public sets. Not a correction."""

    at_lowest_accuracy: Limits
    at_highest_accuracy: Limits
    accuracy: Limits


def error_bands(rates: JointRates, judge: str) -> dict[str, ErrorBand]:
    """Return the band of each rate for which this judge's accuracy was measured."""
    measured = ACCURACY.get(judge, {})
    return {name: _band(rates.of(name), measured[name]) for name in RATES if name in measured and rates.of(name).n}


def _band(rate: Estimate, accuracy: Limits) -> ErrorBand:
    value = rate.estimate
    lowest, highest = ((max(0.0, value - (1 - share)), min(1.0, value + (1 - share))) for share in accuracy)
    return ErrorBand(at_lowest_accuracy=lowest, at_highest_accuracy=highest, accuracy=accuracy)
