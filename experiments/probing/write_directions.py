"""Write directions: fitted on behaviour at a layer and position. The edits made with them are in `steering.ablation`.

Its locus is where a direction was fitted, at any prompt position from the end of the instruction on. It is always
*written* at that layer from the last prompt token on, and its class means (the targets of the edit) are measured there:
selection, its null, the dissociation matrix and the dials make the same edit, the means of an earlier position would
push the last token out of its distribution, and keys and values of all tokens before it are computed once. Limit: the
edit does not change information at earlier tokens that attention reads from there. Of a model that thinks first a
direction may be fitted in the thought, too: it is written from the prompt's end on all the same, and set to the means
of where it was fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from experiments.run.behaviour import Kind, WriteSamples
from experiments.run.config import WRITE_POSITION, set_at
from extract.capture_spec import WITHIN_THOUGHT
from extract.store.activation_store import ActivationStore
from probes.direction import Direction, Locus
from probes.means import SAME_MEAN, difference_in_means, unit

Read = Callable[[int, str], Float[np.ndarray, "prompts d_model"]]  # of a layer and a position


class WriteFitter:
    """Fits one kind's write directions at every candidate locus; reads the training prompts' streams once."""

    def __init__(
        self,
        read: Read,
        site: str,
        loci: Sequence[tuple[int, str]],
        kind: Kind,
        samples: WriteSamples,
        later: Sequence[int] = (),
    ):
        """Read the streams; at `later` layers, directions fitted at earlier ones get class means too."""
        self.kind, self.samples, self._later = kind, samples, tuple(later)
        self._loci = [Locus(site, layer, position) for layer, position in loci]
        wanted = {*loci, *((layer, set_at(position)) for layer, position in loci)}
        wanted |= {(layer, set_at(position)) for layer in later for _, position in loci}
        self._streams = {locus: read(*locus)[samples.rows] for locus in sorted(wanted)}

    def fit(self, declined: Bool[np.ndarray, " samples"] | None = None) -> list[Direction]:
        """Fit at every locus whose classes have different means (at a template token of layer 0 all may be equal).

        Both the direction and its class means come from `declined`: the samples' own labels, or a permutation of them.
        A null direction ablated to the true answering mean would contain information on the true labels.
        """
        y = self.samples.declined if declined is None else declined
        fitted = (self._fit(locus, y) for locus in self._loci)
        return [direction for direction in fitted if direction is not None]

    def _fit(self, locus: Locus, declined: np.ndarray) -> Direction | None:
        samples = self.samples
        X = self._streams[locus.layer, locus.position]
        vector = difference_in_means(X, declined, samples.strata)
        if not np.isfinite(vector).all() or np.linalg.norm(vector) <= SAME_MEAN * np.abs(X).max():
            return None
        vector = unit(vector)
        positive, negative = self._means(locus, locus.layer, vector, declined)
        later = {layer: self._means(locus, layer, vector, declined) for layer in self._later if layer > locus.layer}
        return Direction(
            name=f"{self.kind}_write",
            vector=vector,
            locus=locus,
            mean_positive=positive,
            mean_negative=negative,
            later_means=later,
            provenance={
                "fitted_on": "behaviour",
                "estimator": "difference in means",
                "positive_class": "declined",
                "negative_class": "answered",
                "within_label": samples.within_label,
                "n": len(samples.rows),
                "written_from": WRITE_POSITION,
            },
        )

    def _means(self, locus: Locus, layer: int, vector: np.ndarray, declined: np.ndarray) -> tuple[float, float]:
        """Return the mean projections of declined and of answered samples at a layer, where edits set them."""
        along = self._streams[layer, set_at(locus.position)].astype(np.float64) @ vector
        return float(along[declined].mean()), float(along[~declined].mean())


def fit_write(
    read: Read, locus: Locus, kind: Kind, samples: WriteSamples, later: Sequence[int] = ()
) -> Direction | None:
    """Fit one write direction; None if the classes have the same mean."""
    fitted = WriteFitter(read, locus.site, [(locus.layer, locus.position)], kind, samples, later).fit()
    return fitted[0] if fitted else None


def write_layers(n_layers: int, deepest: float) -> list[int]:
    """List the layers at which a direction may be written: those below `deepest` of the depth."""
    return [layer for layer in range(n_layers) if layer < deepest * n_layers]


def write_positions(store: ActivationStore, rows: Int[np.ndarray, " prompts"]) -> list[str]:
    """List the single-token positions, from the instruction's end to the answer, that all given prompts have."""
    single = [p for p in store.positions if p == "inst_last" or p.startswith("post_") or p in WITHIN_THOUGHT]
    return [p for p in single if store.present[store.positions.index(p)][rows].all()]
