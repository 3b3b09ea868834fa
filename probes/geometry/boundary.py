"""Where prompts lie between two classes along the line of their means: 0 at the one, 1 at the other.

The boundary distance of MOSR (arXiv 2511.19009): with means l, h and b it is (b - l)(h - l) / |h - l|². In many
dimensions the noise of fitted means makes |h - l|² too large and pulls every place towards the middle, so each product
of two means is the mean over pairs of samples of different groups, whose noise is independent.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy.special import stdtrit

from probes.statistics.intervals import Estimate

N_BLOCKS = 60  # of groups, left out one after the other for the interval
LEAST = 5  # groups of each class


def place_between(
    x: Float[np.ndarray, "samples d_model"],
    kind: Int[np.ndarray, " samples"],
    groups: Shaped[np.ndarray, " samples"],
    rng: np.random.Generator,
) -> Estimate | None:
    """Return the mean place of samples of kind 2 between the means of kinds 0 and 1; None with too few groups.

    The interval is of the jackknife over blocks of whole groups (Student's t), without and with each block; `rng`
    divides the groups among blocks. It is unbounded where the two classes are not apart. No row of x has NaN.
    """
    if any(len(np.unique(groups[kind == k])) < LEAST for k in range(3)):
        return None
    code = np.unique(groups, return_inverse=True)[1].reshape(-1)
    block = rng.permutation(code.max() + 1) % N_BLOCKS  # of each group
    centred = x.astype(float) - (x[kind == 0].mean(0, dtype=float) + x[kind == 1].mean(0, dtype=float)) / 2
    parts = [
        _sums(centred[rows], kind[rows], code[rows])
        for b in range(block.max() + 1)
        if (rows := np.flatnonzero(block[code] == b)).size
    ]
    size, total, pairs = (np.stack(of) for of in zip(*parts, strict=True))
    whole = size.sum(0), total.sum(0), pairs.sum(0)
    place, apart = _place(*whole)
    if not apart > 0:
        return Estimate(place, -np.inf, np.inf)
    left = np.array([_place(*(of - part for of, part in zip(whole, each, strict=True)))[0] for each in parts])
    error = float(np.sqrt((len(left) - 1) / len(left) * ((left - left.mean()) ** 2).sum()))
    half = error * float(stdtrit(len(left) - 1, 0.975))
    return Estimate(place, place - half, place + half)


def _sums(x: np.ndarray, kind: np.ndarray, code: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return number and sum of the rows of each kind, and, within groups, pairs and sums of their products."""
    group = np.unique(code, return_inverse=True)[1].reshape(-1)
    size, total = np.zeros((group.max() + 1, 3)), np.zeros((group.max() + 1, 3, x.shape[1]))
    np.add.at(size, (group, kind), 1)
    np.add.at(total, (group, kind), x)
    pairs = np.stack([np.einsum("ga,gb->ab", size, size), np.einsum("gad,gbd->ab", total, total)])
    return size.sum(0), total.sum(0), pairs


def _place(
    size: Float[np.ndarray, " 3"], total: Float[np.ndarray, "3 d_model"], pairs: Float[np.ndarray, "2 3 3"]
) -> tuple[float, float]:
    """Return the place, and the squared distance of the two classes' means without noise, from `_sums`."""
    n, product = np.outer(size, size) - pairs[0], total @ total.T - pairs[1]
    means = product / n
    apart = float(means[1, 1] - 2 * means[0, 1] + means[0, 0])
    along = float(means[2, 1] - means[2, 0] - means[0, 1] + means[0, 0])
    return along / apart if apart else np.nan, apart
