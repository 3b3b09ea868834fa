"""Thresholds for each category of prompts, certified on calibration prompts recognised as it (docs/thresholds.md).

A probe recognises the category at decode time, where nobody says it. Categories divide the prompts, so each one's
thresholds change its own outcomes only, and are chosen and certified like those of all prompts, on fewer of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Shaped
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from experiments.dials.operating_point import CERTIFIED_ON, Targets, choose_thresholds
from experiments.dials.policies import PolicyEvaluation
from experiments.dials.read import CHOICE
from experiments.dials.results import ByCategory, CategoryDials
from experiments.dials.surface import RISKS, Surface, paired_changes
from experiments.dials.text import not_certified
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import Kind
from experiments.run.corpus import Corpus
from probes.direction import Locus
from scoring.rates import JointRates, joint_rates
from steering.dial import CategoryRead, CategoryThresholds, Threshold, named

CONFIDENT = 0.8  # least probability from which a category counts as recognised
LEAST_TRAINING = 20  # training prompts that a category needs to be recognised
LEAST_GROUPS = 5  # among them
FOLDS = 5
OTHER = ""  # the category of prompts of every smaller one
TOO_FEW = "fewer than two categories have 20 training prompts of five groups to be recognised by"
LEAST_DECLINING = 10  # choice prompts that a dial should decline, for it to have a threshold of the category's own
NOT_MOVED = f"fewer than {LEAST_DECLINING} choice prompts to decline are recognised as it, or the threshold is given"
ALWAYS = "over_refusal"  # asked for even where no benign prompt is recognised as the category: one may be, later
Actions = Shaped[np.ndarray, " prompts"]  # object


@dataclass(frozen=True)
class Recognised:
    """A category read, and the category of each prompt by it; of training prompts by a probe without their fold."""

    read: CategoryRead
    names: Shaped[np.ndarray, " prompts"]  # object; "" where none is recognised confidently


def categories_of(corpus: Corpus) -> Shaped[np.ndarray, " prompts"]:
    """Return the category of each prompt, OTHER where it has none."""
    return np.array([prompt.category or OTHER for prompt in corpus.prompts], dtype=object)


def fit_category_read(loaded: LoadedRun, locus: Locus) -> Recognised | None:
    """Fit a category read on training prompts; None where fewer than two categories have enough of them."""
    corpus = loaded.corpus
    training, name = np.flatnonzero(corpus.rated & corpus.within("train")), categories_of(corpus)
    rows_of = {one: training[name[training] == one] for one in sorted(set(name[training])) if one != OTHER}
    large = [
        one for one, rows in rows_of.items() if len(rows) >= LEAST_TRAINING and corpus.n_groups(rows) >= LEAST_GROUPS
    ]
    if len(large) < 2:
        return None
    target = np.where(np.isin(name.astype(str), large), name, OTHER).astype(str)
    X = loaded.store.read(locus.layer, locus.position).astype(np.float64)
    probe = _probe().fit(X[training], target[training])
    probability = probe.predict_proba(X)
    classes = tuple(map(str, probe.classes_))
    folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=loaded.config.seed % 2**32)
    with warnings.catch_warnings():  # of prompts of no category there may be fewer than folds
        warnings.filterwarnings("ignore", message="The least populated class in y has only")
        divided = list(folds.split(training, target[training], corpus.groups[training]))
    for fitted, left_out in divided:
        inner = _probe().fit(X[training[fitted]], target[training[fitted]])
        places = [classes.index(str(one)) for one in inner.classes_]
        rows = training[left_out]
        probability[rows] = 0.0
        probability[np.ix_(rows, places)] = inner.predict_proba(X[rows])
    weight, bias = _raw_weights(probe)
    names = np.array([one or OTHER for one in named(classes, probability, CONFIDENT)], dtype=object)
    return Recognised(CategoryRead(classes, locus, weight, bias, CONFIDENT), names)


def _probe() -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))


def _raw_weights(probe: Pipeline) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and biases on raw activations; of two classes the first one's are zero."""
    scaler, model = probe
    coefficients, intercept = model.coef_, model.intercept_
    if len(model.classes_) == 2:
        coefficients = np.vstack([np.zeros_like(coefficients), coefficients])
        intercept = np.append(0.0, intercept)
    weight = coefficients / scaler.scale_
    return weight, intercept - weight @ scaler.mean_


def choose_by_category(
    loaded: LoadedRun,
    policy: PolicyEvaluation,
    pooled: Mapping[Kind, float],
    declining: Mapping[Kind, Bool[np.ndarray, " prompts"]],
    locus: Locus,
    targets: Targets,
) -> tuple[Actions, ByCategory, dict[Kind, CategoryThresholds]]:
    """Choose and certify thresholds by category, recognised at a locus; see `dials_of_category`.

    Returns:
        Each prompt's action by look-up, the result, and thresholds by dial; without those no category has its own.
    """
    recognised, config, corpus = fit_category_read(loaded, locus), loaded.config.steer, loaded.corpus
    before = policy.table.actions_at(list(pooled.values()), config.band)
    if recognised is None:
        return before, ByCategory(reason=TOO_FEW), {}
    given = [kind for kind in pooled if getattr(config, f"{kind}_threshold") is not None]
    categories = {
        name: dials_of_category(policy, recognised.names == name, pooled, declining, targets, given)
        for name in recognised.read.names
        if name != OTHER
    }
    own = {name: dials.thresholds or {} for name, dials in categories.items()}
    by_kind = {kind: {name: taus[kind] for name, taus in own.items() if kind in taus} for kind in pooled}
    after = policy.table.actions_at(thresholds_of(pooled, by_kind, recognised), config.band)
    test, read = np.flatnonzero(corpus.within("test")), recognised.read
    rated = corpus.rated & corpus.within("test")
    sure = rated & (recognised.names != OTHER)
    right = (recognised.names == categories_of(corpus))[sure]
    result = ByCategory(
        read_at=read.locus,
        confident=read.confident,
        recognised=float(sure.sum() / max(rated.sum(), 1)),
        right=float(right.mean()) if len(right) else None,
        categories=categories,
        changes=paired_changes([loaded.prompts[i].label for i in test], before[test], after[test], corpus.groups[test]),
    )
    applied = {kind: CategoryThresholds(read, taus) for kind, taus in by_kind.items()} if any(own.values()) else {}
    return after, result, applied


def thresholds_of(
    pooled: Mapping[Kind, float], own: Mapping[Kind, Mapping[str, float]], recognised: Recognised
) -> list[Float[np.ndarray, " prompts"]]:
    """Return the threshold of each dial for every prompt: its category's where that has one."""
    thresholds = [Threshold(tau, own[kind]) for kind, tau in pooled.items()]
    return [np.array([threshold.of(name) for name in recognised.names]) for threshold in thresholds]


def dials_of_category(
    policy: PolicyEvaluation,
    mine: Bool[np.ndarray, " prompts"],  # recognised as the category
    pooled: Mapping[Kind, float],  # the threshold of each dial for all prompts
    declining: Mapping[Kind, Bool[np.ndarray, " prompts"]],  # the prompts that each dial should decline
    targets: Targets,
    given: Collection[Kind] = (),  # dials whose threshold the configuration gives
) -> CategoryDials:
    """Return the thresholds of one category, or what it lacks to have its own."""
    corpus, config = policy.inputs.corpus, policy.inputs.config
    choice = policy.risks(mine & corpus.within(*CHOICE))
    held_out = policy.risks(mine & corpus.within(CERTIFIED_ON), RISKS)
    calibration, test = mine & corpus.within(CERTIFIED_ON), np.flatnonzero(mine & corpus.within("test"))

    def rates(at: Surface) -> JointRates:
        actions = policy.table.actions[test, at.outcome[0, test]]
        return joint_rates([corpus.prompts[i].label for i in test], actions.tolist(), corpus.groups[test])

    of_all = rates(Surface.over(policy.table, [[tau] for tau in pooled.values()], config.steer.band))
    labels = {"benign": corpus.benign, "harmful": corpus.harmful, "uncertain": corpus.uncertain}
    recognised = {name: int((label & calibration).sum()) for name, label in labels.items()}
    dials = CategoryDials(thresholds=None, recognised=recognised, test=of_all, test_pooled=of_all)
    declined = {kind: int((declining[kind] & mine & corpus.within(*CHOICE)).sum()) for kind in pooled}
    moved = [kind for kind, n in declined.items() if n >= LEAST_DECLINING and kind not in given]
    if not moved:
        return dials.model_copy(update={"why": [NOT_MOVED]})
    limits = {
        name: limit
        for name, limit in targets.limits.items()
        if name == ALWAYS or len(choice[name].rows) or len(held_out[name].rows)
    }
    tried = [
        np.unique(policy.surface.settings[:, axis]) if kind in moved else [tau]
        for axis, (kind, tau) in enumerate(pooled.items())
    ]
    surface = Surface.over(policy.table, tried, config.steer.band)
    targets = replace(targets, limits=limits, ceilings={})
    index, certificate = choose_thresholds(surface, choice, held_out, corpus, targets, config.seed)
    lacking = [name for name in limits if name not in certificate.jointly]
    if limits and not lacking:
        own = dict(zip(pooled, surface.settings[index].tolist(), strict=True))
        kept = {"thresholds": {kind: own[kind] for kind in moved}, "test": rates(surface.at([index]))}
        return dials.model_copy(update=kept | {"certificate": certificate})
    risks = certificate.risks
    why = [not_certified(name, risks[name]) for name in lacking if not risks[name].certified]
    why = why or ["its limits hold alone, not together" if lacking else "no limit is set that its prompts bear on"]
    return dials.model_copy(update={"certificate": certificate, "why": why})
