"""Surface cues that a probe could exploit: words, length and other features that correlate with a label."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Int
from sklearn.model_selection import StratifiedGroupKFold

from extract.prompts.prompt import Prompt
from extract.record import Record
from probes.grid.baselines import word_scores
from probes.statistics.intervals import Estimate
from probes.statistics.metrics import average, discrimination, enough

N_FOLDS = 5
MOST_WORDS = 8  # shown for each class
LEAST_PROMPTS = 5  # least number of prompts that contain a word for it to count
BAG = "a bag of words"
CUE = 0.1  # an AUROC this far from 0.5 is a cue, if its interval excludes 0.5

FEATURES: dict[str, Callable[[Prompt], float]] = {
    "the number of characters": lambda prompt: len(full_text(prompt)),
    "the number of words": lambda prompt: len(words_of(prompt)),
    "a question mark at the end": lambda prompt: prompt.text.rstrip().endswith("?"),
    "a digit": lambda prompt: bool(re.search(r"\d", full_text(prompt))),
    "a capital at the beginning": lambda prompt: prompt.text[:1].isupper(),
    "naming who asks": lambda prompt: prompt.persona is not None,
    "a system line": lambda prompt: prompt.messages[0]["role"] == "system",
    "the number of turns": lambda prompt: len(prompt.messages),
}
WordCount = tuple[str, int, int]  # a word, and the numbers of positive and of negative prompts that contain it


class WordCues(Record):
    """How well words and surface features alone separate one contrast: AUROCs, cross-validated for the words."""

    n: tuple[int, int]  # positive, negative
    bag_of_words: Estimate | str  # or the reason why there is none
    features: dict[str, Estimate]
    words_of_the_positive_side: tuple[WordCount, ...]
    words_of_the_negative_side: tuple[WordCount, ...]


def confounds(name: str, cues: WordCues) -> list[str]:
    """Return one line for each cue that separates the two classes; a feature may favour either class."""
    aurocs = {} if isinstance(cues.bag_of_words, str) else {BAG: cues.bag_of_words}
    return [
        f"{name}: {what} separates the two classes (AUROC {auroc:.2f})"
        for what, auroc in (aurocs | cues.features).items()
        if (auroc.estimate >= 0.5 + CUE and auroc.low > 0.5)
        or (what != BAG and auroc.estimate <= 0.5 - CUE and auroc.high < 0.5)
    ]


def measure_cues(
    prompts: Sequence[Prompt], y: Bool[np.ndarray, " n_prompts"], groups: Int[np.ndarray, " n_prompts"], seed: int = 0
) -> WordCues | None:
    """Measure the cues of one contrast (`y`: the positive class); None if a class is missing."""
    if y.all() or not y.any():
        return None
    n_positive, n_negative = int(y.sum()), int((~y).sum())
    features = {}
    for what, read in FEATURES.items():
        values = np.array([float(read(prompt)) for prompt in prompts])
        if enough(n_positive, n_negative) and np.ptp(values) > 0:
            features[what] = discrimination(y, values, groups).auroc
    words = _cross_validated([full_text(prompt) for prompt in prompts], y, groups, seed)
    positive, negative = _class_words(prompts, y)
    return WordCues(
        n=(n_positive, n_negative),
        bag_of_words=words or "too few groups",
        features=features,
        words_of_the_positive_side=positive,
        words_of_the_negative_side=negative,
    )


def full_text(prompt: Prompt) -> str:
    """Return the text of all turns, one turn a line."""
    return "\n".join(message["content"] for message in prompt.messages)


def words_of(prompt: Prompt) -> list[str]:
    """Return the words of all turns, in lower case."""
    return re.findall(r"\w+", full_text(prompt).lower())


def _cross_validated(texts: Sequence[str], y: np.ndarray, groups: np.ndarray, seed: int) -> Estimate | None:
    """Return the mean AUROC of a bag of words over folds of whole groups; None if a fold would lack a class."""
    if min(len(set(groups[y].tolist())), len(set(groups[~y].tolist()))) < 2 * N_FOLDS:
        return None
    by_fold, folds = [], StratifiedGroupKFold(N_FOLDS, shuffle=True, random_state=seed)
    for train, test in folds.split(np.zeros(len(y)), y, groups):
        if y[test].all() or not y[test].any():
            return None
        by_fold.append(discrimination(y[test], word_scores(texts, y, train, test), groups[test]))
    return average(by_fold).auroc


def _class_words(prompts: Sequence[Prompt], y: np.ndarray) -> tuple[tuple[WordCount, ...], ...]:
    """Return the words that are most over-represented in the positive and in the negative class, with prompt counts."""
    positive, negative = Counter[str](), Counter[str]()
    for prompt, of_positive in zip(prompts, y, strict=True):
        (positive if of_positive else negative).update(set(words_of(prompt)))
    share = {
        word: positive[word] / y.sum() - negative[word] / (~y).sum()
        for word in {*positive, *negative}
        if positive[word] + negative[word] >= LEAST_PROMPTS
    }
    ordered = sorted(share, key=lambda word: (share[word], word))
    sides = ([w for w in ordered[::-1] if share[w] > 0], [w for w in ordered if share[w] < 0])
    return tuple(tuple((w, positive[w], negative[w]) for w in side[:MOST_WORDS]) for side in sides)
