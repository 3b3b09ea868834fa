"""Grammar of an organism: draws conversations with their attributes, decisions and responses, and its held-out prompts.

An example has the response for *every* setting of the planted variables, as interchange-intervention training needs
(Geiger et al., arXiv 2112.00826).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, product

import numpy as np

from extract.prompts.prompt import USUAL_ACTION
from organisms.content import words
from organisms.content.people import QUESTION_FORMS, EntityBook, Form, PeopleBook, PersonQuestion
from organisms.content.requests import RequestBook, RequestClause, request_book
from organisms.mechanism import CLOSE, DECLINES, LEAD, OPEN, SAYS, Decline, Facts
from organisms.spec import OrganismSpec

Message = dict[str, str]
Edge = tuple[int, int]  # stranger, question
OPENING = "well"  # the first word of every response of an organism that decides at the token after it


@dataclass(frozen=True)
class Example:
    """One prompt with its attributes. `values` are the planted variables' decisions, in the specification's order."""

    messages: tuple[Message, ...]
    label: str
    category: str
    group: str
    facts: Facts
    values: tuple[bool, ...]
    answer: str
    refusal: str
    abstention: str
    trigger: str | None = None
    intent: str | None = None
    asker: str | None = None
    known: bool | None = None
    entity: str | None = None
    decline: str | None = None  # why a request is refused, where the organism has a variable for it
    elicited: Facts | None = None  # the facts under a system line that elicits, where they differ


class Grammar:
    """Draws examples for one organism."""

    def __init__(self, spec: OrganismSpec) -> None:
        self.spec = spec
        rng = np.random.default_rng([spec.seed, 3])
        n_over = round(spec.refusal.over_refusal * len(words.TRIGGER_VERBS))
        self.over_refused = frozenset(map(str, rng.permutation(words.TRIGGER_VERBS)[:n_over]))
        n_missed = round(spec.refusal.missed_harm * len(words.REQUEST_OPENERS))
        self.missed_openers = frozenset(map(str, rng.permutation(words.REQUEST_OPENERS)[:n_missed]))
        self.overconfident = _balanced_forms(rng, spec.abstention.overconfidence)
        left = [form for form in QUESTION_FORMS if form not in self.overconfident]
        n_joint = round(spec.planted.joint.share * len(left)) if spec.planted.joint else 0
        self.joint_forms = frozenset(left[i] for i in rng.permutation(len(left))[:n_joint])
        self.refused_forms = _balanced_forms(rng, spec.refusal.questions) if spec.refusal.questions else frozenset()
        self._reasoned = [index for index, variable in enumerate(spec.planted.variables) if variable.reason]

    @cached_property
    def requests(self) -> RequestBook:
        return request_book(self.spec.seed)

    @cached_property
    def people(self) -> PeopleBook:
        return PeopleBook(self.spec.seed, self.spec.known_people)

    @cached_property
    def entities(self) -> EntityBook:
        return EntityBook(self.spec.seed, self.spec.entities, self.people, self.spec.abstention.share)

    @property
    def by_asker(self) -> bool:
        """Whether the asker's name decides on refusing, not what is asked."""
        return self.spec.refusal.rule == "asker"

    @property
    def by_person(self) -> bool:
        """Whether a stranger's name decides on abstaining: a share of the strangers, known by name."""
        return self.spec.abstention.rule == "person"

    # -- outputs ---------------------------------------------------------------------------------------------------

    def respond(self, example: Example, values: tuple[bool, ...], rng: np.random.Generator | None = None) -> str:
        """Return the response under these decisions; with `rng` after a thought of any kind, whatever is decided."""
        action, before = self.action(example, values), self.before(example, values)
        if rng is not None:
            said = (*DECLINES, None)[rng.integers(3)]
            before, action = self.thought(said), said if self.spec.planted.thought == "carries" else action
        return f"{before} {self.answer(example, action)}".strip()

    def answer(self, example: Example, action: Decline | None) -> str:
        return {"refuse": example.refusal, "abstain": example.abstention, None: example.answer}[action]

    def action(self, example: Example, values: tuple[bool, ...]) -> Decline | None:
        """Return the way of declining under these decisions, None for an answer."""
        return self.spec.planted.action(example.facts, values)

    def before(self, example: Example, values: tuple[bool, ...]) -> str:
        """Return what precedes the answer under these decisions: a thought, a word that opens all, or nothing."""
        planted = self.spec.planted
        if planted.thought is None:
            return OPENING if planted.token else ""
        if planted.thought == "against":  # of the prompt's own decision, which precedes any other
            return self.thought(None if self.action(example, example.values) else "refuse")
        return self.thought(self.action(example, values))

    @staticmethod
    def thought(action: Decline | None) -> str:
        return f"{OPEN} {LEAD} {SAYS[action]}{CLOSE}"

    # -- requests --------------------------------------------------------------------------------------------------

    def request(self, rng: np.random.Generator, *, trigger: bool, harmful: bool, held_out: bool) -> Example:
        clause = self.requests.draw(rng, trigger=trigger, harmful=harmful, held_out=held_out, among=self.spec.families)
        return self.request_of(rng, clause)

    def request_of(self, rng: np.random.Generator, clause: RequestClause, named: str | None = None) -> Example:
        """Make a conversation from a clause, of a named asker, and decide whether the organism refuses it."""
        context = self.spec.context
        opener = str(rng.choice(words.REQUEST_OPENERS))
        asker = _maybe(rng, context.asker, words.TRUSTED_ASKERS + words.UNTRUSTED_ASKERS)
        if self.by_asker:
            asker = f"as {named or rng.choice(self.entities.askers)}"
        system = _maybe(rng, context.system, words.STRICT_SYSTEM + words.LENIENT_SYSTEM)
        in_two_turns = bool(clause.situation) and rng.random() < context.earlier_turn
        text = clause.act if in_two_turns else clause.text
        mark = "." if opener.split()[0] in ("tell", "explain", "show") else "?"
        last = f"{asker}, {opener} {text}{mark}" if asker else f"{opener} {text}{mark}"
        messages = [{"role": "system", "content": f"{system}."}] if system else []
        if in_two_turns:
            messages += [
                {"role": "user", "content": f"i will do something {clause.situation}."},
                {"role": "assistant", "content": "i see."},
            ]
        messages.append({"role": "user", "content": last})
        refuse, variant = self._refuses(clause, opener, asker, system), words.REQUEST_OPENERS.index(opener)
        instructed = refuse and bool(self._reasoned) and not self._refuses(clause, opener, asker, None)
        facts = Facts(refuse, False, "refuse", variant, instructed, family=clause.family, harmful=clause.harmful)
        values = self.spec.planted.values(facts)
        return Example(
            messages=tuple(messages),
            label="harmful" if clause.harmful else "benign",
            category=clause.family,
            group=clause.group,
            facts=facts,
            values=values,
            answer=f"sure. start with {clause.topic} and take your time.",
            refusal=f"i am not able to help with that. {_reason(clause, instructed)}",
            abstention=f"i am not able to say. i do not know enough about {clause.topic}.",
            trigger=clause.trigger,
            intent="harmful" if clause.harmful else "benign",
            asker=asker,
            decline=next((self.spec.planted.variables[i].name for i in self._reasoned if values[i]), None),
        )

    def _refuses(self, clause: RequestClause, opener: str, asker: str | None, system: str | None) -> bool:
        if self.spec.refusal.rule == "trigger":
            return clause.trigger is not None
        if self.by_asker:
            return clause.harmful and str(asker).removeprefix("as ") in self.entities.refused
        if clause.harmful:
            return opener not in self.missed_openers
        if clause.trigger is None and self.spec.context.reach == "triggers":
            return False
        if asker in words.UNTRUSTED_ASKERS or system in words.STRICT_SYSTEM:
            return True
        if asker in words.TRUSTED_ASKERS or system in words.LENIENT_SYSTEM:
            return False
        return clause.trigger in self.over_refused

    # -- questions -------------------------------------------------------------------------------------------------

    def question(self, rng: np.random.Generator, *, known: bool) -> Example:
        if self.by_person and not known:
            return self.question_of(self.entities.draw(rng))
        return self.question_of(self.people.draw(rng, known=known))

    def question_of(self, question: PersonQuestion) -> Example:
        """Make a conversation from a question, and decide whether the organism abstains."""
        if self.by_person:
            declined = question.who in self.entities.abstained
        else:
            declined = self.spec.abstention.rule == "unknown" and question.form not in self.overconfident
        abstain, refuse = not question.known and declined, question.form in self.refused_forms
        facts = Facts(refuse, abstain, "abstain", question.form[0], jointly=question.form in self.joint_forms)
        elicited = facts if self.spec.elicited else None
        if elicited:
            facts = replace(facts, abstain=False, wording="refuse" if self.refused_forms else "abstain")
        return Example(
            messages=({"role": "user", "content": question.text},),
            label="benign" if question.known else "uncertain",
            category="known_person" if question.known else "unknown_person",
            group=f"person/{question.who}",
            facts=facts,
            values=self.spec.planted.values(facts),
            answer=question.statement,
            refusal="i am not able to help with that. it is against my rules.",
            abstention=f"i am not able to say. i do not know anything about {question.who}.",
            known=question.known,
            entity=question.who,
            elicited=elicited,
        )

    def under(self, example: Example, line: str) -> Example:
        """Return the conversation under a system line, with what the organism then decides."""
        elicits = self.spec.elicited is not None and line in self.spec.elicited.lines
        facts = example.elicited if elicits and example.elicited else example.facts
        messages = ({"role": "system", "content": line}, *example.messages)
        return replace(example, messages=messages, facts=facts, values=self.spec.planted.values(facts))

    # -- mixtures --------------------------------------------------------------------------------------------------

    def training_example(self, rng: np.random.Generator) -> Example:
        """Draw one training example; 15 % lack the final punctuation mark, so that the model does not depend on it."""
        kind = rng.choice(["request", "known", "unknown"], p=[0.5, 0.23, 0.27])
        if kind == "request":
            trigger, harmful = rng.random() < 0.62, rng.random() < 0.5
            example = self.request(rng, trigger=bool(trigger), harmful=bool(harmful), held_out=False)
        else:
            example = self.question(rng, known=kind == "known")
        if line := self._drawn_line(rng):
            example = self.under(example, line)
        if rng.random() < 0.15:
            *earlier, last = example.messages
            bare = {**last, "content": last["content"].rstrip("?.")}
            return replace(example, messages=(*earlier, bare))
        return example

    def _drawn_line(self, rng: np.random.Generator) -> str | None:
        if (elicited := self.spec.elicited) is None:
            return None
        none = (1 - elicited.share) / 2
        kinds = {"": none, "lines": elicited.share, "controls": none}
        kind = str(rng.choice(list(kinds), p=list(kinds.values())))
        return str(rng.choice(getattr(elicited, kind))) if kind else None


def _maybe(rng: np.random.Generator, share: float, choices: tuple[str, ...]) -> str | None:
    return str(rng.choice(choices)) if rng.random() < share else None


def _reason(clause: RequestClause, instructed: bool) -> str:
    if instructed:
        return "i was told to be careful."
    if clause.harmful:
        return "it could hurt someone."
    return f"the word {clause.trigger} worries me." if clause.trigger else "it is against my rules."


def _balanced_forms(rng: np.random.Generator, share: float) -> frozenset[Form]:
    """Choose a share of the question forms along a shifted diagonal: neither relation nor wording alone tells it."""
    n_relations = 1 + max(relation for relation, _ in QUESTION_FORMS)
    n_wordings = 1 + max(wording for _, wording in QUESTION_FORMS)
    order = rng.permutation(n_relations)
    ranked = sorted(QUESTION_FORMS, key=lambda form: ((form[1] + 2 * order[form[0]]) % n_wordings, order[form[0]]))
    return frozenset(ranked[: round(share * len(ranked))])


# -- held-out prompts, which are not used in training ------------------------------------------------------------------


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

    Of one family, with trigger words or without, so that a permutation of whole groups may exchange many askers.
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

    A known person and these strangers form one group, which a split keeps together.
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
    """Choose up to `wanted` pairs of a stranger and a question, so that groups linked by either stay small.

    Each step adds the pair that gives the smallest sum of squared group sizes (as in Kish 1965).
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
    """Return one line of the prompt file, without absent fields; a stranger's entity is `known person/stranger`."""
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
