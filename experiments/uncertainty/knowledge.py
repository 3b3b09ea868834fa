"""Epistemic labels by model: which questions *this* model knows the answer to, from its own samples.

The label of a question follows from its samples:

- most refuse: left out, because a refusal does not concern knowledge;
- with a known answer: known if the completion and at least half of the samples state it; not known if the completion
  does not and at most half of the samples do; left out if completion and samples disagree;
- without one: not known if most abstain or if entropy is high (above `entropy_threshold` in semantic_entropy.py);
  otherwise left out, because a repeated invention cannot be separated from knowledge here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool

from experiments.uncertainty.observation import Observation
from experiments.uncertainty.results import KnowledgeLabels
from extract.prompts.groups import groups_apart
from extract.prompts.prompt import Prompt
from probes.statistics.intervals import Estimate
from scoring.rates import grouped_rate

REFUSED = "most samples refuse"
DIFFERS = "the completion and most samples differ in stating the known answer"
UNCHECKED = "the samples agree on an answer that nothing checks"
Rows = Bool[np.ndarray, " questions"]


@dataclass(frozen=True)
class KnowledgeLabel:
    """Whether a model knows the answer to a question (None: undecided), and why."""

    knows: bool | None
    why: str


def knowledge_label(one: Observation, threshold: float | None) -> KnowledgeLabel:
    """Return whether the model knows the answer.

    Args:
        threshold: an entropy above it is high, in nats; None where all entropies are equal, so that none is high.
    """
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
    """Return the prompts with questions labelled by what the model knows; undecided questions are left out.

    Args:
        labels: by prompt id; prompts that are not in it are unchanged.
    """
    return [
        _labelled(prompt, labels[prompt.id].knows) if prompt.id in labels else prompt
        for prompt in prompts
        if prompt.id not in labels or labels[prompt.id].knows is not None
    ]


def _labelled(prompt: Prompt, knows: bool | None) -> Prompt:
    label, action = ("benign", "answer") if knows else ("uncertain", "abstain")
    return prompt if prompt.label == label else replace(prompt, label=label, right_action=action, acceptable=())


def compare_labels(
    observed: Sequence[Observation],
    prompts: Sequence[Prompt],
    labels: Sequence[KnowledgeLabel],
    threshold: float | None,
) -> KnowledgeLabels:
    """Count the labels, the questions left out by reason, and the agreement with the file's labels.

    Agreement is over the questions that got a label. Without a known answer the only possible label is `uncertain`, so
    agreement is informative for questions with one (`with_known_answer`). `by_samples_alone` is the agreement on all
    questions if no known answer were used: how well sampling alone recovers the file's labels.
    """
    groups = groups_apart(prompts) if prompts else np.zeros(0, dtype=int)
    file_knows = np.array([one.label == "benign" for one in observed], dtype=bool)
    labelled = np.array([one.knows is not None for one in labels], dtype=bool)
    checked = np.array([one.correct is not None for one in observed], dtype=bool)
    same = np.array([bool(one.knows) for one in labels], dtype=bool) == file_knows
    alone = np.array([not reason_to_doubt(one, threshold) for one in observed], dtype=bool) == file_knows

    def share(hit: Rows, rows: Rows) -> Estimate:
        return grouped_rate(hit[rows], groups[rows]).counted(int(rows.sum()), groups[rows])

    named = {True: "benign", False: "uncertain", None: "left_out"}
    everywhere = np.ones(len(labels), dtype=bool)
    return KnowledgeLabels(
        labelled=share(labelled, everywhere),
        left_out=Counter(one.why for one in labels if one.knows is None),
        file_to_model={
            label: Counter(named[one.knows] for one, of in zip(labels, observed, strict=True) if of.label == label)
            for label in ("benign", "uncertain")
        },
        agreement_with_file=share(same, labelled),
        with_known_answer=share(same, labelled & checked),
        by_samples_alone=share(alone, everywhere),
    )
