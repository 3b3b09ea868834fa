"""Semantic entropy of sampled answers, in nats, and the threshold between low and high entropy. Pure functions.

Semantic entropy is the entropy of the distribution over *meanings*, so that two wordings of one answer add no
uncertainty (Kuhn, Gal & Farquhar, arXiv 2302.09664). It measures whether repeated samples agree; it cannot detect a
false answer that is given every time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from scipy.special import logsumexp


def discrete_entropy(clusters: Sequence[int]) -> float:
    """Return the entropy of the shares of samples in each cluster (Farquhar et al. 2024, Nature 630, "discrete").

    Of K samples it lies between 0 and ln K, and on average below the true entropy, by about (meanings - 1) / (2 K).
    """
    shares = np.unique(np.asarray(clusters), return_counts=True)[1] / len(clusters)
    return _entropy(shares)


def weighted_entropy(clusters: Sequence[int], log_probs: Sequence[float], sequences: Sequence[Hashable]) -> float:
    """Return the entropy of clusters weighted by likelihood: p(c) is the sum over its sequences s of p(s), normalised.

    Each distinct sequence counts once, however often it was drawn: the sum is over sequences, and counting draws too
    would weight by p(s) squared (arXiv 2302.09664, equations 2 and 4).

    Args:
        clusters, log_probs, sequences: each sample's cluster, log-probability in nats and sequence; (n_samples,) each.
    """
    once = {sequence: i for i, sequence in reversed(list(enumerate(sequences)))}
    index = sorted(once.values())
    of, nats = np.asarray(clusters)[index], np.asarray(log_probs, dtype=float)[index]
    total = float(logsumexp(nats))
    return _entropy(np.exp([float(logsumexp(nats[of == cluster])) - total for cluster in np.unique(of)]))


def _entropy(shares: np.ndarray) -> float:
    return float(max(0.0, -(shares * np.log(shares)).sum()))


def entropy_threshold(entropies: np.ndarray) -> float | None:
    """Return the threshold above which an entropy is high, in nats; None where all entropies are equal.

    It minimises the squared error within the two groups (semantic entropy probes, arXiv 2406.15927, section 4) and is
    midway between the neighbouring values. It always divides unequal entropies: low and high are relative to the given
    questions.
    """
    values, counts = np.unique(np.asarray(entropies, dtype=float).round(12), return_counts=True)
    if len(values) < 2:
        return None
    n, total = counts.cumsum(), (values * counts).cumsum()
    # The within-group sum of squares is the total minus the part explained by the two means.
    explained = total**2 / n + np.append((total[-1] - total[:-1]) ** 2 / (n[-1] - n[:-1]), 0.0)
    best = int(np.argmax(explained[:-1]))
    return float((values[best] + values[best + 1]) / 2)
