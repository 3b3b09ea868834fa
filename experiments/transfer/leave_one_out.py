"""Leave a set out: which read of a prompt holds best on a set that it was not trained on?

A set is left out together with the sets that share its counterpart (its family) and with every prompt of a group of
theirs. The layer, the position and the penalty of a read are those with the best mean AUROC on the other families, each
left out as well: nothing of the tested family chooses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from experiments.probing.results import POSITIONS
from experiments.run.behaviour import Kind
from experiments.transfer.measure import MEAN, CapturedSets
from experiments.transfer.results import LeftOutRead
from experiments.transfer.sets import POSITIVE, ReadSet, TransferPrompts
from extract.errors import UserError
from extract.progress import Reporter
from probes.estimators.probes import MassMean
from probes.estimators.token_pooling import fit_pooled_batch
from probes.grid.solver import fit_logistic_batch
from probes.statistics.intervals import grouped_mean
from probes.statistics.metrics import aurocs

CS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
SHRINKAGES = (0.1, 0.9)
PENALTIES = (3e-3, 3e-2)  # of reads that pool tokens
REFERENCE = "last token"
LEAST_FAMILIES = 3  # one to test, one to choose by, one to train on
Scores = Float[np.ndarray, "splits choices samples"]
Aurocs = Float[np.ndarray, "splits choices sets"]


@dataclass(frozen=True)
class LeaveOut:
    """The samples of all sets of a kind, and training sets without one family or two."""

    sets: tuple[ReadSet, ...]
    families: tuple[str, ...]  # of each set
    rows: Int[np.ndarray, " samples"]
    y: Bool[np.ndarray, " samples"]
    set_of: Int[np.ndarray, " samples"]
    out: tuple[frozenset[str], ...]  # the families that each split leaves out
    train: Bool[np.ndarray, "splits samples"]
    weights: Float[np.ndarray, " samples"]  # every class of every set weighs the same
    own: Bool[np.ndarray, " samples"]  # of a group that is in no other family

    @classmethod
    def of(cls, given: TransferPrompts, kind: Kind) -> LeaveOut:
        """Divide the sets of a kind; no split trains on a family that it leaves out, or on a group of its prompts."""
        sets = tuple(one for one in given.sets if one.kind == kind)
        families = tuple(one.counterpart or one.name for one in sets)
        rows, y = np.concatenate([one.rows for one in sets]), np.concatenate([one.y for one in sets])
        set_of = np.repeat(np.arange(len(sets)), [len(one.rows) for one in sets])
        family, groups = np.array(families)[set_of], given.groups[rows]
        names = sorted(set(families))
        out = tuple(frozenset(some) for n in (1, 2) for some in combinations(names, n))
        train = np.stack([~np.isin(groups, groups[np.isin(family, list(some))]) for some in out])
        number = 2 * set_of + y
        weights = 1 / np.bincount(number)[number]
        own = np.array([len(set(family[groups == group])) == 1 for group in groups])
        return cls(sets, families, rows, y, set_of, out, train, weights / weights.mean(), own)

    def centred(self, X: Float[np.ndarray, "samples d_model"]) -> Float[np.ndarray, "samples d_model"]:
        """Subtract each set's midpoint of class means, of prompts whose group is in no other family.

        It moves all scores of a set by one number, so the AUROC of a set that is left out does not see its own labels.
        """
        X = X.astype(np.float64)
        for k in range(len(self.sets)):
            mine = (self.set_of == k) & self.own
            X[self.set_of == k] -= (X[mine & self.y].mean(axis=0) + X[mine & ~self.y].mean(axis=0)) / 2
        return X

    def auroc(self, scores: Scores) -> Aurocs:
        """Return the AUROC of each set by each split that leaves it out, NaN by the others."""
        found = np.full((*scores.shape[:2], len(self.sets)), np.nan)
        for k, family in enumerate(self.families):
            splits, mine = [i for i, some in enumerate(self.out) if family in some], self.set_of == k
            found[splits, :, k] = aurocs(scores[splits][:, :, mine], self.y[mine])
        return found

    def chosen(self, auroc: Aurocs) -> Float[np.ndarray, " sets"]:
        """Return each set's AUROC by the choice that is best on the other families, left out one by one as well."""
        found = np.full(len(self.sets), np.nan)
        for alone, (tested,) in ((i, some) for i, some in enumerate(self.out) if len(some) == 1):
            mine = np.array([family == tested for family in self.families])
            pairs = [i for i, some in enumerate(self.out) if len(some) == 2 and tested in some]
            inner = np.mean([np.nanmean(auroc[i][:, ~mine], axis=1) for i in pairs], axis=0)
            found[mine] = auroc[alone, int(np.argmax(inner))][mine]
        return found


def reads_left_out(captured: CapturedSets, given: TransferPrompts, reporter: Reporter) -> tuple[LeftOutRead, ...]:
    """Return every read of each kind that has three families; UserError: a split has nothing to train on."""
    found = list[LeftOutRead]()
    for kind in POSITIVE:
        sets = LeaveOut.of(given, kind) if any(one.kind == kind for one in given.sets) else None
        if sets is None or len(set(sets.families)) < LEAST_FAMILIES:
            continue
        try:
            with reporter.task(f"{kind} reads", None) as advance:
                every = dict[str, Aurocs]()
                for name, auroc in _reads(captured, sets):
                    every[name] = auroc
                    advance(1)
        except ValueError as error:
            raise UserError(f"{kind} reads of sets left out: {error}") from error
        every["any of these, chosen likewise"] = np.concatenate(list(every.values()), axis=1)
        reference = sets.chosen(every[REFERENCE])
        found += [_row(kind, name, sets, own := sets.chosen(auroc), own - reference) for name, auroc in every.items()]
    return tuple(found)


def _row(kind: Kind, name: str, sets: LeaveOut, auroc: np.ndarray, gain: np.ndarray) -> LeftOutRead:
    families: Shaped[np.ndarray, " sets"] = np.array(sets.families)
    mean, over = (grouped_mean(values, families).counted(len(values), families) for values in (auroc, gain))
    by_set = {one.name: float(value) for one, value in zip(sets.sets, auroc, strict=True)}
    return LeftOutRead(
        kind=kind, name=name, auroc=by_set, families=len(set(sets.families)), mean=mean, over_last_token=over
    )


def _reads(captured: CapturedSets, sets: LeaveOut) -> Iterator[tuple[str, Aurocs]]:
    """Yield the AUROCs of each read under every choice of its layer, position and penalty."""
    stored = captured.activations
    there = [p for p, present in zip(stored.positions, stored.present, strict=True) if present[sets.rows].all()]
    at = {p: [stored.read(layer, p)[sets.rows] for layer in stored.layers] for p in there}
    single, labels = [p for p in POSITIONS if p in at], np.tile(sets.y, (len(sets.train), 1))

    def logistic(X: np.ndarray, weights: np.ndarray | None = None) -> Aurocs:
        return sets.auroc(fit_logistic_batch(X, sets.train, labels, CS, sample_weight=weights).scores)

    def by_layer(position: str, weights: np.ndarray | None = None) -> Aurocs:
        return np.concatenate([logistic(X, weights) for X in at[position]], axis=1)

    def mass_mean(X: np.ndarray) -> Aurocs:
        X = sets.centred(X)
        fits = [[MassMean(s).fit(X[rows], sets.y[rows]) for s in SHRINKAGES] for rows in sets.train]
        return sets.auroc(np.array([[X @ probe.coef_[0] for probe in probes] for probes in fits]))

    plain = {p: by_layer(p) for p in single}
    yield REFERENCE, plain["inst_last"]
    yield f"{REFERENCE}, balanced", by_layer("inst_last", sets.weights)
    centred = [logistic(sets.centred(X), sets.weights) for X in at["inst_last"]]
    yield f"{REFERENCE}, centred", np.concatenate(centred, axis=1)
    yield f"{REFERENCE} or the template's", np.concatenate(list(plain.values()), axis=1)
    yield "mass-mean, either token", np.concatenate([mass_mean(X) for p in single for X in at[p]], axis=1)
    if MEAN in at:
        yield "mean of tokens", by_layer(MEAN)
        yield "mean of tokens, balanced", by_layer(MEAN, sets.weights)
        yield "mean of tokens, layers joined", logistic(np.concatenate([X / X.std() for X in at[MEAN]], axis=1))
    for pooling in ("max", "attention", "multimax") if captured.tokens else ():
        found = []
        for tokens in captured.tokens.values():
            X = [tokens[row] for row in sets.rows]
            fits = fit_pooled_batch(X, sets.train, sets.y, PENALTIES, pooling, sample_weight=sets.weights)
            found.append(sets.auroc(fits.scores))
        yield f"{pooling} over tokens", np.concatenate(found, axis=1)
