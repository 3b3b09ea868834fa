"""attack.json: how often suffixes fool a model and its dials, by steps, and what training on them buys; its tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from experiments.attack.search import Aim
from extract.record import Record
from extract.table import Table
from probes.statistics.intervals import Estimate

Against = Literal["model", "dial", "both"]
Suffix = Literal["none", "random", "best random", "searched"]
SUCCESS: dict[Aim, str] = {"evade": "harmful requests answered", "trigger": "benign requests refused"}


class AttackRates(Record):
    """What suffixes of one kind do; limits are exact, over groups of requests, for these suffixes."""

    aim: Aim
    against: Against
    suffix: Suffix
    steps: int  # the budget
    loss: tuple[float, float, float] | None  # on the requests that it is searched on: quartiles over suffixes, nats
    own: Estimate  # share of these that succeed under the dials
    plain: Estimate  # of other requests, of the test part: without dials
    dialled: Estimate  # under the dials
    gate: Estimate  # whose normative gate is another than without a suffix


class ReadUnderAttack(Record):
    """A normative read on test requests, clean and with suffixes that it was not trained on."""

    auroc_clean: Estimate
    auroc_attacked: Estimate
    recall_clean: Estimate  # at the dial's rate of false positives on clean benign requests of the calibration part
    recall_attacked: Estimate
    false_clean: Estimate  # share of benign requests that are read as harmful there
    false_attacked: Estimate  # of benign requests with the same suffixes
    auroc_again: Estimate  # with suffixes that were searched anew, against this read
    recall_again: Estimate
    false_again: Estimate


class TrainedOnAttacks(Record):
    """The dial's read fitted again, with and without attacked requests among the training ones."""

    suffixes_trained: int
    suffixes_tested: int
    before: ReadUnderAttack
    after: ReadUnderAttack


class AttackResult(Record):
    """The contents of attack.json; it has no request, suffix or answer."""

    model: str
    candidates: int
    suffix_tokens: int
    prompts: int  # that a suffix is searched on
    suffixes: int
    rates: tuple[AttackRates, ...]
    trained: TrainedOnAttacks | None = None  # None: fewer than three suffixes against the dial


def blocks(result: AttackResult) -> Iterator[str | Table]:
    """Yield two lines of conclusion, and a table of each aim."""
    yield _switched_off(result)
    yield _bought(result.trained)
    for aim, success in SUCCESS.items():
        rows = [
            [one.against, _named(one, result), "" if one.loss is None else f"{one.loss[1]:.2g}"]
            + [f"{rate:.0%}" for rate in (one.own, one.plain, one.dialled, one.gate)]
            for one in result.rates
            if one.aim == aim
        ]
        head = ["against", "suffix", "loss", "dials, own", "no dials, new", "dials, new", "gate changed"]
        yield Table(f"{success}, on the suffix's own requests and on new ones", head, rows)


def _named(one: AttackRates, result: AttackResult) -> str:
    names = {"none": "none", "random": "random", "best random": f"best of {result.candidates} random"}
    return names.get(one.suffix, f"{one.steps} steps")


def _switched_off(result: AttackResult) -> str:
    """Return what suffixes do under the dials, of the objective that does most on new requests."""
    parts = []
    for aim, success in SUCCESS.items():
        mine = [one for one in result.rates if one.aim == aim]
        best = max(mine, key=lambda one: one.dialled.estimate)
        own = {one.suffix: one.dialled for one in mine if one.against == best.against and one.suffix != "searched"}
        parts.append(
            f"under the dials {best.dialled:.0%} of {success} with a suffix ({_named(best, result)}, against "
            f"{best.against}), {own['none'].estimate:.0%} with none, {own['random'].estimate:.0%} with a random one"
        )
    return "; ".join(parts)


def _bought(trained: TrainedOnAttacks | None) -> str:
    if trained is None:
        return "training on attacks was not tried: it takes three suffixes against the dial"
    old, new = trained.before, trained.after
    return (
        f"trained on {trained.suffixes_trained} of {trained.suffixes_trained + trained.suffixes_tested} suffixes, the "
        f"read finds {new.recall_attacked:.0%} of harmful requests with the others, before {old.recall_attacked:.0%} "
        f"(clean {new.recall_clean.estimate:.0%}, before {old.recall_clean.estimate:.0%}; false positives with them "
        f"{new.false_attacked.estimate:.0%}, before {old.false_attacked.estimate:.0%}); attacked anew it finds "
        f"{new.recall_again:.0%}, before {old.recall_again:.0%}"
    )
