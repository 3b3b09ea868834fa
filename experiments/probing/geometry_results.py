"""Typed results of the geometry of directions: by locus, independence under ablation."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from experiments.run.behaviour import Kind
from extract.record import Record
from probes.direction import Locus
from probes.geometry.locus_geometry import LocusGeometry
from probes.statistics.intervals import Estimate
from probes.statistics.permutation import PValue


@dataclass(frozen=True, kw_only=True)
class BoundaryRow(Estimate):
    """Where n over-refused prompts lie: 0 at answered benign ones, 1 at harmful ones."""

    layer: int
    position: str


class ReadWriteRow(Record):
    """The cosine of the read direction (of the label) and the write direction (of the behaviour) at one locus."""

    kind: Kind
    layer: int
    position: str
    cosine: float
    p: PValue
    n_permuted: int


@dataclass(frozen=True)
class GeometryAtLocus(LocusGeometry):
    """The geometry of the locus at which harmfulness is read."""

    read_against_write: tuple[ReadWriteRow, ...] = ()


class GeometryByLocus(Record):
    """stages/geometry.json."""

    loci: tuple[LocusGeometry, ...]
    read_against_write: tuple[ReadWriteRow, ...]

    def at(self, layer: int, position: str) -> GeometryAtLocus:
        """Return what is measured at one locus."""
        empty = LocusGeometry(layer, position)
        measured = next((g for g in self.loci if (g.layer, g.position) == (layer, position)), empty)
        rows = tuple(row for row in self.read_against_write if (row.layer, row.position) == (layer, position))
        return GeometryAtLocus(**vars(measured), read_against_write=rows)


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
