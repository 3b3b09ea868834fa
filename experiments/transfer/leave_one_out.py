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
from jaxtyping import Bool, Float, Int

from experiments.probing.results import POSITIONS
from experiments.run.behaviour import Kind
from experiments.transfer.measure import MEAN, RequestTokens
from experiments.transfer.results import LeftOutRead
from experiments.transfer.sets import ReadSet, TransferPrompts
from extract.errors import UserError
from extract.in_memory import Activations
from extract.progress import Reporter
from probes.estimators.probes import MassMean
from probes.estimators.token_pooling import fit_pooled_batch
from probes.grid.solver import fit_logistic_batch
from probes.statistics.intervals import grouped_mean
from probes.statistics.metrics import aurocs

CS, SHRINKAGES, PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1), (0.1, 0.9), (3e-3, 3e-2)  # tried
REFERENCE = "last token"
LEAST_FAMILIES = 3  # one to test, one to choose by, one to train on
Aurocs = Float[np.ndarray, "splits choices sets"]


@dataclass(frozen=True)
class LeaveOut:
    """The samples of all sets of a kind, and training sets without one family or two."""

    sets: tuple[ReadSet, ...]
    families: tuple[str, ...]  # of each set
    rows: Int[np.ndarray, " samples"]
    y: Bool[np.ndarray, " samples"]
    set_of: Int[np.ndarray, " samples"]
    out: tuple[tuple[str, ...], ...]  # the families that each split leaves out
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
        out = tuple(some for n in (1, 2) for some in combinations(sorted(set(families)), n))
        train = np.stack([~np.isin(groups, groups[np.isin(family, some)]) for some in out])
        weights = 1 / np.bincount(2 * set_of + y)[2 * set_of + y]
        own = np.array([len(set(family[groups == group])) == 1 for group in groups])
        return cls(sets, families, rows, y, set_of, out, train, weights / weights.mean(), own)

    def centred(self, X: Float[np.ndarray, "samples d_model"]) -> Float[np.ndarray, "samples d_model"]:
        """Subtract each set's midpoint of class means, of prompts whose group is in no other family.

        It moves all scores of a set by one number, so the AUROC of a set that is left out does not see its own labels.
        """
        X = X.astype(np.float64)
        for k in range(len(self.sets)):
            sides = ((self.set_of == k) & self.own & side for side in (self.y, ~self.y))
            X[self.set_of == k] -= sum(X[side].mean(axis=0) for side in sides) / 2
        return X

    def auroc(self, scores: Float[np.ndarray, "splits choices samples"]) -> Aurocs:
        """Return the AUROC of each set by each split that leaves it out, NaN by the others."""
        found = np.full((*scores.shape[:2], len(self.sets)), np.nan)
        for k, family in enumerate(self.families):
            splits, mine = [i for i, some in enumerate(self.out) if family in some], self.set_of == k
            found[splits, :, k] = aurocs(scores[splits][:, :, mine], self.y[mine])
        return found

    def chosen(self, auroc: Aurocs) -> Float[np.ndarray, " sets"]:
        """Return each set's AUROC by the choice that is best on the other families, left out one by one as well."""
        found = np.full(len(self.sets), np.nan)
        for alone, tested in enumerate(sorted(set(self.families))):  # the first splits leave out one family each
            mine = np.array(self.families) == tested
            pairs = [i for i, some in enumerate(self.out) if len(some) == 2 and tested in some]
            inner = np.mean([np.nanmean(auroc[i][:, ~mine], axis=1) for i in pairs], axis=0)
            found[mine] = auroc[alone, int(np.argmax(inner)), mine]
        return found


def reads_left_out(
    stored: Activations, tokens: RequestTokens, given: TransferPrompts, reporter: Reporter
) -> tuple[LeftOutRead, ...]:
    """Return every read of each kind that has three families; UserError: a split has nothing to train on."""
    found = list[LeftOutRead]()
    for kind in dict.fromkeys(one.kind for one in given.sets):
        sets = LeaveOut.of(given, kind)
        n = len(set(sets.families))
        if n < LEAST_FAMILIES:
            continue
        every = dict[str, Aurocs]()
        try:
            with reporter.task(f"{kind} reads", None) as advance:
                for name, auroc in _reads(stored, tokens, sets):
                    every[name] = auroc
                    advance(1)
        except ValueError as error:
            raise UserError(f"{kind} reads of sets left out: {error}") from error
        every["any of these, chosen likewise"] = np.concatenate(list(every.values()), axis=1)
        values = {name: sets.chosen(auroc) for name, auroc in every.items()}
        for name, own in values.items():
            over = grouped_mean(own - values[REFERENCE], np.array(sets.families)).counted(len(own))
            by_set = dict(zip((one.name for one in sets.sets), own.tolist(), strict=True))
            about = {"kind": kind, "name": name, "auroc": by_set, "families": n, "over_last_token": over}
            found.append(LeftOutRead(**about, mean=float(own.mean())))
    return tuple(found)


def _reads(stored: Activations, tokens: RequestTokens, sets: LeaveOut) -> Iterator[tuple[str, Aurocs]]:
    """Yield the AUROCs of each read under every choice of its layer, position and penalty."""
    there = [p for p, present in zip(stored.positions, stored.present, strict=True) if present[sets.rows].all()]
    at = {p: [stored.read(layer, p)[sets.rows] for layer in stored.layers] for p in there}
    labels = np.tile(sets.y, (len(sets.train), 1))

    def logistic(streams: list[np.ndarray], weights: np.ndarray | None = None) -> Aurocs:
        fits = (fit_logistic_batch(X, sets.train, labels, CS, sample_weight=weights) for X in streams)
        return np.concatenate([sets.auroc(fit.scores) for fit in fits], axis=1)

    def mass_mean(X: np.ndarray) -> Aurocs:
        probes = [[MassMean(s).fit(X[rows], sets.y[rows]) for s in SHRINKAGES] for rows in sets.train]
        return sets.auroc(np.array([[X @ probe.coef_[0] for probe in some] for some in probes]))

    last, either = at["inst_last"], [X for p in POSITIONS if p in at for X in at[p]]
    plain = [logistic(at[p]) for p in POSITIONS if p in at]
    yield REFERENCE, plain[0]
    yield f"{REFERENCE}, balanced", logistic(last, sets.weights)
    yield f"{REFERENCE}, centred", logistic([sets.centred(X) for X in last], sets.weights)
    yield "either last token", np.concatenate(plain, axis=1)
    yield "either last token, mass-mean", np.concatenate([mass_mean(sets.centred(X)) for X in either], axis=1)
    if MEAN in at:
        yield "mean of tokens", logistic(at[MEAN])
        yield "mean of tokens, balanced", logistic(at[MEAN], sets.weights)
        yield "mean of tokens, layers joined", logistic([np.concatenate([X / X.std() for X in at[MEAN]], axis=1)])
    for pooling in ("max", "attention", "multimax") if tokens else ():
        layers = ([some[row] for row in sets.rows] for some in tokens.values())
        fits = (fit_pooled_batch(X, sets.train, sets.y, PENALTIES, pooling, sets.weights) for X in layers)
        yield f"{pooling} over tokens", np.concatenate([sets.auroc(scores) for *_, scores in fits], axis=1)
