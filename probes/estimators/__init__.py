"""Probes and erasers with scikit-learn's interface; each gives a `Direction`. Question: how is a direction fitted?

The public interface for people's own arrays, held by scikit-learn's checks (docs/probing.md, docs/api.md). A run fits
its grids in batches (`probes.grid`) and its directions with `probes.means`; only people and tests use these.
Takes arrays `(X, y)`; reads and writes no file.
"""

from probes.estimators.centroid_cosine import CentroidCosine
from probes.estimators.difference import DifferenceInMeans
from probes.estimators.inlp import Inlp
from probes.estimators.leace import LeaceEraser
from probes.estimators.logistic import LogisticProbe
from probes.estimators.mass_mean import MassMean

__all__ = ["CentroidCosine", "DifferenceInMeans", "Inlp", "LeaceEraser", "LogisticProbe", "MassMean"]
