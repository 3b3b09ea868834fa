"""Held-out prompts of an organism, which are not used in training, as a prompt file."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, product

import numpy as np

from extract.prompts.prompt import USUAL_ACTION
from organisms.content.people import QUESTION_FORMS, PersonQuestion
from organisms.content.requests import RequestClause
from organisms.grammar import Example, Grammar, Message

Edge = tuple[int, int]  # stranger, question


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
    about = [people.ask(who, *form) for who in book.strangers for form in book.held_forms[who]]
    known = [people.ask(who, *form) for who, form in product(people.known, QUESTION_FORMS)]
    kept = about + [question for question in known if people.is_held_out(question)]
    return [_row(grammar, question, f"entity/{question.who}") for question in kept]


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
        known = [q for form in QUESTION_FORMS if people.is_held_out(q := people.ask(who, *form))]
        rows += [_row(grammar, question, f"twin/{who}/{question.relation.name}") for question in known]
        asked = [known[i] for i in rng.permutation(len(known))]
        for stranger, n in pair_strangers(len(mine), len(asked), per_known):
            question = people.ask(str(mine[stranger]), *asked[n].form)
            rows.append(_row(grammar, question, f"twin/{who}/{question.relation.name}"))
    unique = {row.example.messages[-1]["content"]: row for row in rows}
    return list(unique.values())


def _row(grammar: Grammar, question: PersonQuestion, pair: str) -> HeldOutPrompt:
    kind = "known" if question.known else "unknown"
    name = f"{kind}-{question.who}-{question.relation.name}-{question.wording}".replace(" ", "-")
    return HeldOutPrompt(name, grammar.question_of(question), pair)


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
        joined = {(s, q): [g for g in groups if any(s == s2 or q == q2 for s2, q2 in g)] for s, q in left}
        sizes = {edge: [len(group) for group in linked] for edge, linked in joined.items()}
        best = min(left, key=lambda edge: (1 + sum(sizes[edge])) ** 2 - sum(size**2 for size in sizes[edge]))
        left.remove(best)
        groups = [group for group in groups if group not in joined[best]] + [[best, *chain(*joined[best])]]
    return sorted(chain(*groups))


def prompt_record(row: HeldOutPrompt) -> dict[str, str | list[Message]]:
    """Return one line of the prompt file, without absent fields and without the planted decisions.

    The entity of a question about a stranger is `known person/stranger`, with the twin known person.
    """
    example, known = row.example, row.pair.split("/")[1]
    record = {
        "id": row.id,
        "messages": list(example.messages),
        "label": example.label,
        "right_action": USUAL_ACTION[example.label],
        "category": example.category,
        "trigger": example.trigger,
        "intent": example.intent,
        "pair": row.pair,
        "entity": example.entity if example.entity in (None, known) else f"{known}/{example.entity}",
        "persona": example.asker,
        "decline": example.decline,
        "answer": example.answer if example.known else None,
        "source": "organism",
    }
    if len(example.messages) == 1:
        record["text"] = record.pop("messages")[0]["content"]  # type: ignore[index]
    return {key: value for key, value in record.items() if value is not None}
