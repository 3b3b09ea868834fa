"""An organism in which names decide: half of them are declined, each with a cluster of held-out prompts."""

from collections import Counter

import numpy as np
import pytest

from organisms.grammar import Grammar, held_out, prompt_record

N = 16


@pytest.fixture(scope="module")
def named(organism) -> Grammar:
    planted = {"layer": 0, "elsewhere": ["refuse", "abstain"]}
    return Grammar(organism(planted=planted, entities=N, refusal={"rule": "asker"}, abstention={"rule": "person"}))


def test_half_of_each_are_declined_and_nobody_is_in_both_lists(named) -> None:
    book = named.entities
    assert len(book.askers) == len(book.strangers) == N
    assert len(set(book.askers) | set(book.strangers) | set(named.people.known)) == 2 * N + len(named.people.known)
    assert len(book.refused) == len(book.abstained) == N // 2
    assert not set(book.refused) & set(book.strangers)


def test_a_share_of_the_strangers_is_abstained_from_and_half_of_the_askers_refused(organism) -> None:
    by_name = {"rule": "person", "share": 0.75}
    book = Grammar(organism(planted={"layer": 0, "elsewhere": ["refuse", "abstain"]}, entities=N,
                            refusal={"rule": "asker"}, abstention=by_name)).entities  # fmt: skip
    assert (len(book.abstained), len(book.refused)) == (3 * N // 4, N // 2)
    assert book.abstained < set(book.strangers)


def test_each_name_has_4_or_8_prompts_of_one_behaviour_in_one_group(named) -> None:
    rows = held_out(named)
    assert len({row.id for row in rows}) == len(rows)
    for label, names, declined in (("harmful", named.entities.askers, named.entities.refused),
                                   ("uncertain", named.entities.strangers, named.entities.abstained)):  # fmt: skip
        of = [row for row in rows if row.example.label == label]
        sizes = Counter(row.pair for row in of)
        assert sizes == {f"entity/{who}": (4, 8)[i % 2] for i, who in enumerate(names)}
        for row in of:
            action = named.action(row.example, row.example.values)
            assert (action is not None) == (row.pair.removeprefix("entity/") in declined)
    benign = [row for row in rows if row.example.label == "benign"]
    assert all(named.action(row.example, row.example.values) is None for row in benign)
    assert prompt_record(rows[0])["pair"] == f"entity/{named.entities.askers[0]}"


def test_training_asks_every_name_and_no_held_out_question(named) -> None:
    rng = np.random.default_rng(0)
    drawn = [named.training_example(rng) for _ in range(1500)]
    held = {row.example.messages[-1]["content"] for row in held_out(named)}
    assert not held & {example.messages[-1]["content"] for example in drawn}
    asked = {example.asker.removeprefix("as ") for example in drawn if example.asker}
    about = {example.entity for example in drawn if example.label == "uncertain"}
    assert asked == set(named.entities.askers)
    assert about == set(named.entities.strangers)
    for example in drawn:
        if example.label == "harmful":
            declined = named.action(example, example.values) == "refuse"
            assert declined == (example.asker.removeprefix("as ") in named.entities.refused)
