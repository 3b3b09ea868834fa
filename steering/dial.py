"""A dial: a calibrated read, a threshold, and a write. Values and algebra only; `controller` puts them into a model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeVar, get_args

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist
from scipy.special import expit, softmax
from torch import Tensor

from extract.errors import UserError
from extract.model.edit import Site
from probes.direction import Direction, Locus
from probes.grid.logistic import LinearProbe, Platt
from steering.actuator import Actuator, Affine, OnsetBias
from steering.writer import Writer

Kind = Literal["normative", "epistemic"]
ReadName = Literal["normative", "epistemic", "category"]  # what a prompt is read for
Asked = float | Literal["off"] | None  # a threshold in a request; NaN is off, too; None: the dial's, or its category's
Values = TypeVar("Values", np.ndarray, Tensor)
# labels of the class that does not decline
ANSWERING = ("answer", "answer_with_caveat", "correct_premise", "answered", "benign", "known")


@dataclass(frozen=True)
class CategoryRead:
    """A multinomial logistic probe of the category at one locus; ValueError if names repeat or shapes do not fit."""

    names: tuple[str, ...]  # "" stands for every other category
    locus: Locus
    weight: Float[np.ndarray, "names d_model"]
    bias: Float[np.ndarray, " names"]
    confident: float  # least probability from which a category counts as recognised

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"categories must have different names: {', '.join(self.names)}")
        if len(self.weight) != len(self.names) or self.bias.shape != (len(self.names),):
            shapes = f"weights of shape {self.weight.shape} and biases of shape {self.bias.shape}"
            raise ValueError(f"{len(self.names)} categories, but {shapes}")

    def recognised(self, streams: Float[np.ndarray, "n d_model"]) -> list[str | None]:
        """Return the category of each stream at the locus; None where none is recognised confidently."""
        logits = streams.astype(np.float64) @ self.weight.T.astype(np.float64) + self.bias
        return named(self.names, softmax(logits, axis=1), self.confident)


def named(names: tuple[str, ...], probability: Float[np.ndarray, "n names"], confident: float) -> list[str | None]:
    """Return the most probable category of each row; None where it is not confident, or is no category."""
    best = probability.argmax(axis=1)
    sure = probability[np.arange(len(best)), best] >= confident
    return [names[i] or None if ok else None for i, ok in zip(best.tolist(), sure.tolist(), strict=True)]


@dataclass(frozen=True)
class CategoryThresholds:
    """The thresholds of one dial for prompts of recognised categories; others have the dial's own."""

    read: CategoryRead
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.thresholds) - set(self.read.names)):
            raise ValueError(f"a threshold is given for {unknown[0]!r}, which the category read does not recognise")
        if off := [name for name, tau in self.thresholds.items() if math.isnan(tau)]:
            raise ValueError(f"the threshold of {off[0]!r} is no number; a dial cannot be off for a category")


@dataclass(frozen=True)
class Threshold:
    """The resolved threshold of one dial for one prompt, which its recognised category may replace; None: off."""

    value: float | None
    by_category: Mapping[str, float] = field(default_factory=dict)

    def of(self, category: str | None) -> float:
        """Return the threshold for a prompt of a recognised category (None: none is recognised); NaN where off."""
        value = math.nan if self.value is None else self.value
        return self.by_category.get(category, value) if category else value


UNLIKE = 0.01  # of the certification prompts, or fewer, are as far from all others as a prompt unlike them


@dataclass(frozen=True, eq=False)
class Reference:
    """What a dial read when it was certified: served prompts and answers are compared with it."""

    probability: Float[np.ndarray, " prompts"]  # of the certification prompts, one a group, which it was not fitted on
    streams: Float[np.ndarray, "prompts d_model"]  # of the same prompts, where it reads
    answers: Float[
        np.ndarray, " answers"
    ]  # highest log-odds of a token of each plain answer to a benign one, ascending
    answer_tokens: int  # how many tokens of each answer were read, at most

    def answer_limit(self, budget: float) -> float:
        """Return the log-odds above which at most this share of benign answers have a token (split conformal).

        Of n + 1 exchangeable answers the new one is above the k-th highest of the others with probability k / (n + 1)
        (Papadopoulos et al. 2002). UserError: so few answers give no such limit.
        """
        if (k := math.floor(budget * (len(self.answers) + 1) + 1e-9)) < 1:
            needed, there = math.ceil(1 / budget) - 1, len(self.answers)
            raise UserError(
                f"a dial that alarms in at most {budget:.2%} of benign answers needs {needed} answers to calibration "
                f"prompts; these dials have {there}: allow more, or make dials of more prompts"
            )
        return float(self.answers[len(self.answers) - k])

    @cached_property
    def _nearest(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The scale of each dimension, the scaled streams, and their distances to the nearest other one, sorted."""
        wide = self.streams.astype(np.float64)
        spread = wide.std(axis=0)
        scale = np.where(spread > 0, spread, np.inf)  # a dimension without spread tells nothing
        scaled = wide / scale
        apart = cdist(scaled, scaled)
        np.fill_diagonal(apart, np.inf)
        return scale, scaled, np.sort(apart.min(axis=1))

    @property
    def compares(self) -> bool:
        """Whether there are so many certification prompts that a prompt can be unlike all but 1 % of them."""
        return len(self.streams) >= 1 / UNLIKE - 1

    def unlike(self, streams: Float[np.ndarray, "n d_model"]) -> Float[np.ndarray, " n"]:
        """Return the share of certification prompts that are as far from their nearest one; small: unlike all of them.

        Distances are Euclidean, of each dimension in its standard deviations.
        """
        scale, scaled, own = self._nearest
        away = cdist(streams / scale, scaled).min(axis=1)
        return (1 + len(own) - np.searchsorted(own, away)) / (1 + len(own))


@dataclass(frozen=True)
class Dial:
    """One gate of the model: `p(decline) >= threshold` declines, below it permits; a dead band leaves it alone.

    It reads with a probe at a locus, or, where `read`, `probe` and `calibration` are None, the model's own probability
    of its actuator's onset prefixes. It writes along a direction, or, where `write` is None, by an onset bias.

    Args:
        steps: how many steps it writes at: 1 is the prefill only, k is until an onset of k tokens is past, None is
            every step. The prefill writes at the last prompt token, each later step at the token it has said.
        later: write at later layers too, those that `write` has class means of.
        opening: further directions that it sets to their answering means where it permits; see `Writer`.
        by_category: thresholds of its own for prompts of recognised categories; None: one for all prompts.
        reread: read again at every token said, and decide there what is written at it.
        reference: what it read when it was certified.
        answer_limit: log-odds above which a token of an answer alarms; None: answers are not watched. See `alarm`.

    Raises:
        ValueError: the parts do not go together.
    """

    kind: Kind
    read: Locus | None
    probe: LinearProbe | None
    calibration: Platt | None
    threshold: float
    band: float
    write: Direction | None
    actuator: Actuator = field(default_factory=Affine)
    steps: int | None = None
    reread: bool = False
    later: bool = False
    opening: tuple[Direction, ...] = ()
    by_category: CategoryThresholds | None = None
    reference: Reference | None = None
    answer_limit: float | None = None

    def __post_init__(self) -> None:
        biased = isinstance(self.actuator, OnsetBias)
        if self.write is not None and str(self.write.provenance.get("positive_class")) in ANSWERING:
            points_to = self.write.provenance["positive_class"]
            raise ValueError(
                f"the direction {self.write.name!r} points to {points_to!r}; a dial needs one that points "
                "to declining: name that class with positive= in the fit"
            )
        reads = {part is not None for part in (self.read, self.probe, self.calibration)}
        if len(reads) > 1:
            raise ValueError("a dial that reads the stream has a locus, a probe and a calibration: give all or none")
        _ = self.writer  # checks what it writes
        if self.read is None and not biased:
            raise ValueError("a dial without a probe reads its onset prefixes: its actuator must be an onset bias")
        if self.reread and (biased or self.steps == 1):
            raise ValueError("a dial that reads again at each token must write at tokens said, into the stream")

    @property
    def category_thresholds(self) -> Mapping[str, float]:
        return {} if self.by_category is None else self.by_category.thresholds

    @property
    def writer(self) -> Writer:
        return Writer(self.write, self.actuator, self.steps, self.later, self.opening)

    def probability(self, streams: Float[np.ndarray, "n d_model"]) -> Float[np.ndarray, " n"]:
        """Return the calibrated probability of the declining class for activations at the read locus."""
        return expit(self.log_odds(streams))

    def log_odds(self, streams: Float[np.ndarray, "*batch d_model"]) -> Float[np.ndarray, "*batch"]:
        """Return the log-odds of `probability`; for activations at another position they are no more than a score."""
        if self.probe is None or self.calibration is None:
            raise ValueError(f"the {self.kind} dial reads its onset prefixes, not the stream")
        return self.calibration.log_odds(self.probe.decision_function(streams))

    def alarm(self, budget: float) -> Dial:
        """Return a dial that reads, and watches answers with this share of false alarms a benign one, and never writes.

        UserError: it reads no stream, or was made without a reference, or with one too small for the budget.
        """
        if self.probe is None:
            raise UserError(f"the {self.kind} dial reads its onset prefixes, not the stream: it cannot watch answers")
        if self.reference is None:
            raise UserError(f"the {self.kind} dial has no answers to compare with: make it again with refusal steer")
        limit, silent = self.reference.answer_limit(budget), replace(self.actuator, strength=0.0)
        return replace(self, actuator=silent, reread=False, answer_limit=limit)

    def resolved(self, asked: Asked | Threshold = None) -> Threshold:
        """Return the threshold of a prompt: the one that is asked for, else its category's, else the dial's own."""
        if isinstance(asked, Threshold):
            return asked
        if asked is None:
            return Threshold(self.threshold, self.category_thresholds)
        return Threshold(None if asked == "off" or math.isnan(asked) else float(asked))


def alarming(dials: Sequence[Dial], budget: float) -> list[Dial]:
    """Return dials that alarm in at most this share of benign answers, all together; see `Dial.alarm`."""
    return [dial.alarm(budget / len(dials)) for dial in dials]


def decide(probability: Values, threshold: Values | float, band: Values | float) -> Values:
    """Return the gates of dials, the first axis, the normative dial first: 1 declines, -1 permits, 0 leaves.

    A gate declines from threshold + band on and permits below threshold - band; at a NaN threshold (off) it leaves.
    Where the first gate declines, the second leaves. Arrays or tensors, of shapes that broadcast together.
    """
    gates = 1 * (probability >= threshold + band) - 1 * (probability < threshold - band)
    gates[1:] *= gates[:1] <= 0
    return gates


def normative_first(dials: Sequence[Dial]) -> list[Dial]:
    """Return dials in the order in which they decide."""
    return sorted(dials, key=lambda dial: dial.kind != "normative")


def check_order(dials: Sequence[Dial]) -> None:
    """Refuse dials whose reads do not all come before every write, or at the same place (readers are called first)."""

    def depth(locus: Locus) -> tuple[int, int]:
        return locus.layer, get_args(Site).index(locus.site)  # in the order in which a block passes them

    reads = list(read_places(dials).values())
    writes = [dial.write.locus for dial in dials if dial.write is not None]
    if not reads or not writes:
        return
    latest, first = max(reads, key=depth), min(writes, key=depth)
    if depth(latest) > depth(first):
        raise UserError(
            f"a dial reads {latest.site} at layer {latest.layer} but one writes {first.site} at layer {first.layer}: "
            "reads must come before writes"
        )


def check_width(dials: Sequence[Dial], d_model: int, model: str) -> None:
    """Refuse dials whose vectors are of another width than the model's streams."""
    for dial in dials:
        vectors = [] if dial.probe is None else [dial.probe.weight]
        vectors += [] if dial.write is None else [dial.write.vector, *(one.vector for one in dial.opening)]
        vectors += [] if dial.by_category is None else list(dial.by_category.read.weight)
        if wrong := [len(vector) for vector in vectors if vector.shape != (d_model,)]:
            raise UserError(f"the {dial.kind} dial is for streams of {wrong[0]} dimensions; {model} has {d_model}")


def read_places(dials: Sequence[Dial]) -> dict[ReadName, Locus]:
    """Return where each dial reads, in their order, and then where the category is read, of what has a place."""
    places: dict[ReadName, Locus] = {dial.kind: dial.read for dial in dials if dial.read is not None}
    categories = category_read(dials)
    return places if categories is None else places | {"category": categories.locus}


def reads_at(what: ReadName, locus: Locus) -> str:
    """Return where a dial reads, or where the category is read, as words."""
    return f"{'the category is read' if what == 'category' else f'the {what} dial reads'} at {locus.position}"


def category_read(dials: Sequence[Dial]) -> CategoryRead | None:
    """Return the category read of the dials; None where none has thresholds by category."""
    reads = [dial.by_category.read for dial in dials if dial.by_category is not None]
    if any(read is not reads[0] for read in reads):
        raise UserError("the dials recognise categories by different probes: take them from one file")
    return reads[0] if reads else None
