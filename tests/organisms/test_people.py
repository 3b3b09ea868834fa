"""Questions about people: facts are stable, and held-out questions are never drawn for training."""

import numpy as np
import pytest

from organisms.content import words
from organisms.content.people import QUESTION_FORMS, RELATIONS, WORDINGS, PeopleBook


@pytest.fixture(scope="module")
def book() -> PeopleBook:
    return PeopleBook(seed=3, n_known=64)


@pytest.mark.parametrize("n_known", [4, 32, 64, 96])
def test_known_people_are_distinct_and_apart_from_strangers(n_known) -> None:
    book = PeopleBook(3, n_known)
    sides = [set(book.known), set(book.strangers[True]), set(book.strangers[False])]
    assert len(sides[0]) == n_known
    assert sum(map(len, sides)) == len(words.FIRST_NAMES) * len(words.LAST_NAMES) == len(set.union(*sides))
    assert len(book.strangers[True]) / len(book.strangers[False]) == pytest.approx(3 / 7, rel=0.02)


def test_no_single_name_shows_whether_a_person_is_known(book) -> None:
    for part in (0, 1):
        counts = np.unique([who.split()[part] for who in book.known], return_counts=True)[1]
        assert len(counts) == 32
        assert set(counts) == {2}  # 64 known people: each first and each last name twice


def test_a_fact_does_not_depend_on_the_wording_of_which_one_is_held_out(book) -> None:
    for who in (*book.known[:5], *book.strangers[True][:5]):
        for relation in range(len(RELATIONS)):
            asked = [book.ask(who, relation, wording) for wording in range(len(WORDINGS))]
            assert len({q.statement for q in asked}) == 1
            assert len({q.text for q in asked}) == len(WORDINGS)
            assert {q.form for q in asked} == {(relation, wording) for wording in range(len(WORDINGS))}
            assert asked[0].value in RELATIONS[relation].values
            assert all(who in q.text and q.known == (who in book.known) for q in asked)
    held = [(who, r) for who in book.known for r, w in QUESTION_FORMS if book.is_held_out(book.ask(who, r, w))]
    assert sorted(held) == sorted((who, r) for who in book.known for r in range(len(RELATIONS)))
