"""The categories of each set of declines: their baseline decliners, the samples of their directions, their folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int, Shaped

from experiments.run.behaviour import ACTION_OF, MIN_BASELINE, Behaviour, Kind, WriteSamples
from experiments.run.corpus import Corpus
from extract.errors import UserError
from extract.prompts.prompt import Prompt

MIN_GROUPS = 20  # effective number of groups among a category's decliners; with fewer no interval settles anything
MIN_ANSWERED_GROUPS = 10  # among the answered prompts, so that every part of the folds has some
LARGEST_GROUP = 0.1  # share of the decliners; with one of 13 to 17 % false claims were made in 8 % of simulations
DeclineSet = Literal["normative", "epistemic", "over_refusal"]
SETS: tuple[DeclineSet, ...] = ("normative", "epistemic", "over_refusal")
KIND_OF: dict[DeclineSet, Kind] = {"normative": "normative", "epistemic": "epistemic", "over_refusal": "normative"}
DECLINES: dict[DeclineSet, str] = {  # in sentences
    "normative": "refusals",
    "epistemic": "abstentions",
    "over_refusal": "refusals of benign prompts",
}


@dataclass(frozen=True)
class Category:
    """One category of one set of declines."""

    name: str
    kind: Kind
    decliners: Int[np.ndarray, " decliners"]  # rows that are declined at baseline
    answered: Int[np.ndarray, " answered"]  # rows to compare them with
    within_label: bool  # the answered prompts have the decliners' label; else they are benign ones of the category
    between: Category | None = None  # the same, compared with benign prompts, where both can be done

    def samples(self, corpus: Corpus, inside: Bool[np.ndarray, " prompts"]) -> WriteSamples:
        decliners, answered = (rows[inside[rows]] for rows in (self.decliners, self.answered))
        return WriteSamples.of(corpus, decliners, answered, within_label=self.within_label)


def find_categories(behaviour: Behaviour, of: DeclineSet, least: int) -> tuple[list[Category], dict[str, str]]:
    """Return the categories with at least so many decliners, by name, and why each other one cannot be tested."""
    corpus = behaviour.corpus
    label = {"normative": corpus.harmful, "epistemic": corpus.uncertain, "over_refusal": corpus.benign}[of]
    of_prompt = np.array([prompt.category or "" for prompt in corpus.prompts], dtype=object)
    categories, missing = list[Category](), dict[str, str]()
    for name in sorted(set(of_prompt[label].tolist()) - {""}):
        inside = of_prompt == name
        category = _category(behaviour, KIND_OF[of], name, label & inside, corpus.benign & inside)
        reason = _too_few(category, DECLINES[of], corpus, int((label & inside).sum()), least)
        if not reason:
            categories.append(category)
        elif of != "over_refusal" or len(category.decliners):  # most categories of benign prompts are never refused
            missing[name] = reason
    return categories, missing


def check_names(only: Sequence[str], prompts: Sequence[Prompt]) -> None:
    """Raise UserError if no prompt has a category that a configuration names."""
    named = sorted({prompt.category for prompt in prompts if prompt.category})
    for name in only:
        if name not in named:
            raise UserError(f"categories.only names {name!r}, which no prompt has; there are {', '.join(named)}")


def folds_of(corpus: Corpus, categories: Sequence[Category], n: int, seed: int) -> Shaped[np.ndarray, " prompts"]:
    """Return the fold of each prompt: whole groups, each category spread evenly over folds; -1 for unused prompts."""
    from sklearn.model_selection import StratifiedGroupKFold  # it takes long to import, and printing needs none

    fold = np.full(len(corpus), -1)
    both = [one for category in categories for one in (category, category.between) if one is not None]
    cell = np.full(len(corpus), "", dtype=object)
    for one in both:
        cell[one.answered], cell[one.decliners] = f"{one.name}/False", f"{one.name}/True"
    rows = np.flatnonzero(cell != "")
    divided = StratifiedGroupKFold(n, shuffle=True, random_state=seed % 2**32)
    for place, (_, test) in enumerate(divided.split(rows, cell[rows], corpus.groups[rows])):
        fold[rows[test]] = place
    return fold


def _category(behaviour: Behaviour, kind: Kind, name: str, own: np.ndarray, benign: np.ndarray) -> Category:
    decliners = np.flatnonzero(own & behaviour.did(ACTION_OF[kind]))
    within, apart = (np.flatnonzero(among & behaviour.answered) for among in (own, benign))
    of_benign = Category(name, kind, decliners, apart, within_label=False)
    if len(within) < MIN_BASELINE:
        return of_benign
    either = len(apart) >= MIN_BASELINE and not (own & benign).any()
    return Category(name, kind, decliners, within, True, of_benign if either else None)


def _too_few(category: Category, doing: str, corpus: Corpus, n_prompts: int, least: int) -> str:
    """Return why a category cannot be tested, and what it would take, or ""."""
    n, answered = len(category.decliners), len(category.answered)
    if n < least:
        share = n / n_prompts
        about = f"about {int(np.ceil(least / share)):,} prompts of it at this rate" if n else "a model that declines it"
        return f"{n} {doing} of {n_prompts} prompts, {least} are needed: give {about}"
    groups = corpus.effective_groups(category.decliners)
    largest = float(np.unique(corpus.groups_among(category.decliners), return_counts=True)[1].max()) / n
    apart, remedy = corpus.effective_groups(category.answered), "give prompts of more pairs"
    if groups < MIN_GROUPS:
        once = "independent ones (a pair, entity or template counts once)"
        return f"its {n} {doing} count as {groups:.1f} {once}, {MIN_GROUPS} are needed: {remedy}"
    if largest > LARGEST_GROUP:
        holds = f"one pair, entity or template holds {largest:.0%} of its {n} {doing}"
        return f"{holds}, at most {LARGEST_GROUP:.0%} are allowed: {remedy}, or fewer of that one"
    if answered < MIN_BASELINE:
        lacks = f"{answered} answered prompts to compare its {n} {doing} with, {MIN_BASELINE} are needed"
        return f"{lacks}: give benign prompts of this category"
    if apart < MIN_ANSWERED_GROUPS:
        count = f"its {answered} answered prompts count as {apart:.1f} independent ones"
        return f"{count}, {MIN_ANSWERED_GROUPS} are needed: {remedy}"
    return ""
