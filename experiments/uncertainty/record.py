"""AUROC of each measure for wrong or unknowable against right answers; labels by the model (docs/uncertainty.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import rankdata

from experiments.uncertainty.observation import Observation
from experiments.uncertainty.results import (
    ConfidenceBin,
    HedgingByEntropy,
    KnowledgeLabels,
    MeasureAuroc,
    Population,
    Reliability,
    StratumAccuracy,
    UncertaintyMeasures,
)
from extract.prompts.groups import groups_apart
from extract.prompts.prompt import Prompt
from probes.statistics.intervals import Estimate, group_means
from probes.statistics.means import mean_interval
from probes.statistics.metrics import LEAST_OF_CLASS, discrimination, enough
from probes.statistics.permutation import holm, permuted_p
from probes.statistics.seeds import named_rng
from scoring.actions import ANSWERED
from scoring.rates import grouped_rate

PERMUTATIONS = 1999
EDGES = (0.0, 0.2, 0.4, 0.6, 0.8)  # bins (start, end]; confidence 1 (all samples agree) is a bin of its own
# Larger is less certain in all of them. "said_or_sampled" is the greater of hedging and entropy, both between 0 and 1:
# a model that abstains in every sample is certain of abstaining, not of an answer.
MEASURES: Mapping[str, Callable[[Observation], float | None]] = {
    "semantic_entropy": lambda o: o.entropy,
    "weighted_entropy": lambda o: o.weighted_entropy,
    "disagreement": lambda o: 1 - o.agreement,
    "negative_log_probability": lambda o: -o.log_probability,
    "negative_log_probability_per_token": lambda o: -o.log_probability_per_token,
    "hedging": lambda o: o.hedging,
    "said_or_sampled": lambda o: None if o.hedging is None else max(o.hedging, o.entropy / np.log(len(o.samples))),
    "thinking_tokens": lambda o: float(o.thinking_tokens),
}
POPULATIONS = {
    "all": "questions with a known answer, and uncertain ones (which have no answer, so none is right)",
    "known_answer": "questions with a known answer only",
    "committed": "all questions that the completion answers instead of abstaining",
}

REFUSED = "most samples refuse"
DIFFERS = "the completion and most samples differ in stating the known answer"
UNCHECKED = "the samples agree on an answer that nothing checks"

Wrong = Bool[np.ndarray, " questions"]
Groups = Int[np.ndarray, " questions"]


def measure_uncertainty(
    observed: Sequence[Observation], prompts: Sequence[Prompt], threshold: float | None, seed: int
) -> UncertaintyMeasures:
    """Measure how well each measure separates wrong or unknowable answers from right ones; high: above the threshold.

    Questions that are refused, or whose completion cannot be judged, are left out and counted.
    """
    kept = [i for i, one in enumerate(observed) if one.action not in (None, "refuse")]
    judged = [observed[i] for i in kept]
    groups = groups_apart([prompts[i] for i in kept]) if kept else np.zeros(0, dtype=int)
    wrong = np.array([not one.correct for one in judged], dtype=bool)  # None: unknowable
    inside = {
        "all": np.ones(len(judged), dtype=bool),
        "known_answer": np.array([one.correct is not None for one in judged], dtype=bool),
        "committed": np.array([one.action in ANSWERED for one in judged], dtype=bool),
    }
    diagrams = {"committed": inside["committed"], "known_answer": inside["committed"] & inside["known_answer"]}
    agreement = np.array([one.agreement for one in judged], dtype=float)
    return UncertaintyMeasures(
        left_out={
            "refused": sum(o.action == "refuse" for o in observed),
            "unjudged": sum(o.action is None for o in observed),
        },
        populations={
            name: Population(
                what=POPULATIONS[name],
                wrong_or_unknowable=int(wrong[rows].sum()),
                right=int((~wrong[rows]).sum()),
                measures=_measures([judged[i] for i in np.flatnonzero(rows)], wrong[rows], groups[rows], seed),
            )
            for name, rows in inside.items()
        },
        reliability={name: reliability(agreement[rows], ~wrong[rows], groups[rows]) for name, rows in diagrams.items()},
        verbalised_and_statistical=_hedging_by_entropy(judged, wrong, groups, threshold),
    )


# -- AUROC -------------------------------------------------------------------------------------------------------------


def _measures(judged: Sequence[Observation], wrong: Wrong, groups: Groups, seed: int) -> dict[str, MeasureAuroc]:
    """Return each measure's AUROC, or why there is none; p-values are corrected over the measures (Holm)."""
    aurocs = {name: _measure(list(map(of, judged)), wrong, groups, seed) for name, of in MEASURES.items()}
    p = {name: one.p for name, one in aurocs.items() if one.p is not None}
    adjusted = dict(zip(p, holm(list(p.values())), strict=True))
    return {
        name: one.model_copy(update={"p_adjusted": adjusted[name]}) if name in adjusted else one
        for name, one in aurocs.items()
    }


def _measure(values: Sequence[float | None], wrong: Wrong, groups: Groups, seed: int) -> MeasureAuroc:
    there = np.array([value is not None for value in values], dtype=bool)
    score = np.array([value for value in values if value is not None], dtype=float)
    y, of = wrong[there], groups[there]
    n_wrong, n_right = int(y.sum()), int((~y).sum())
    counts = {"n_positive": n_wrong, "n_negative": n_right}
    reason = ""
    if not y.any() or y.all():
        reason = f"no question here is {'right' if y.any() else 'wrong or unknowable'}"
    elif np.ptp(score) == 0:
        reason = f"it is {score[0]:g} for every question"
    elif not enough(n_wrong, n_right):
        reason = f"too few ({n_wrong} wrong or unknowable, {n_right} right; {LEAST_OF_CLASS} of each are needed)"
    if reason:
        return MeasureAuroc(auroc=None, reason=reason, **counts)
    score_auroc = discrimination(y, score, of)
    return MeasureAuroc(
        auroc=score_auroc.auroc.estimate,
        auroc_ci=(score_auroc.auroc.low, score_auroc.auroc.high),
        p=auroc_p(y, score, of, named_rng(seed, "AUROC permutation")),
        groups_positive=round(score_auroc.groups_positive, 2),
        groups_negative=round(score_auroc.groups_negative, 2),
        **counts,
    )


def auroc_p(y: Wrong, score: Float[np.ndarray, " questions"], groups: Groups, rng: np.random.Generator) -> float:
    """Return the two-sided permutation p-value of an AUROC of 1/2, a linear function of the classes' mean ranks."""
    return permuted_p(y, rankdata(score), groups, None, PERMUTATIONS, rng)


# -- verbalised against statistical uncertainty ------------------------------------------------------------------------


def _hedging_by_entropy(
    judged: Sequence[Observation], wrong: Wrong, groups: Groups, threshold: float | None
) -> HedgingByEntropy:
    """Cross-tabulate hedged or not by high or low entropy, with the share right in each stratum."""
    there = np.array([one.hedging is not None for one in judged], dtype=bool)
    if threshold is None or not there.any():
        return HedgingByEntropy(threshold=threshold, cells=[], reason="every question has the same entropy")
    rows = [one for one in judged if one.hedging is not None]
    hedged, high = np.array([bool(o.hedging) for o in rows]), np.array([o.entropy > threshold for o in rows])
    right, of = ~wrong[there], groups[there]
    cells = [
        StratumAccuracy(hedged=says, high_entropy=does, right=grouped_rate(right[here], of[here]))
        for says in (False, True)
        for does in (False, True)
        for here in [(hedged == says) & (high == does)]
    ]
    return HedgingByEntropy(threshold=threshold, cells=cells)


# -- reliability -------------------------------------------------------------------------------------------------------


def reliability(
    confidence: Float[np.ndarray, " answers"], right: Bool[np.ndarray, " answers"], groups: Int[np.ndarray, " answers"]
) -> Reliability:
    """Return bins of confidence (0 to 1), the share right in each, the mean gap and the Brier score, over groups."""
    place = np.where(confidence >= 1, len(EDGES), np.searchsorted(EDGES, confidence, side="left") - 1).clip(min=0)
    ends = [*zip(EDGES, (*EDGES[1:], 1.0), strict=True), (1.0, 1.0)]
    bins = [
        ConfidenceBin(
            start=ends[b][0],
            end=ends[b][1],
            confidence=float(confidence[here].mean()),
            right=grouped_rate(right[here], groups[here]),
        )
        for b in range(len(ends))
        if (here := place == b).any()
    ]
    return Reliability(
        bins=bins,
        gap=_over_groups(confidence - right, groups, -1.0).counted(len(right), groups),
        brier=_over_groups((confidence - right) ** 2, groups, 0.0).counted(len(right), groups),
    )


def _over_groups(values: Float[np.ndarray, " n"], groups: Int[np.ndarray, " n"], low: float) -> Estimate:
    """Return the mean over groups, each counted once, with an interval that is valid where all agree."""
    return mean_interval(group_means(values, groups).round(12), low, 1.0)  # rounding errors are not variance


# -- labels by what the model knows ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KnowledgeLabel:
    """Whether a model knows the answer to a question (None: undecided), and why."""

    knows: bool | None
    why: str


def knowledge_label(one: Observation, threshold: float | None) -> KnowledgeLabel:
    """Return whether the model knows the answer; above the threshold (None: all are equal) entropy is high, in nats."""
    if one.share("refuse") > 0.5:
        return KnowledgeLabel(None, REFUSED)
    if one.correct is not None:
        right = float(np.mean([bool(sample.right) for sample in one.samples]))
        if right != 0.5 and (right > 0.5) != one.correct:
            return KnowledgeLabel(None, DIFFERS)
        return KnowledgeLabel(one.correct, f"the known answer is {'' if one.correct else 'not '}stated")
    doubts = reason_to_doubt(one, threshold)
    return KnowledgeLabel(False, doubts) if doubts else KnowledgeLabel(None, UNCHECKED)


def reason_to_doubt(one: Observation, threshold: float | None) -> str:
    """Return the evidence against knowledge from the samples alone; "" if there is none."""
    if one.share("abstain") > 0.5:
        return "most samples abstain"
    return "entropy is high" if threshold is not None and one.entropy > threshold else ""


def relabel_prompts(prompts: Sequence[Prompt], labels: Mapping[str, KnowledgeLabel]) -> list[Prompt]:
    """Return the prompts with questions (by id) labelled by what the model knows; undecided ones are left out.

    So is the twin of an uncertain prompt that the model does not know: it is no longer a known one to compare with, and
    that the model gets it wrong does not make its question one that has no answer.
    """
    relabelled, doubtful = [], {prompt.pair for prompt in prompts if prompt.label == "uncertain" and prompt.pair}
    for prompt in prompts:
        if prompt.id not in labels:
            relabelled.append(prompt)
        elif (knows := labels[prompt.id].knows) is not None:
            label, action = ("benign", "answer") if knows else ("uncertain", "abstain")
            same = prompt.label == label
            if knows or same or prompt.pair not in doubtful:
                relabelled.append(prompt if same else replace(prompt, label=label, right_action=action, acceptable=()))
    return relabelled


def compare_labels(
    observed: Sequence[Observation],
    prompts: Sequence[Prompt],
    labels: Sequence[KnowledgeLabel],
    threshold: float | None,
) -> KnowledgeLabels:
    """Count the labels, the questions left out by reason, and the agreement with the file's labels.

    Agreement is over the questions that got a label; it is informative for those with a known answer, since without one
    the only possible label is `uncertain`. `by_samples_alone` is that on all questions if no known answer were used.
    """
    groups = groups_apart(prompts) if prompts else np.zeros(0, dtype=int)
    file_knows = np.array([one.label == "benign" for one in observed], dtype=bool)
    labelled = np.array([one.knows is not None for one in labels], dtype=bool)
    checked = labelled & np.array([one.correct is not None for one in observed], dtype=bool)
    same = np.array([bool(one.knows) for one in labels], dtype=bool) == file_knows
    alone = np.array([not reason_to_doubt(one, threshold) for one in observed], dtype=bool) == file_knows
    named = {True: "benign", False: "uncertain", None: "left_out"}
    return KnowledgeLabels(
        labelled=grouped_rate(labelled, groups),
        left_out=Counter(one.why for one in labels if one.knows is None),
        file_to_model={
            label: Counter(named[one.knows] for one, of in zip(labels, observed, strict=True) if of.label == label)
            for label in ("benign", "uncertain")
        },
        agreement_with_file=grouped_rate(same[labelled], groups[labelled]),
        with_known_answer=grouped_rate(same[checked], groups[checked]),
        by_samples_alone=grouped_rate(alone, groups),
    )
