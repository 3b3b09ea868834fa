"""Probes and erasers with scikit-learn's interface; each gives a `Direction`. Question: how is a direction fitted?

The public interface for people's own arrays, held by scikit-learn's checks (docs/estimators.md). A run fits its
grids in batches (`probes.grid`) and its directions with `probes.means`; only people and tests use these.
Takes arrays `(X, y)`; reads and writes no file.
"""

from probes.estimators.erasers import Inlp, LeaceEraser
from probes.estimators.probes import CentroidCosine, DifferenceInMeans, LogisticProbe, MassMean

__all__ = ["CentroidCosine", "DifferenceInMeans", "Inlp", "LeaceEraser", "LogisticProbe", "MassMean"]
