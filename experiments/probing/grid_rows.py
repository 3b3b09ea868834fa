"""Turns read probes into typed results: chosen loci, the grid as rows, the best loci."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.probing.read_probes import ReadProbe
from experiments.probing.results import GridRow, SiteRecord
from probes.grid.probe_grid import LOGISTIC, LocusScores


def site_record(read_probe: ReadProbe, site: str) -> SiteRecord:
    """Return the record of the chosen locus, for results.json."""
    locus, test = read_probe.chosen, read_probe.test
    score = locus.scores[LOGISTIC]
    control = None if np.isnan(read_probe.control) else read_probe.control
    return SiteRecord(
        site=site,
        layer=locus.layer,
        position=locus.position,
        auroc=test.auroc.estimate,
        auroc_ci=(test.auroc.low, test.auroc.high),
        validation_auroc=float(score.validation[0]),
        C=float(score.C[0]),
        balanced_accuracy=test.balanced_accuracy,
        recall_at_1pct_fpr=test.recall_at_1pct_fpr,
        ece=read_probe.ece,
        brier=read_probe.brier,
        n_test=test.n_positive + test.n_negative,
        n_positive=test.n_positive,
        n_negative=test.n_negative,
        bag_of_words_auroc=read_probe.bag_of_words,
        length_auroc=read_probe.length,
        beats_bag_of_words=bool(test.auroc.low > read_probe.bag_of_words),
        p_permutation=read_probe.p_permutation,
        control_auroc=control,
        selectivity=None if control is None else test.auroc.estimate - control,
        refitted_on_permuted_labels=read_probe.refitted,
        difference_in_means=read_probe.null,
    )


def grid_rows(read_probes: Mapping[str, ReadProbe], site: str) -> list[GridRow]:
    """Return the grids as rows, one for each contrast, locus and probe."""
    return [
        _grid_row(name, site, locus, probe, chosen=locus is read_probe.chosen and probe == LOGISTIC)
        for name, read_probe in read_probes.items()
        for locus in read_probe.loci
        for probe in locus.scores
    ]


def _grid_row(contrast: str, site: str, locus: LocusScores, probe: str, *, chosen: bool) -> GridRow:
    score = locus.scores[probe]
    test = score.test
    return GridRow(
        contrast=contrast,
        site=site,
        layer=locus.layer,
        position=locus.position,
        probe=probe,
        chosen=chosen,
        C=None if np.isnan(score.C[0]) else float(score.C[0]),
        validation_auroc=float(score.validation[0]),
        validation_d_prime=float(score.separation[0]),
        test_auroc=test.auroc.estimate,
        test_auroc_low=test.auroc.low,
        test_auroc_high=test.auroc.high,
        balanced_accuracy=test.balanced_accuracy,
        recall_at_1pct_fpr=test.recall_at_1pct_fpr,
        n_positive=test.n_positive,
        n_negative=test.n_negative,
        groups_positive=test.groups_positive,
        groups_negative=test.groups_negative,
    )


def best_loci(rows: Sequence[GridRow], n: int = 10) -> list[GridRow]:
    """Return the n loci whose logistic probe has the highest validation AUROC, ties by d'; test prompts rank nothing.

    An infinite d' is None: the classes are separate and neither has spread, for example one validation prompt of each.
    """
    logistic = [row for row in rows if row.probe == LOGISTIC]
    best = sorted(logistic, key=lambda row: (row.validation_auroc, row.validation_d_prime), reverse=True)[:n]
    return [row.model_copy(update={"validation_d_prime": _finite(row.validation_d_prime)}) for row in best]


def _finite(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None
