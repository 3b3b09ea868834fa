"""The check behind `refusal prompts check`: validity, balance, pairs, and surface cues that a probe could exploit."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments.factors.prompt_context import ambiguous_texts, earlier_turns
from experiments.prompt_check.results import (
    ContextCounts,
    PersonaCounts,
    PromptCheck,
    QuadrupleCounts,
    TriggerCounts,
    TwinCounts,
    WordCues,
)
from experiments.prompt_check.word_cues import confounds, full_text, measure_cues
from experiments.run.config import CategoriesConfig
from experiments.run.corpus import Corpus, divide
from experiments.triggers.quadruples import MEMBERS, member_description, member_of, quadruples, requests_in_pairs
from extract.prompts.prompt import Prompt
from extract.prompts.sources import PromptsConfig, read_prompts
from extract.table import Paragraph, Table, print_blocks
from probes.statistics.metrics import enough

LEAST_OF_CATEGORY = CategoriesConfig().least  # prompts to be declined, and benign ones


def check(path: Path | None, dataset: str | None = None) -> PromptCheck:
    """Return counts, the structure of the prompts, the AUROC of words alone, and the faults found (`problems`).

    Args:
        path: a prompt file; with `dataset`, its local copy, or None to read it from the hub.
        dataset: name of a public set.

    Raises:
        UserError: a row is no valid prompt, or the file's own split separates a group.
    """
    given = {"path": path} if dataset is None else {"datasets": [{"name": dataset, "path": path}]}
    config = PromptsConfig.model_validate(given)
    prompts = read_prompts(config, seed=0)
    corpus = divide(prompts, config, seed=0)
    repeated = sum(n - 1 for n in Counter(full_text(prompt) for prompt in prompts).values())
    pairs, quadruple_problems = count_quadruples(corpus)
    triggers, trigger_problems = count_triggers(prompts)
    twins, twin_problems = count_twins(prompts)
    personas, persona_problems = count_personas(prompts)
    contrasts = word_contrasts(corpus)
    cue_problems = [line for name, cues in contrasts.items() if cues is not None for line in confounds(name, cues)]
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
        quadruples=pairs,
        triggers=triggers,
        twins=twins,
        personas=personas,
        contexts=count_contexts(corpus),
        words={name: cues or "one side has no prompts" for name, cues in contrasts.items()},
        problems=(
            *([f"{repeated} texts are repeated"] if repeated else []),
            *quadruple_problems,
            *trigger_problems,
            *twin_problems,
            *persona_problems,
            *cue_problems,
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


def count_quadruples(corpus: Corpus) -> tuple[QuadrupleCounts, list[str]]:
    """Return the counts of complete quadruples and of prompts in each cell, and which pairs lack a cell."""
    members = quadruples(corpus, np.arange(len(corpus)))
    rows = requests_in_pairs(corpus, np.arange(len(corpus)))
    held: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        held[str(corpus.prompts[row].pair)].add(MEMBERS.index(member_of(corpus, row)))
    complete = sum(len(cells) == len(MEMBERS) for cells in held.values())
    broken = {pair: cells for pair, cells in held.items() if len(cells) == len(MEMBERS) - 1}
    problems = []
    if broken:
        pair, cells = next(iter(broken.items()))
        missing = member_description(MEMBERS[next(i for i in range(len(MEMBERS)) if i not in cells)])
        problems.append(f"{len(broken)} pairs lack one of the four cells, for example {pair!r} the one {missing}")
    if complete and len(set(members.counts().values())) > 1:
        problems.append(f"the cells of the complete pairs are unbalanced: {members.counts()}")
    return QuadrupleCounts(complete=complete, groups=members.n_groups, prompts=members.counts()), problems


def count_triggers(prompts: Sequence[Prompt]) -> tuple[TriggerCounts, list[str]]:
    """Return the counts of trigger words, which triggers are not in their text, and which words are not marked."""
    words = Counter(prompt.trigger.lower() for prompt in prompts if prompt.trigger)
    lost = [p.id for p in prompts if p.trigger and not contains_word(p.trigger, p.text)]
    requests = [p for p in prompts if p.trigger is None and p.intent in ("benign", "harmful")]
    unmarked = [(p.id, word) for p in requests for word in words if contains_word(word, p.text)]
    problems = []
    if lost:
        problems.append(
            f"{len(lost)} prompts have a trigger that is no word of their last turn, for example {lost[0]!r}"
        )
    if unmarked:
        row, word = unmarked[0]
        n = len({i for i, _ in unmarked})
        problems.append(
            f"{n} requests without a trigger contain another prompt's trigger word: {row!r} contains {word!r}"
        )
    commonest = dict(words.most_common(5))
    return TriggerCounts(prompts=sum(words.values()), different=len(words), commonest=commonest), problems


def contains_word(word: str, text: str) -> bool:
    """Return whether a text contains a whole word, in upper or lower case."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, flags=re.IGNORECASE) is not None


def count_twins(prompts: Sequence[Prompt]) -> tuple[TwinCounts, list[str]]:
    """Return the counts of uncertain prompts by category and of known twins; missing twins and missing answers."""
    uncertain = [prompt for prompt in prompts if prompt.label == "uncertain"]
    known: dict[str, list[Prompt]] = defaultdict(list)
    for prompt in prompts:
        if prompt.label == "benign" and prompt.pair:
            known[prompt.pair].append(prompt)
    without_twin = [p.id for p in uncertain if not known.get(p.pair or "")]
    twins = [twin for pair in sorted({p.pair for p in uncertain if p.pair}) for twin in known.get(pair, [])]
    unanswered = [twin.id for twin in twins if not twin.answer]
    problems = []
    if without_twin:
        problems.append(
            f"{len(without_twin)} uncertain prompts have no benign twin of the same 'pair', for example "
            f"{without_twin[0]!r}: a probe may learn their topic instead of what is known"
        )
    if unanswered:
        problems.append(
            f"{len(unanswered)} twins have no 'answer', for example {unanswered[0]!r}: whether the model "
            "answers them correctly cannot be measured"
        )
    kinds = dict(sorted(Counter(prompt.category or "-" for prompt in uncertain).items()))
    return TwinCounts(uncertain=len(uncertain), kinds=kinds, twins=len(twins)), problems


def count_personas(prompts: Sequence[Prompt]) -> tuple[PersonaCounts, list[str]]:
    """Return the size of the persona x request table, and which requests are not asked by every persona."""
    cells: dict[tuple[str, str], set[str]] = defaultdict(set)
    personas = {prompt.persona for prompt in prompts if prompt.persona}
    for prompt in prompts:
        if prompt.persona and prompt.pair:
            cells[prompt.pair, prompt.label].add(prompt.persona)
    incomplete = [pair for (pair, _), asked in cells.items() if asked != personas]
    problems = []
    if incomplete and len(incomplete) < len(cells):  # if no request is complete, the personas form no table
        problems.append(
            f"{len(incomplete)} requests are not asked by every persona, for example that of pair {incomplete[0]!r}"
        )
    return PersonaCounts(personas=len(personas), requests=len(cells)), problems


def count_contexts(corpus: Corpus) -> ContextCounts:
    """Return the counts of prompts with earlier turns or system lines, and of last turns labelled both ways."""
    prompts = corpus.prompts
    return ContextCounts(
        earlier_turns=sum(earlier_turns(prompt) is not None for prompt in prompts),
        ambiguous=ambiguous_texts(corpus).both,
        system_line=sum(prompt.messages[0]["role"] == "system" for prompt in prompts),
    )


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
