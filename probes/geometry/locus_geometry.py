"""The geometry of named contrasts at every layer and position: cosines, angles, transfer and cross-erasure.

Only directions of one locus are compared. Rows come out flat, for JSON or Parquet.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from probes.contrast import Contrast
from probes.geometry.cosines import Cosine, compare_directions
from probes.geometry.erasure import Erasure, cross_erasure, fit_erasers
from probes.geometry.fitted_direction import Fit, fit_with_null
from probes.geometry.subspaces import Angles, compare_reading, reading_subspace
from probes.geometry.transfer import Transfer, transfer
from probes.grid.probe_grid import Activations
from probes.means import difference_in_means
from probes.statistics.intervals import Interval


@dataclass(frozen=True)
class LocusGeometry:
    """What was measured at one locus: a pair of contrasts each, or an ordered pair with a contrast's own in it."""

    layer: int
    position: str
    cosines: tuple[Cosine, ...]
    angles: tuple[Angles, ...]
    transfers: tuple[Transfer, ...]
    erasures: tuple[Erasure, ...]

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Return flat rows by table: numbers and names only, an interval as three columns, None for what is NaN."""
        where = {"layer": self.layer, "position": self.position}
        named = {"cosines": self.cosines, "angles": self.angles, "transfers": self.transfers, "erasures": self.erasures}
        return {name: [where | flat(value) for value in values] for name, values in named.items()}


def geometry_grid(
    activations: Activations,
    layers: Sequence[int],
    positions: Sequence[str],
    contrasts: Sequence[Contrast],
    *,
    k: int = 2,
    fit: Fit = difference_in_means,
    n: int = 199,
    seed: int = 0,
    progress: Callable[[], None] = lambda: None,
) -> Iterator[LocusGeometry]:
    """Measure every locus in turn.

    Args:
        activations: `activations[i, j]` is (n_samples, d_model) at layers[i] and positions[j]; only the contrasts' rows
            need be finite.
        contrasts: with different names. Fits take the train part, AUROCs the test part; a group has one name and one
            part in all of them.
        k: the dimension of the reading subspaces.

    Raises:
        ValueError: names repeat, or what `geometry_at` raises, with the locus.
    """
    for i, layer in enumerate(layers):
        for j, position in enumerate(positions):
            try:
                yield geometry_at(activations[i, j], layer, position, contrasts, k=k, fit=fit, n=n, seed=seed)
            except ValueError as error:
                raise ValueError(f"layer {layer}, {position}: {error}") from error
            progress()


def geometry_at(
    X: np.ndarray,
    layer: int,
    position: str,
    contrasts: Sequence[Contrast],
    *,
    k: int = 2,
    fit: Fit = difference_in_means,
    n: int = 199,
    seed: int = 0,
) -> LocusGeometry:
    """Measure one locus.

    Raises:
        ValueError: names repeat, a class is missing from a train or test part, activations are not finite, or a group
            is trained on in one contrast and tested on in another.
    """
    names = [c.name for c in contrasts]
    if len(set(names)) < len(names):
        raise ValueError(f"contrasts need different names; got {', '.join(names)}")
    used = np.unique(np.concatenate([c.rows for c in contrasts]))
    X = np.asarray(X)[used].astype(np.float64)
    fits = [
        fit_with_null(X, replace(c, rows=np.searchsorted(used, c.rows)), fit=fit, n=n, seed=seed) for c in contrasts
    ]
    spaces = [reading_subspace(f, k) for f in fits]
    erasers = [fit_erasers(s.of, s.covariance) for s in spaces]
    return LocusGeometry(
        layer=layer,
        position=position,
        cosines=tuple(compare_directions(a, b) for a, b in itertools.combinations(fits, 2)),
        angles=tuple(compare_reading(a, b) for a, b in itertools.combinations(spaces, 2)),
        transfers=tuple(transfer(a, b) for a, b in itertools.product(fits, fits)),
        erasures=tuple(
            cross_erasure(a, b, e) for (a, e), b in itertools.product(zip(fits, erasers, strict=True), fits)
        ),
    )


def flat(value: Any) -> dict[str, Any]:
    """Flatten a dataclass of numbers, intervals and dataclasses: an interval NAME into NAME, NAME_low, NAME_high."""
    row: dict[str, Any] = {}
    for name, field in vars(value).items():
        if isinstance(field, Interval):
            row |= {name: field.estimate, f"{name}_low": field.low, f"{name}_high": field.high}
        elif isinstance(field, np.ndarray):
            row[name] = field.tolist()
        elif hasattr(field, "__dataclass_fields__"):
            row |= asdict(field)
        else:
            row[name] = field
    return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in row.items()}
