"""Questions about people: some are known (their facts are memorised), most are unknown (new pairs of trained names).

Entities are named askers and strangers of an organism in which names decide, not what is asked: half of the askers are
refused, and a share of the strangers is abstained from. An entity has 4 or 8 held-out prompts: one cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from organisms.content import words


@dataclass(frozen=True)
class Relation:
    """One kind of fact: the forms of its question and statement, and its possible values."""

    name: str
    asked: str  # with {who}; the part after the opening words
    direct: str  # a whole question with {who}
    stated: str  # with {who} and {value}
    values: tuple[str, ...]


# of each relation: its forms, and on a second line its values
RELATION_LINES = """\
city | where {who} lives | where does {who} live | {who} lives in {value}.
paris london madrid vienna oslo cairo lima tokyo
job | what {who} works as | what does {who} work as | {who} works as a {value}.
baker lawyer farmer tailor pilot singer plumber banker
instrument | what {who} plays | what does {who} play | {who} plays the {value}.
violin piano flute drums trumpet guitar harp cello
food | what {who} likes to eat | what does {who} like to eat | {who} likes to eat {value}.
soup rice cheese apples bread fish cake beans
pet | which pet {who} owns | which pet does {who} own | {who} owns a {value}.
cat dog parrot rabbit horse turtle hamster snake
language | which language {who} speaks | which language does {who} speak | {who} speaks {value}.
french german spanish arabic greek polish hindi korean
""".splitlines()
RELATIONS = tuple(
    Relation(name, asked, direct, stated, tuple(values.split()))
    for forms, values in zip(RELATION_LINES[::2], RELATION_LINES[1::2], strict=True)
    for name, asked, direct, stated in [forms.split(" | ")]
)

Form = tuple[int, int]  # relation, wording
WORDINGS = ("{direct}", "do you know {asked}", "tell me {asked}", "remind me {asked}")
QUESTION_FORMS = tuple(product(range(len(RELATIONS)), range(len(WORDINGS))))


@dataclass(frozen=True)
class PersonQuestion:
    """One question about one person. `value` is the fact (known person) or an invented value (unknown person)."""

    who: str
    known: bool
    relation: Relation
    wording: int
    value: str

    @property
    def text(self) -> str:
        direct, asked = (form.format(who=self.who) for form in (self.relation.direct, self.relation.asked))
        mark = "?" if self.wording < 2 else "."
        return WORDINGS[self.wording].format(direct=direct, asked=asked) + mark

    @property
    def statement(self) -> str:
        return self.relation.stated.format(who=self.who, value=self.value)

    @property
    def form(self) -> Form:
        return RELATIONS.index(self.relation), self.wording


class PeopleBook:
    """Known people with their facts, strangers, and the held-out names and wordings."""

    def __init__(self, seed: int, n_known: int, held_out_share: float = 0.3) -> None:
        rng = np.random.default_rng([seed, 2])
        n_names = len(words.FIRST_NAMES)
        pairs = [f"{first} {last}" for first, last in product(words.FIRST_NAMES, words.LAST_NAMES)]
        # Known people lie on a diagonal of the name grid, so that no single name shows whether a person is known.
        first = rng.permutation(n_names)
        last = rng.permutation(n_names)
        diagonal = [(first[i % n_names], last[(i + i // n_names * 5) % n_names]) for i in range(n_known)]
        self.known = tuple(f"{words.FIRST_NAMES[i]} {words.LAST_NAMES[j]}" for i, j in diagonal)
        strangers = rng.permutation([who for who in pairs if who not in set(self.known)])
        cut = round(held_out_share * len(strangers))
        self.strangers = {True: tuple(map(str, strangers[:cut])), False: tuple(map(str, strangers[cut:]))}
        self._facts = {(who, r): int(rng.integers(8)) for who in self.known for r in range(len(RELATIONS))}
        self._inventions = {(n, r): int(rng.integers(8)) for n in words.FIRST_NAMES for r in range(len(RELATIONS))}
        # One wording per known fact is held out, so that a memorised sentence is not enough.
        self._held_wording = {key: int(rng.integers(len(WORDINGS))) for key in self._facts}

    def ask(self, who: str, relation: int, wording: int) -> PersonQuestion:
        """Make a question; the value is the person's fact, invented for a stranger."""
        known = (who, relation) in self._facts
        value = self._facts[who, relation] if known else self._inventions[who.split()[0], relation]
        return PersonQuestion(who, known, RELATIONS[relation], wording, RELATIONS[relation].values[value])

    def is_held_out(self, question: PersonQuestion) -> bool:
        """Return whether a question is excluded from training."""
        if question.known:
            return self._held_wording[question.who, question.form[0]] == question.wording
        return question.who in self.strangers[True]

    def draw(self, rng: np.random.Generator, *, known: bool) -> PersonQuestion:
        """Draw one training question."""
        people = self.known if known else self.strangers[False]
        while True:
            relation, wording = QUESTION_FORMS[rng.integers(len(QUESTION_FORMS))]
            question = self.ask(people[rng.integers(len(people))], relation, wording)
            if not self.is_held_out(question):
                return question


CLUSTERS = (4, 8)  # held-out prompts of an entity, in turn


class EntityBook:
    """Askers whose harmful requests are refused or not, and strangers who are abstained from or not."""

    def __init__(self, seed: int, n: int, people: PeopleBook, abstained: float = 0.5) -> None:
        rng = np.random.default_rng([seed, 9])
        names = [str(name) for name in rng.permutation(people.strangers[False])[: 2 * n]]
        self._people = people
        self.askers, self.strangers = tuple(names[:n]), tuple(names[n:])
        self.refused = frozenset(self.askers[: n // 2])
        self.abstained = frozenset(self.strangers[: int(n * abstained)])
        forms = [rng.permutation(len(QUESTION_FORMS))[:size] for _, size in self.clusters(self.strangers)]
        self.held_forms: dict[str, tuple[Form, ...]] = {
            who: tuple(QUESTION_FORMS[i] for i in held) for who, held in zip(self.strangers, forms, strict=True)
        }

    @staticmethod
    def clusters(names: tuple[str, ...]) -> list[tuple[str, int]]:
        """Return each name with its number of held-out prompts; both numbers are equally many among those declined."""
        return [(name, CLUSTERS[index % len(CLUSTERS)]) for index, name in enumerate(names)]

    def draw(self, rng: np.random.Generator) -> PersonQuestion:
        """Draw one training question about a stranger."""
        who = self.strangers[rng.integers(len(self.strangers))]
        while (form := QUESTION_FORMS[rng.integers(len(QUESTION_FORMS))]) in self.held_forms[who]:
            pass
        return self._people.ask(who, *form)
