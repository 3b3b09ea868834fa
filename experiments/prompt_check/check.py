"""The check behind `refusal prompts check`: validity, balance, pairs, and surface cues that a probe could exploit."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int
from pydantic import Field
from sklearn.model_selection import StratifiedGroupKFold

from experiments.factors.prompt_context import ambiguous_texts, earlier_turns
from experiments.run.config import CategoriesConfig
from experiments.run.corpus import Corpus, divide
from experiments.triggers.quadruples import MEMBERS, member_description, member_of, quadruples, requests_in_pairs
from extract.prompts.prompt import Prompt
from extract.prompts.sources import PromptsConfig, read_prompts
from extract.record import Record
from extract.table import Paragraph, Table, print_blocks
from probes.grid.baselines import word_scores
from probes.statistics.intervals import Estimate, clopper_pearson
from probes.statistics.metrics import average, discrimination, enough

LEAST_OF_CATEGORY = CategoriesConfig().least  # prompts to be declined, and benign ones
Counts = dict[str, int | dict[str, int]]
Fault = tuple[Sequence[object], str]  # the cases that have it, and its text with their number {n} and the {first}
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


class PromptCheck(Record):
    """The content of a prompt file, how well words alone separate its labels, and its problems."""

    prompts: int
    labels: dict[str, int]
    lacks: tuple[str, ...] = Field(alias="lacks, for a whole run")
    right_actions: dict[str, int] = Field(alias="right actions")
    categories: int
    groups: int
    repeated_texts: int = Field(alias="repeated texts")
    independent_benign: int = Field(alias="independent benign prompts")
    certifiable_rate: float = Field(alias="certifiable rate")
    quadruples: Counts  # pairs that hold all four cells, their groups, and the prompts of each cell
    triggers: Counts  # prompts with a trigger word, different words, and the most frequent words
    twins: Counts  # uncertain prompts, by kind, and their known twins
    personas: Counts  # the table of personas by requests
    contexts: Counts  # prompts with a system line or earlier turns before their last turn
    words: dict[str, WordCues | str]  # by contrast; or the reason why there is nothing to compare
    problems: tuple[str, ...]


def check(path: Path | None, dataset: str | None = None) -> PromptCheck:
    """Return counts, structure, the AUROC of words alone, and the faults of a prompt file, or of a public set.

    With a set's name the path is its local copy, or None to read it from the hub. UserError: a row is no valid prompt.
    """
    given = {"path": path} if dataset is None else {"datasets": [{"name": dataset, "path": path}]}
    config = PromptsConfig.model_validate(given)
    prompts = read_prompts(config, seed=0)
    corpus = divide(prompts, config, seed=0)
    repeated = sum(n - 1 for n in Counter(full_text(prompt) for prompt in prompts).values())
    structure = {
        "quadruples": count_quadruples(corpus),
        "triggers": count_triggers(prompts),
        "twins": count_twins(prompts),
        "personas": count_personas(prompts),
        "contexts": (count_contexts(corpus), []),
    }
    contrasts = word_contrasts(corpus)
    benign, counts = corpus.n_groups(np.flatnonzero(corpus.benign)), corpus.counts()
    return PromptCheck(
        prompts=len(prompts),
        labels=counts,
        lacks=tuple(label for label, count in counts.items() if not count),
        right_actions=dict(sorted(Counter(prompt.right_action for prompt in prompts).items())),
        categories=len({prompt.category for prompt in prompts}),
        groups=corpus.n_groups(np.arange(len(corpus))),
        repeated_texts=repeated,
        independent_benign=benign,
        certifiable_rate=clopper_pearson(0, benign, alpha=0.1).high,  # one-sided, at 95 %
        **{name: counted for name, (counted, _) in structure.items()},
        words={name: cues or "one side has no prompts" for name, cues in contrasts.items()},
        problems=(
            *([f"{repeated} texts are repeated"] if repeated else []),
            *(line for _, problems in structure.values() for line in problems),
            *(line for name, cues in contrasts.items() if cues is not None for line in confounds(name, cues)),
        ),
    )


def word_contrasts(corpus: Corpus) -> dict[str, WordCues | None]:
    """Measure how well words separate the labels: over all prompts, within quadruples, and within large categories."""
    every = np.arange(len(corpus))
    requests = corpus.harmful | corpus.requests
    asked = {
        "harmful vs benign": (requests, corpus.harmful),
        "same, within trigger prompts": (requests & corpus.trigger, corpus.harmful),
        "same, within quadruples": (np.isin(every, quadruples(corpus, every).rows), corpus.harmful),
        "uncertain vs twins": (corpus.uncertain | corpus.twins, corpus.uncertain),
    } | _within_categories(corpus)
    measured = {}
    for name, (among, positive) in asked.items():
        rows = np.flatnonzero(among)
        measured[name] = measure_cues([corpus.prompts[row] for row in rows], positive[rows], corpus.groups[rows])
    return measured


def _within_categories(corpus: Corpus) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return, by name, the prompts of each category that is large enough to be tested, and which are to be declined."""
    declined, names = corpus.harmful | corpus.uncertain, np.array([p.category or "" for p in corpus.prompts])
    inside = {name: (names == name) & corpus.rated for name in sorted(set(names.tolist()) - {""})}
    return {
        f"within {name}": (rows, declined)
        for name, rows in inside.items()
        if min(int((rows & declined).sum()), int((rows & ~declined).sum())) >= LEAST_OF_CATEGORY
    }


def lines_of(*faults: Fault) -> list[str]:
    """Return a line for each fault that has cases."""
    return [text.format(n=len(cases), first=cases[0]) for cases, text in faults if cases]


def count_quadruples(corpus: Corpus) -> tuple[Counts, list[str]]:
    """Return the counts of complete quadruples and of prompts in each cell, and which pairs lack a cell."""
    every = np.arange(len(corpus))
    members, held = quadruples(corpus, every), defaultdict[str, set[int]](set)
    for row in requests_in_pairs(corpus, every):
        held[str(corpus.prompts[row].pair)].add(MEMBERS.index(member_of(corpus, row)))
    complete, cells = sum(len(own) == len(MEMBERS) for own in held.values()), members.counts()
    lacking = {pair: set(range(len(MEMBERS))) - own for pair, own in held.items()}
    broken = [(pair, member_description(MEMBERS[min(cell)])) for pair, cell in lacking.items() if len(cell) == 1]
    return {"complete": complete, "groups": members.n_groups, "prompts": cells}, lines_of(
        (broken, "{n} pairs lack one of the four cells, for example {first[0]!r} the one {first[1]}"),
        (
            [cells] if complete and len(set(cells.values())) > 1 else [],
            "the cells of the complete pairs are unbalanced: {first}",
        ),
    )


def count_triggers(prompts: Sequence[Prompt]) -> tuple[Counts, list[str]]:
    """Return the counts of trigger words, which triggers are not in their text, and which words are not marked."""
    words = Counter(prompt.trigger.lower() for prompt in prompts if prompt.trigger)
    lost = [p.id for p in prompts if p.trigger and not contains_word(p.trigger, p.text)]
    requests = [p for p in prompts if p.trigger is None and p.intent in ("benign", "harmful")]
    unmarked = {p.id: word for p in requests for word in reversed(words) if contains_word(word, p.text)}
    return {"prompts": sum(words.values()), "different": len(words), "commonest": dict(words.most_common(5))}, lines_of(
        (lost, "{n} prompts have a trigger that is no word of their last turn, for example {first!r}"),
        (
            list(unmarked.items()),
            "{n} requests without a trigger contain another prompt's trigger word: {first[0]!r} contains {first[1]!r}",
        ),
    )


def contains_word(word: str, text: str) -> bool:
    """Return whether a text contains a whole word, in upper or lower case."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, flags=re.IGNORECASE) is not None


def count_twins(prompts: Sequence[Prompt]) -> tuple[Counts, list[str]]:
    """Return the counts of uncertain prompts by category and of known twins; missing twins and missing answers."""
    uncertain = [prompt for prompt in prompts if prompt.label == "uncertain"]
    known: dict[str, list[Prompt]] = defaultdict(list)
    for prompt in prompts:
        if prompt.label == "benign" and prompt.pair:
            known[prompt.pair].append(prompt)
    without_twin = [p.id for p in uncertain if not known.get(p.pair or "")]
    twins = [twin for pair in sorted({p.pair for p in uncertain if p.pair}) for twin in known.get(pair, [])]
    kinds = dict(sorted(Counter(prompt.category or "-" for prompt in uncertain).items()))
    return {"uncertain": len(uncertain), "kinds": kinds, "twins": len(twins)}, lines_of(
        (
            without_twin,
            "{n} uncertain prompts have no benign twin of the same 'pair', for example {first!r}: "
            "a probe may learn their topic instead of what is known",
        ),
        (
            [twin.id for twin in twins if not twin.answer],
            "{n} twins have no 'answer', for example {first!r}: whether the model "
            "answers them correctly cannot be measured",
        ),
    )


def count_personas(prompts: Sequence[Prompt]) -> tuple[Counts, list[str]]:
    """Return the size of the persona x request table, and which requests are not asked by every persona."""
    cells: dict[tuple[str, str], set[str]] = defaultdict(set)
    personas = {prompt.persona for prompt in prompts if prompt.persona}
    for prompt in prompts:
        if prompt.persona and prompt.pair:
            cells[prompt.pair, prompt.label].add(prompt.persona)
    incomplete = [pair for (pair, _), asked in cells.items() if asked != personas]
    form_a_table = len(incomplete) < len(cells)  # some request is complete
    return {"personas": len(personas), "requests": len(cells)}, lines_of(
        (
            incomplete if form_a_table else [],
            "{n} requests are not asked by every persona, for example that of pair {first!r}",
        )
    )


def count_contexts(corpus: Corpus) -> Counts:
    """Return the counts of prompts with earlier turns or system lines, and of last turns labelled both ways."""
    return {
        "with earlier turns": sum(earlier_turns(prompt) is not None for prompt in corpus.prompts),
        "last turns that the first decides": ambiguous_texts(corpus)["both"],
        "with a system line": sum(prompt.messages[0]["role"] == "system" for prompt in corpus.prompts),
    }


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


def print_check(check: PromptCheck) -> None:
    """Print a check: counts, how well words alone separate the labels, and problems."""
    counts = {key: value for key, value in check.to_dict().items() if key not in ("words", "problems")}
    rows = [[name, *_row(cues)] for name, cues in check.words.items()]
    title = "AUROC of words alone (whole groups held out; 95 % intervals)"
    measured = {name: cues for name, cues in check.words.items() if not isinstance(cues, str)}
    words = []
    for name, cues in measured.items():
        sides = (cues.words_of_the_positive_side[:5], cues.words_of_the_negative_side[:5])
        listed = "; ".join(", ".join(f"{word} {a}:{b}" for word, a, b in side) for side in sides)
        words.append(f"{name}, words by class (positive:negative prompts): {listed}")
    problems = [Paragraph(f"{problem}.", "Problem:") for problem in check.problems]
    if not problems:
        where = "in the contrasts with prompts on both sides. " if len(measured) < len(check.words) else ""
        other = "Cues other than words and surface features are not checked."
        problems = [Paragraph(where + other, "No problem found" + ("" if where else "."))]
    print_blocks(f"{key:<28} {_shown(key, value)}" for key, value in counts.items())
    print_blocks([Table(title, ["prompts", "n", "bag of words", "number of words"], rows), *words, *problems])


def _shown(key: str, value: object) -> str:
    if key == "certifiable rate":
        return f"{value:.2%} (if none of them is declined, one prompt a group; 95 % confidence)"
    if isinstance(value, Mapping):
        return "; ".join(f"{name} {_shown('', part)}" for name, part in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "nothing"
    return str(value)


def _row(cues: WordCues | str) -> list[str]:
    if isinstance(cues, str):
        return ["", cues, ""]
    alike = "all alike" if enough(*cues.n) else "too few prompts"
    aurocs = (cues.bag_of_words, cues.features.get("the number of words", alike))
    return [" + ".join(map(str, cues.n)), *(auroc if isinstance(auroc, str) else f"{auroc:.2f}" for auroc in aurocs)]
