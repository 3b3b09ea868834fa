"""A dial: a calibrated read, a threshold, and a write. Values and algebra only; `controller` puts them into a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

from extract.errors import UserError
from extract.model.edit import Site
from probes.direction import Direction, Locus
from probes.grid.logistic import LinearProbe, Platt
from steering.actuator import Actuator, Affine, OnsetBias
from steering.dial.category import CategoryRead, CategoryThresholds
from steering.writer import Writer

Kind = Literal["normative", "epistemic"]
ReadName = Literal["normative", "epistemic", "category"]  # what a prompt is read for
# labels of the class that does not decline
ANSWERING = ("answer", "answer_with_caveat", "correct_premise", "answered", "benign", "known")


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
    def writer(self) -> Writer:
        """What its gate does."""
        return Writer(self.write, self.actuator, self.steps, self.later, self.opening)

    def probability(self, streams: Float[np.ndarray, "n d_model"]) -> Float[np.ndarray, " n"]:
        """Return the calibrated probability of the declining class for activations at the read locus."""
        return expit(self.log_odds(streams))

    def log_odds(self, streams: Float[np.ndarray, "*batch d_model"]) -> Float[np.ndarray, "*batch"]:
        """Return the log-odds of `probability`; for activations at another position they are no more than a score."""
        if self.probe is None or self.calibration is None:
            raise ValueError(f"the {self.kind} dial reads its onset prefixes, not the stream")
        return self.calibration.log_odds(self.probe.decision_function(streams))

    def gate(
        self, probability: Float[np.ndarray, ...], threshold: float | Float[np.ndarray, ...] | None = None
    ) -> Int[np.ndarray, ...]:
        """Return its gates, by its own threshold where none is given; see `gate`."""
        return gate(probability, self.threshold if threshold is None else threshold, self.band)


def gate(
    probability: Float[np.ndarray, ...], threshold: float | Float[np.ndarray, ...], band: float
) -> Int[np.ndarray, ...]:
    """Return +1 (decline), -1 (permit) or 0 (leave, in the dead band) for each probability; a NaN threshold leaves."""
    return np.where(probability >= threshold + band, 1, np.where(probability < threshold - band, -1, 0))


def check_order(dials: Sequence[Dial]) -> None:
    """Refuse dials whose reads do not all come before every write, or at the same place (readers are called first).

    Raises:
        UserError: a read would see what a dial wrote, which would make it circular.
    """
    reads = list(read_places(dials).values())
    writes = [dial.write.locus for dial in dials if dial.write is not None]
    if not reads or not writes:
        return
    latest, first = max(reads, key=_depth), min(writes, key=_depth)
    if _depth(latest) > _depth(first):
        raise UserError(
            f"a dial reads {latest.site} at layer {latest.layer} but one writes {first.site} at layer {first.layer}: "
            "reads must come before writes"
        )


def read_places(dials: Sequence[Dial]) -> dict[ReadName, Locus]:
    """Return where each dial reads, in their order, and then where the category is read; what has no place is absent.

    Raises:
        UserError: the dials have different category reads.
    """
    places: dict[ReadName, Locus] = {dial.kind: dial.read for dial in dials if dial.read is not None}
    categories = category_read(dials)
    return places if categories is None else places | {"category": categories.locus}


def category_read(dials: Sequence[Dial]) -> CategoryRead | None:
    """Return the category read of the dials; None where none has thresholds by category.

    Raises:
        UserError: they have different ones.
    """
    reads = [dial.by_category.read for dial in dials if dial.by_category is not None]
    if any(read is not reads[0] for read in reads):
        raise UserError("the dials recognise categories by different probes: take them from one file")
    return reads[0] if reads else None


def _depth(locus: Locus) -> tuple[int, int]:
    return locus.layer, get_args(Site).index(locus.site)  # in the order in which a block passes them
