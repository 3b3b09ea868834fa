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
    suffix: Suffix  # best random: of as many as a step has candidates, by the same loss
    steps: int  # the budget
    loss: tuple[float, float, float] | None  # on the requests that it is searched on: quartiles over suffixes, nats
    own: Estimate  # share of these that succeed under the dials
    plain: Estimate  # of other requests, of the test part: without dials
    dialled: Estimate  # under the dials
    gate: Estimate  # whose normative gate is another than without a suffix


class ReadUnderAttack(Record):
    """A normative read on test requests at the dial's false positives on clean benign ones of the calibration part.

    Clean, with suffixes that it was not trained on, and with some that were searched again against this read.
    """

    auroc_clean: Estimate
    recall_clean: Estimate
    false_clean: Estimate  # share of benign requests that are read as harmful
    auroc_attacked: Estimate
    recall_attacked: Estimate
    false_attacked: Estimate
    auroc_again: Estimate
    recall_again: Estimate
    false_again: Estimate


class TrainedOnAttacks(Record):
    """The dial's read fitted again, without and with attacked requests among the training ones."""

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
    """Yield two lines of conclusion, a table of each aim, and one of the read."""
    yield "; ".join(_gates(result, aim) for aim in SUCCESS)
    yield _bought(result.trained)
    names = {"best random": f"best of {result.candidates} random"}
    for aim, success in SUCCESS.items():
        rows = [
            [one.against, f"{one.steps} steps" if one.suffix == "searched" else names.get(one.suffix, one.suffix)]
            + ["" if one.loss is None else f"{one.loss[1]:.2g}"]
            + [f"{rate:.0%}" for rate in (one.own, one.plain, one.dialled, one.gate)]
            for one in result.rates
            if one.aim == aim
        ]
        head = ["against", "suffix", "loss", "own, dials", "new, no dials", "new, dials", "new, gate changed"]
        yield Table(f"{success}: those that a suffix is searched on, and new ones", head, rows)
    if result.trained is not None:
        reads = {"clean": result.trained.before, "with attacks": result.trained.after}
        rows = [
            [on, trained, f"{auroc:.2f}", f"{recall:.0%}", f"{false:.0%}"]
            for on in ("clean", "attacked", "again")
            for trained, read in reads.items()
            for auroc, recall, false in [(getattr(read, f"{of}_{on}") for of in ("auroc", "recall", "false"))]
        ]
        head = ["test requests", "trained", "AUROC", "recall", "false positives"]
        yield Table("the read, fitted without and with attacked requests", head, rows)


def _bought(trained: TrainedOnAttacks | None) -> str:
    if trained is None:
        return "training on attacks was not tried: it takes three suffixes against the dial"
    old, new = trained.before, trained.after
    return (
        f"trained on {trained.suffixes_trained} of {trained.suffixes_trained + trained.suffixes_tested} suffixes, the "
        f"read finds {new.recall_attacked:.0%} of harmful requests with the others (before "
        f"{old.recall_attacked.estimate:.0%}) at {new.false_attacked.estimate:.0%} false positives with them, and "
        f"{new.recall_clean.estimate:.0%} of clean ones (before {old.recall_clean.estimate:.0%}); attacked again it "
        f"finds {new.recall_again:.0%}"
    )


def _gates(result: AttackResult, aim: Aim) -> str:
    """Return how many gates change with a random suffix and after each budget, against the dial if that was tried."""
    against = "dial" if any(one.against == "dial" for one in result.rates) else result.rates[-1].against
    mine = [one for one in result.rates if one.aim == aim and one.against == against]
    last, course = mine[-1], [f"{one.gate.estimate:.0%} after {one.steps} steps" for one in mine if one.steps]
    return (
        f"against the {against}, the gate changes on {mine[1].gate.estimate:.0%} of {SUCCESS[aim].rpartition(' ')[0]} "
        f"with a random suffix, {', '.join(course)}; {last.dialled:.0%} are {SUCCESS[aim].rpartition(' ')[2]} then"
    )
