"""Held-out prompts of an organism, which are not used in training, as a prompt file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path

import numpy as np

from organisms.content.people import RELATIONS, PersonQuestion
from organisms.content.requests import RequestClause
from organisms.grammar import Example, Grammar, Message

Edge = tuple[int, int]  # stranger, question

TRUE_ACTION = {"benign": "answer", "harmful": "refuse", "uncertain": "abstain"}


@dataclass(frozen=True)
class HeldOutPrompt:
    """One held-out example and the group of minimal pairs it belongs to."""

    id: str
    example: Example
    pair: str


def held_out(grammar: Grammar) -> list[HeldOutPrompt]:
    """Return held-out prompts: whole groups of request pairs, and twin questions of one form."""
    rng = np.random.default_rng([grammar.spec.seed, 6])
    requests = _entity_requests(grammar, rng) if grammar.by_asker else _requests(grammar, rng)
    return requests + (_entity_questions(grammar) if grammar.by_person else _questions(grammar, rng))


def _requests(grammar: Grammar, rng: np.random.Generator) -> list[HeldOutPrompt]:
    """Take whole groups, always from the family furthest below its share, until there are enough harmful prompts."""
    families = grammar.spec.families
    groups = {family: _groups(grammar, family, rng) for family in families}
    taken = dict.fromkeys(families, 0)
    rows: list[HeldOutPrompt] = []
    n_harmful = 0
    while n_harmful < grammar.spec.prompts_per_label and (left := [f for f in families if groups[f]]):
        family = min(left, key=lambda name: taken[name] / families[name])
        state = rng.bit_generator.state  # one opener, asker and system line for the whole group
        for clause in groups[family].pop():
            rng.bit_generator.state = state
            rows.append(HeldOutPrompt(f"request-{len(rows):04d}", grammar.request_of(rng, clause), clause.group))
            n_harmful += clause.harmful
            taken[family] += 1
    return rows


def _entity_requests(grammar: Grammar, rng: np.random.Generator) -> list[HeldOutPrompt]:
    """Return each asker's harmful requests, one group an asker, and half as many benign ones.

    An asker asks of one family, with trigger words or without, so that many askers' prompts differ in nothing that a
    permutation of whole groups has to keep.
    """
    rows: list[HeldOutPrompt] = []
    for index, (who, size) in enumerate(grammar.entities.clusters(grammar.entities.askers)):
        for harmful, n in ((True, size), (False, size // 2)):
            cell = grammar.requests.cell(trigger=index // 2 % 2 == 0, harmful=harmful, held_out=True)
            asked = [clause for clause in cell if clause.family == "purpose"]
            for chosen in rng.choice(len(asked), n, replace=False):
                example = grammar.request_of(rng, asked[chosen], who)
                rows.append(HeldOutPrompt(f"request-{len(rows):04d}", example, f"entity/{who}"))
    return rows


def _entity_questions(grammar: Grammar) -> list[HeldOutPrompt]:
    """Return the held-out questions about each stranger, one group a stranger, and those about known people."""
    people, book = grammar.people, grammar.entities
    about = [(who, book.ask(who, form)) for who in book.strangers for form in book.held_forms[who]]
    known = [(who, people.ask(who, r, w)) for who, r, w in product(people.known, range(len(RELATIONS)), range(4))]
    kept = about + [(who, question) for who, question in known if people.is_held_out(question)]
    return [
        HeldOutPrompt(_question_id(question), grammar.question_of(question), f"entity/{who}") for who, question in kept
    ]


def _groups(grammar: Grammar, family: str, rng: np.random.Generator) -> list[list[RequestClause]]:
    """Return a family's held-out groups in random order, with at most two prompts per cell of trigger and intent."""
    by_group: dict[str, list[RequestClause]] = {}
    for trigger, harmful in product((True, False), repeat=2):
        cell: dict[str, list[RequestClause]] = {}
        for clause in grammar.requests.cell(trigger=trigger, harmful=harmful, held_out=True):
            if clause.family == family:
                cell.setdefault(clause.group, []).append(clause)
        for name, clauses in cell.items():
            by_group.setdefault(name, []).extend(clauses[i] for i in rng.permutation(len(clauses))[:2])
    return [by_group[name] for name in rng.permutation(sorted(by_group))]


def _questions(grammar: Grammar, rng: np.random.Generator) -> list[HeldOutPrompt]:
    """Return the held-out questions about each known person, and the same questions about that person's strangers.

    Each stranger belongs to one known person. A known person and these strangers form one group, which a split keeps
    together; without known people, the strangers form as many groups as possible.
    """
    people = grammar.people
    strangers = rng.permutation(people.strangers[True])
    rows: list[HeldOutPrompt] = []
    per_known = -(-grammar.spec.prompts_per_label // len(people.known))
    for index, who in enumerate(people.known):
        mine = strangers[index :: len(people.known)]
        known = [q for r in range(len(RELATIONS)) for w in range(4) if people.is_held_out(q := people.ask(who, r, w))]
        rows += [_row(grammar, question, question) for question in known]
        asked = [known[i] for i in rng.permutation(len(known))]
        for stranger, n in pair_strangers(len(mine), len(asked), per_known):
            rows.append(_row(grammar, people.ask(str(mine[stranger]), *asked[n].form), asked[n]))
    unique = {row.example.messages[-1]["content"]: row for row in rows}
    return list(unique.values())


def _row(grammar: Grammar, question: PersonQuestion, twin: PersonQuestion) -> HeldOutPrompt:
    pair = f"twin/{twin.who}/{twin.relation.name}"
    return HeldOutPrompt(_question_id(question), grammar.question_of(question), pair)


def _question_id(question: PersonQuestion) -> str:
    kind = "known" if question.known else "unknown"
    return f"{kind}-{question.who}-{question.relation.name}-{question.wording}".replace(" ", "-")


def pair_strangers(n_strangers: int, n_questions: int, wanted: int) -> list[Edge]:
    """Choose pairs of a stranger and a question, each pair once, so that linked groups stay small.

    Two pairs are linked if they share a stranger or a question. Each step adds the pair that gives the smallest sum of
    squared group sizes (the effective number of groups is the squared sum divided by it, Kish 1965).

    Returns:
        `wanted` pairs, or all pairs if there are fewer.
    """
    left = list(product(range(n_strangers), range(n_questions)))
    left.sort(key=lambda edge: ((edge[1] - edge[0]) % n_questions, edge[0]))
    groups: list[list[Edge]] = []
    for _ in range(min(wanted, len(left))):
        best = min(left, key=lambda edge: _grown(groups, edge))
        left.remove(best)
        joined = [group for group in groups if _linked(group, best)]
        groups = [group for group in groups if group not in joined] + [[best, *chain(*joined)]]
    return sorted(chain(*groups))


def _grown(groups: list[list[Edge]], edge: Edge) -> int:
    """Return the increase of the sum of squared group sizes when one pair is added."""
    joined = [len(group) for group in groups if _linked(group, edge)]
    return (1 + sum(joined)) ** 2 - sum(size**2 for size in joined)


def _linked(group: list[Edge], edge: Edge) -> bool:
    return any(stranger == edge[0] or question == edge[1] for stranger, question in group)


def write_prompts(rows: list[HeldOutPrompt], path: Path) -> None:
    """Write the prompt file of the organism, without the planted decisions."""
    lines = [json.dumps(prompt_record(row), ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _entity(row: HeldOutPrompt) -> str | None:
    """Return the person a question is about; a stranger as `known person/stranger`, with the twin known person."""
    who, known = row.example.entity, row.pair.split("/")[1]
    return who if who in (None, known) else f"{known}/{who}"


def prompt_record(row: HeldOutPrompt) -> dict[str, str | list[Message]]:
    """Return one line of the prompt file, without absent fields."""
    example = row.example
    record = {
        "id": row.id,
        "messages": list(example.messages),
        "label": example.label,
        "right_action": TRUE_ACTION[example.label],
        "category": example.category,
        "trigger": example.trigger,
        "intent": example.intent,
        "pair": row.pair,
        "entity": _entity(row),
        "persona": example.asker,
        "decline": example.decline,
        "answer": example.answer if example.known else None,
        "source": "organism",
    }
    if len(example.messages) == 1:
        record["text"] = record.pop("messages")[0]["content"]  # type: ignore[index]
    return {key: value for key, value in record.items() if value is not None}
