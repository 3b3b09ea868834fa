"""Typed results of the geometry of directions: tables by locus, cosines, independence under ablation."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from experiments.run.behaviour import Kind
from extract.record import Record
from probes.direction import Locus
from probes.statistics.intervals import Estimate
from probes.statistics.permutation import PValue


class LocusRow(Record):
    """A row of a table with one row for each locus and pair of contrasts."""

    layer: int
    position: str


class CosineRow(LocusRow):
    """The cosine of two contrasts' directions (`probes.geometry.cosines.Cosine`)."""

    a: str
    b: str
    fitted: float | None
    noise_free: float | None
    noise_free_low: float | None
    noise_free_high: float | None
    reliability_a: float | None
    reliability_b: float | None
    p: float | None
    p_a: float | None
    p_b: float | None
    p_both: float | None
    null_95: float | None
    n: int
    n_shared: int


@dataclass(frozen=True, kw_only=True)
class BoundaryRow(Estimate):
    """Where n over-refused prompts lie: 0 at answered benign ones, 1 at harmful ones."""

    layer: int
    position: str


class AngleRow(LocusRow):
    """Principal angles of two reading subspaces (`probes.geometry.subspaces.Angles`)."""

    a: str
    b: str
    angles: tuple[float, ...]
    p: float | None
    p_a: float | None
    p_b: float | None
    p_both: float | None
    null_95: float | None
    n: int


class TransferRow(LocusRow):
    """One contrast's direction tested on another (`probes.geometry.transfer.Transfer`)."""

    fitted_on: str
    tested_on: str
    auroc: float | None
    auroc_low: float | None
    auroc_high: float | None
    p: float | None
    p_fitted: float | None
    p_tested: float | None
    null_low: float | None
    null_high: float | None
    n: int


class ErasureRow(LocusRow):
    """One contrast read after another is erased (`probes.geometry.erasure.Erasure`)."""

    erased: str
    read_contrast: str = Field(alias="read")
    before: float | None
    before_low: float | None
    before_high: float | None
    after: float | None
    after_low: float | None
    after_high: float | None
    fresh_before: float | None
    fresh_before_low: float | None
    fresh_before_high: float | None
    fresh_after: float | None
    fresh_after_low: float | None
    fresh_after_high: float | None
    p: float | None
    null_after: float | None
    null_after_low: float | None
    n: int


class ReadWriteRow(Record):
    """The cosine of the read direction (of the label) and the write direction (of the behaviour) at one locus."""

    kind: Kind
    layer: int
    position: str
    cosine: float
    p: PValue
    n_permuted: int


class GeometryTables(Record):
    """stages/geometry.json: the tables for every locus."""

    cosines: tuple[CosineRow, ...]
    angles: tuple[AngleRow, ...]
    transfers: tuple[TransferRow, ...]
    erasures: tuple[ErasureRow, ...]
    read_against_write: tuple[ReadWriteRow, ...]

    def at(self, layer: int, position: str) -> GeometryAtLocus:
        """Return the rows of one locus."""
        here = {
            name: [row for row in getattr(self, name) if (row.layer, row.position) == (layer, position)]
            for name in type(self).model_fields
        }
        return GeometryAtLocus(layer=layer, position=position, **here)


class GeometryAtLocus(LocusRow):
    """The rows of the locus at which harmfulness is read."""

    cosines: tuple[CosineRow, ...]
    angles: tuple[AngleRow, ...]
    transfers: tuple[TransferRow, ...]
    erasures: tuple[ErasureRow, ...]
    read_against_write: tuple[ReadWriteRow, ...]


class StreamChange(Record):
    """Mean absolute change of the stream along one direction when another is ablated, and its null."""

    layer: int | None = None  # None: the average over the layers from the ablated one on
    change: Estimate
    null_95th_percentile: float | None
    p_null: float | None
    share: float | None = None  # of the average only: ratio to the change along the ablated direction itself
    by_layer: tuple[StreamChange, ...] = ()


class Independence(Record):
    """The change that ablating one direction makes to the stream along another."""

    ablated: Locus
    watched: Locus
    n: int
    n_null: int
    cosine: StreamChange
    projection: StreamChange  # in units of the gap between the watched direction's class means


class Geometry(Record):
    """Cosines between the fitted directions, and their independence under ablation."""

    cosine: float | None = None  # of the two write directions, at the normative one's locus
    cosine_by_layer: dict[str, float | None] = Field(default_factory=dict)
    between_chosen: dict[str, float | None] = Field(default_factory=dict)
    independence: dict[str, Independence] | None = None
    over_refused_place: tuple[BoundaryRow, ...] = ()  # at each layer, at the normative read probe's position
    at_read_locus: GeometryAtLocus | None = Field(None, alias="read")
