"""Named askers and strangers of an organism in which names decide, not what is asked.

Half of the askers are refused, and a share of the strangers is abstained from. An entity has 4 or 8 held-out prompts,
which are a cluster of one behaviour.
"""

from __future__ import annotations

import numpy as np

from organisms.content.people import QUESTION_FORMS, Form, PeopleBook, Question

CLUSTERS = (4, 8)  # held-out prompts of an entity, in turn


class EntityBook:
    """Askers whose harmful requests are refused or not, and strangers who are abstained from or not."""

    def __init__(self, seed: int, n: int, people: PeopleBook, abstained: float = 0.5) -> None:
        """Draw the names.

        Args:
            n: number of askers, and of strangers.
            abstained: share of the strangers.
        """
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

    def ask(self, who: str, form: Form) -> Question:
        """Make a question about a stranger."""
        return self._people.ask(who, *form)

    def draw(self, rng: np.random.Generator) -> Question:
        """Draw one training question about a stranger."""
        who = self.strangers[rng.integers(len(self.strangers))]
        while (form := QUESTION_FORMS[rng.integers(len(QUESTION_FORMS))]) in self.held_forms[who]:
            pass
        return self.ask(who, form)
