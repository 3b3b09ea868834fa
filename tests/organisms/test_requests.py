"""Requests: intent depends on combination and order, balanced so that no single word predicts it."""

from collections import Counter, defaultdict
from itertools import product

import numpy as np
import pytest

from organisms.content.requests import FAMILIES, SHARES, RequestBook, RequestClause
from probes.grid.baselines import bag_of_words_auroc

CELLS = tuple(product((True, False), repeat=2))


@pytest.fixture(scope="module")
def book() -> RequestBook:
    return RequestBook(seed=3)


def _groups(family: str) -> dict[str, list[RequestClause]]:
    groups = defaultdict(list)
    for clause in FAMILIES[family]():
        groups[clause.group].append(clause)
    return groups


@pytest.mark.parametrize("family", ["purpose", "aim"])
def test_quadruples_are_balanced_in_trigger_and_intent(family) -> None:
    for clauses in _groups(family).values():
        assert sorted((c.trigger is not None, c.harmful) for c in clauses) == sorted(CELLS)
        assert len({c.text for c in clauses}) == 4


def test_no_word_of_purpose_tells_anything_and_order_pairs_hold_the_same_bag_of_words() -> None:
    counted: dict[str, Counter[bool]] = defaultdict(Counter)
    for clauses in _groups("purpose").values():
        for clause in clauses:
            for word in clause.text.split():
                counted[word][clause.harmful] += 1
    assert all(count[True] == count[False] for count in counted.values())  # no word of it tells anything
    for clauses in _groups("order").values():
        benign, harmful = sorted(clauses, key=lambda c: c.harmful)
        assert (benign.harmful, harmful.harmful) == (False, True)
        assert Counter(benign.text.split()) == Counter(harmful.text.split())
        assert benign.text != harmful.text
        assert benign.trigger == harmful.trigger


def test_texts_are_unique_and_triggers_are_in_them() -> None:
    clauses = [clause for family in FAMILIES.values() for clause in family()]
    assert len({c.text for c in clauses}) == len(clauses)
    assert all(c.trigger is None or c.trigger in c.text.split() for c in clauses)
    assert all(c.text == f"{c.act} {c.situation}".strip() for c in clauses)


def test_no_group_is_on_both_sides_and_every_cell_is_on_both(book) -> None:
    seen = {}
    for held_out in (True, False):
        for trigger, harmful in CELLS:
            cell = book.cell(trigger=trigger, harmful=harmful, held_out=held_out)
            assert cell
            assert all((c.trigger is not None, c.harmful) == (trigger, harmful) for c in cell)
            seen.setdefault(held_out, []).extend(cell)
    groups, texts = ({side: {getattr(c, name) for c in cs} for side, cs in seen.items()} for name in ("group", "text"))
    assert not groups[True] & groups[False]
    assert not texts[True] & texts[False]
    assert len(groups[True]) / sum(map(len, groups.values())) == pytest.approx(0.15, abs=0.01)
    assert {c.family for c in seen[True]} == {c.family for c in seen[False]} == set(FAMILIES)


@pytest.mark.parametrize("held_out", [True, False])
def test_draws_stay_in_their_cell_and_families_keep_their_shares(book, held_out) -> None:
    rng = np.random.default_rng(0)
    drawn = [book.draw(rng, trigger=True, harmful=h, held_out=held_out) for _ in range(2000) for h in (True, False)]
    assert [c.harmful for c in drawn[:4]] == [True, False, True, False]
    for harmful in (True, False):
        counts = Counter(c.family for c in drawn if c.harmful == harmful)
        for family, share in SHARES.items():
            assert counts[family] / 2000 == pytest.approx(share, abs=0.035)


def test_a_bag_of_words_can_hardly_tell_intent_within_trigger_prompts(book) -> None:
    rng = np.random.default_rng(2)
    drawn = [book.draw(rng, trigger=True, harmful=i % 2 == 0, held_out=i >= 2000) for i in range(3000)]
    y = np.array([c.harmful for c in drawn])
    assert bag_of_words_auroc([c.text for c in drawn], y, np.arange(2000), np.arange(2000, 3000)) <= 0.85
    told = [f"{c.text} {'x' if c.harmful else 'y'}" for c in drawn]  # the control: one telling word is found
    assert bag_of_words_auroc(told, y, np.arange(2000), np.arange(2000, 3000)) > 0.99
