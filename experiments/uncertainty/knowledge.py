"""Epistemic labels from the model itself: what *this* model does not know, rather than what a file supposes.

A question's label follows from its samples:

- most refuse: left out, for that says nothing of knowledge;
- with a known answer: known where the completion states it and at least half the samples do, not known where the
  completion does not and at most half the samples do, left out where completion and samples disagree;
- without one: not known where most abstain or where entropy is high (above the split of semantic_entropy.py);
  otherwise it is left out: an invention repeated every time looks like knowledge, and nothing here separates the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from jaxtyping import Bool

from experiments.uncertainty.observation import Observation
from experiments.uncertainty.results import KnowledgeLabels
from extract.prompts.groups import groups_apart
from extract.prompts.prompt import Prompt
from scoring.estimate import Estimate, estimate_of
from scoring.rates import grouped_rate

REFUSED = "most samples refuse"
DIFFERS = "the completion and most samples differ in stating the known answer"
UNCHECKED = "the samples agree on an answer that nothing checks"
Rows = Bool[np.ndarray, " questions"]


@dataclass(frozen=True)
class KnowledgeLabel:
    """Whether a model knows the answer to a question (None: it cannot be said), and why."""

    knows: bool | None
    why: str


def knowledge_label(one: Observation, threshold: float | None) -> KnowledgeLabel:
    """Say whether the model knows.

    Args:
        threshold: above which an entropy is high; None where all are the same, so that none is.
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
    """Say what in the samples alone speaks against knowing; "" where nothing does."""
    if one.share("abstain") > 0.5:
        return "most samples abstain"
    return "entropy is high" if threshold is not None and one.entropy > threshold else ""


def relabel_prompts(prompts: Sequence[Prompt], labels: Mapping[str, KnowledgeLabel]) -> list[Prompt]:
    """Return the prompts with the labels of questions set by what the model knows; what cannot be said is left out.

    Args:
        labels: by prompt id; prompts that are not in it stay as they are.
    """
    return [_labelled(prompt, labels[prompt.id].knows) if prompt.id in labels else prompt
            for prompt in prompts if prompt.id not in labels or labels[prompt.id].knows is not None]  # fmt: skip


def _labelled(prompt: Prompt, knows: bool | None) -> Prompt:
    label, action = ("benign", "answer") if knows else ("uncertain", "abstain")
    return prompt if prompt.label == label else replace(prompt, label=label, right_action=action, acceptable=())


def prompt_row(prompt: Prompt) -> dict[str, object]:
    """Return a prompt as the row of a prompt file that is read as the same prompt."""
    return {name: value for name, value in asdict(prompt).items() if value is not None and value != ()} | {
        "messages": list(prompt.messages)
    }


def compare_labels(
    observed: Sequence[Observation],
    prompts: Sequence[Prompt],
    labels: Sequence[KnowledgeLabel],
    threshold: float | None,
) -> KnowledgeLabels:
    """Count labels, what was left out and why, and how the labels agree with the file's.

    Agreement is of the questions that got a label. Without a known answer the only label to be got is `uncertain`,
    so agreement says something of questions with one (`with_known_answer`). `by_samples_alone` is what agreement would
    be on all questions if no answer could be looked up: how far sampling alone tells what is known, by the file.
    """
    groups = groups_apart(prompts) if prompts else np.zeros(0, dtype=int)
    file_knows = np.array([one.label == "benign" for one in observed], dtype=bool)
    labelled = np.array([one.knows is not None for one in labels], dtype=bool)
    checked = np.array([one.correct is not None for one in observed], dtype=bool)
    same = np.array([bool(one.knows) for one in labels], dtype=bool) == file_knows
    alone = np.array([not reason_to_doubt(one, threshold) for one in observed], dtype=bool) == file_knows

    def share(hit: Rows, rows: Rows) -> Estimate:
        return estimate_of(grouped_rate(hit[rows], groups[rows]), int(rows.sum()), groups[rows])

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
