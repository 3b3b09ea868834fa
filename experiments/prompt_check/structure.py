"""Structure of a prompt file: quadruples, triggers, twins, personas and contexts, with what is broken in each."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from experiments.factors.prompt_context import ambiguous_texts, earlier_turns
from experiments.prompt_check.results import ContextCounts, PersonaCounts, QuadrupleCounts, TriggerCounts, TwinCounts
from experiments.run.corpus import Corpus
from experiments.triggers.quadruples import MEMBERS, member_description, member_of, quadruples, requests_in_pairs
from extract.prompts.prompt import Prompt

CONFIDENCE = 0.95


def count_quadruples(corpus: Corpus) -> tuple[QuadrupleCounts, list[str]]:
    """Return the counts of complete quadruples and of prompts in each cell, and which pairs lack a cell."""
    found = quadruples(corpus, np.arange(len(corpus)))
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
    if complete and len(set(found.counts().values())) > 1:
        problems.append(f"the cells of the complete pairs are unbalanced: {found.counts()}")
    return QuadrupleCounts(complete=complete, groups=found.n_groups, prompts=found.counts()), problems


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
