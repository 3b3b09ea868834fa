"""Probes and erasers with scikit-learn's interface; each gives a `Direction`."""

from probes.estimators.centroid_cosine import CentroidCosine
from probes.estimators.difference import DifferenceInMeans
from probes.estimators.inlp import Inlp
from probes.estimators.leace import LeaceEraser
from probes.estimators.logistic import LogisticProbe
from probes.estimators.mass_mean import MassMean

__all__ = ["CentroidCosine", "DifferenceInMeans", "Inlp", "LeaceEraser", "LogisticProbe", "MassMean"]
