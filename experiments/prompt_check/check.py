"""The check behind `refusal prompts check`: validity, balance, pairs, and surface cues that a probe could exploit."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from pydantic import Field

from experiments.factors.prompt_context import ambiguous_texts, earlier_turns
from experiments.prompt_check.word_cues import WordCues, confounds, full_text, measure_cues
from experiments.run.config import CategoriesConfig
from experiments.run.corpus import Corpus, divide
from experiments.triggers.quadruples import MEMBERS, member_description, member_of, quadruples, requests_in_pairs
from extract.prompts.prompt import Prompt
from extract.prompts.sources import PromptsConfig, read_prompts
from extract.record import Record
from extract.table import Paragraph, Table, print_blocks
from probes.statistics.metrics import enough

LEAST_OF_CATEGORY = CategoriesConfig().least  # prompts to be declined, and benign ones
Counts = dict[str, int | dict[str, int]]


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

    With a set's name the path is its local copy, or None to read it from the hub. UserError: a row is no valid prompt,
    or the file's own split separates a group.
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
        certifiable_rate=certifiable(benign),
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


CONFIDENCE = 0.95
Fault = tuple[Sequence[object], str]  # the cases that have it, and its text with their number {n} and the {first}


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
    broken = [
        (pair, member_description(MEMBERS[min(set(range(len(MEMBERS))) - own)]))
        for pair, own in held.items()
        if len(own) == len(MEMBERS) - 1
    ]
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
        "last turns that the first decides": ambiguous_texts(corpus).both,
        "with a system line": sum(prompt.messages[0]["role"] == "system" for prompt in corpus.prompts),
    }


def certifiable(n_groups: int) -> float:
    """Return the lowest rate that n independent prompts without a failure certify at 95 %: 1 - 0.05^(1/n)."""
    return 1.0 if n_groups == 0 else float(1 - (1 - CONFIDENCE) ** (1 / n_groups))


def print_check(check: PromptCheck) -> None:
    """Print a check: counts, how well words alone separate the labels, and problems."""
    counts = {key: value for key, value in check.to_dict().items() if key not in ("words", "problems")}
    rows = [[name, *_row(cues)] for name, cues in check.words.items()]
    title = "AUROC of words alone (whole groups held out; 95 % intervals)"
    measured = {name: cues for name, cues in check.words.items() if not isinstance(cues, str)}
    words = [
        f"{name}, words by class (positive:negative prompts): {_class_words(cues)}" for name, cues in measured.items()
    ]
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


def _class_words(cues: WordCues) -> str:
    sides = (cues.words_of_the_positive_side, cues.words_of_the_negative_side)
    return "; ".join(", ".join(f"{word} {a}:{b}" for word, a, b in side[:5]) for side in sides)
