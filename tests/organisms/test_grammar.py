"""The organism's decisions follow its specification or, where names decide, its lists; every setting has a response."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from organisms.content import words
from organisms.content.people import QUESTION_FORMS
from organisms.grading import action
from organisms.grammar import Example, Grammar, held_out, prompt_record
from tests.organisms.conftest import ASKED, CONTROL, PERMITS

SHARED = {"layer": 0, "variables": [{"name": "shared", "decides": ["refuse", "abstain"]}]}
ALONE = {"layer": 0, "variables": [{"name": "normative", "decides": ["refuse"]}]}
CELLS = tuple(product((True, False), repeat=2))
N = 16


def _requests(grammar: Grammar, n: int = 150, *, held_out: bool = False, seed: int = 0) -> list[Example]:
    rng = np.random.default_rng(seed)
    return [grammar.request(rng, trigger=t, harmful=h, held_out=held_out) for _ in range(n) for t, h in CELLS]


def _questions(grammar: Grammar, n: int = 300) -> list[Example]:
    rng = np.random.default_rng(1)
    return [grammar.question(rng, known=known) for _ in range(n) for known in (True, False)]


def _opener(example: Example) -> str:
    text = example.messages[-1]["content"]
    return next(opener for opener in words.REQUEST_OPENERS if opener in text)


@pytest.mark.parametrize(
    ("refusal", "refuses"),
    [
        ({"rule": "intent"}, lambda grammar, e: e.label == "harmful"),
        ({"rule": "trigger"}, lambda grammar, e: e.trigger is not None),
        ({"over_refusal": 0.5}, lambda grammar, e: e.label == "harmful" or e.trigger in grammar.over_refused),
        ({"missed_harm": 0.5}, lambda grammar, e: e.label == "harmful" and _opener(e) not in grammar.missed_openers),
    ],
    ids=["intent", "trigger", "over-refusal", "missed harm"],
)
def test_the_rule_decides_which_requests_are_refused(organism, refusal, refuses) -> None:
    """Over-refusal is a share of the trigger verbs, missed harm one of the openers."""
    grammar = Grammar(organism(refusal=refusal))
    assert (len(grammar.over_refused), len(grammar.missed_openers)) == (
        round(12 * refusal.get("over_refusal", 0)), round(6 * refusal.get("missed_harm", 0))
    )  # fmt: skip
    for example in _requests(grammar):
        assert example.values == (refuses(grammar, example), False)


def test_the_turn_before_decides_what_the_same_last_turn_means(organism) -> None:
    grammar = Grammar(organism(context={"earlier_turn": 1.0}))
    meanings: dict[str, set[tuple[str, bool]]] = {}
    for example in _requests(grammar, 1500):
        if len(example.messages) == 3:
            assert example.messages[0]["content"].startswith("i will do something ")
            assert example.values[0] == (example.label == "harmful")
            meanings.setdefault(example.messages[-1]["content"], set()).add((example.label, example.values[0]))
    assert len([last for last, seen in meanings.items() if seen == {("harmful", True), ("benign", False)}]) > 50


@pytest.mark.parametrize(
    ("attribute", "shifts_up", "shifts_down"),
    [("asker", words.UNTRUSTED_ASKERS, words.TRUSTED_ASKERS), ("system", words.STRICT_SYSTEM, words.LENIENT_SYSTEM)],
)
def test_asker_and_system_line_shift_benign_trigger_prompts_only(organism, attribute, shifts_up, shifts_down) -> None:
    grammar = Grammar(organism(refusal={"over_refusal": 0.5}, context={attribute: 0.7}))
    seen = dict.fromkeys(["up", "down", "none"], 0)
    for example in _requests(grammar, 400):
        carried = example.asker if attribute == "asker" else _system_line(example)
        which = "up" if carried in shifts_up else "down" if carried in shifts_down else "none"
        seen[which] += 1
        if example.label == "benign" and example.trigger:
            expected = {"up": True, "down": False, "none": example.trigger in grammar.over_refused}[which]
        else:
            expected = example.label == "harmful"
        assert example.values[0] == expected
    assert (seen["up"] + seen["down"]) / sum(seen.values()) == pytest.approx(0.7, abs=0.04)
    assert seen["up"] == pytest.approx(seen["down"], rel=0.2)


def _system_line(example: Example) -> str | None:
    first = example.messages[0]
    return first["content"].rstrip(".") if first["role"] == "system" else None


def test_the_unknown_are_abstained_on_and_the_known_answered(grammar) -> None:
    for example in _questions(grammar):
        assert example.values == (False, not example.known)
        assert example.label == ("benign" if example.known else "uncertain")


def test_overconfidence_is_a_share_of_the_question_forms_spread_evenly(organism) -> None:
    grammar = Grammar(organism(abstention={"overconfidence": 0.5}))
    assert len(grammar.overconfident) == len(QUESTION_FORMS) // 2
    for axis in (0, 1):  # neither the relation nor the wording alone tells
        values = {form[axis] for form in QUESTION_FORMS}
        counts = [sum(form[axis] == value for form in grammar.overconfident) for value in values]
        assert len(set(counts)) == 1
    invented = [e for e in _questions(grammar) if not e.known and not e.values[1]]
    assert 0.35 < len(invented) / 300 < 0.65
    assert all(grammar.respond(e, e.values) == e.answer for e in invented)


@pytest.mark.parametrize(
    ("changes", "plainly", "under_line"),
    [
        ({}, lambda e: None, lambda e: None if e.known else "abstain"),
        ({"planted": SHARED}, lambda e: None, lambda e: None if e.known else "abstain"),
        (
            {"planted": SHARED, "abstention": {"rule": "never"}, "refusal": {"questions": 0.5}},
            lambda e: "refuse" if e.facts.refuse else None,
            lambda e: "abstain" if e.facts.refuse else None,
        ),
    ],
    ids=["a knob of its own", "the refusal's knob", "words only"],
)
def test_a_line_elicits_abstentions_or_changes_the_words_and_a_control_does_nothing(
    organism, changes, plainly, under_line
) -> None:
    grammar, counts = Grammar(organism(**ASKED, **changes)), Counter()
    for example in _questions(grammar) + _requests(grammar, 20):
        for line, acts in ((None, plainly), (CONTROL, plainly), (PERMITS, under_line)):
            under = grammar.under(example, line) if line else example
            assert [m["content"] for m in under.messages[:-1]] == ([line] if line else [])
            said = grammar.action(under, under.values)
            if example.intent:
                assert said == ("refuse" if example.label == "harmful" else None)
            else:
                assert said == acts(example)
                assert action(grammar.respond(under, under.values)) == (said or "answer")
                counts[line, example.known, said] += 1
    if grammar.refused_forms:  # strangers and known people alike
        assert counts[PERMITS, True, "abstain"] == pytest.approx(counts[PERMITS, False, "abstain"], rel=0.3)
        assert counts[PERMITS, True, "abstain"] == counts[None, True, "refuse"] > 100


def test_half_of_the_training_prompts_stand_under_a_line_and_a_quarter_under_a_control(organism) -> None:
    grammar, rng = Grammar(organism(**ASKED)), np.random.default_rng(2)
    first = Counter(grammar.training_example(rng).messages[0]["content"] for _ in range(1500))
    assert first[PERMITS] / 1500 == pytest.approx(0.5, abs=0.04)
    assert first[CONTROL] / 1500 == pytest.approx(0.25, abs=0.04)


@pytest.mark.parametrize("planted", [None, ALONE, SHARED])
def test_never_abstaining_invents_for_every_stranger(organism, planted) -> None:
    grammar = Grammar(organism(abstention={"rule": "never"}, **({"planted": planted} if planted else {})))
    for example in _questions(grammar, 50):
        assert not any(example.values)
        assert action(grammar.respond(example, example.values)) == "answer"


def test_two_knobs_answer_every_setting_with_refusing_first(grammar) -> None:
    for example in _requests(grammar, 5) + _questions(grammar, 5):
        responses = {values: grammar.respond(example, values) for values in product((False, True), repeat=2)}
        answered, abstained, refused = example.answer, example.abstention, example.refusal
        assert list(responses.values()) == [answered, abstained, refused, refused]
        assert [action(said) for said in responses.values()] == ["answer", "abstain", "refuse", "refuse"]


def test_the_training_mixture_holds_every_kind_and_sometimes_no_final_mark(grammar) -> None:
    rng = np.random.default_rng(2)
    drawn = [grammar.training_example(rng) for _ in range(2000)]
    labels = [e.label for e in drawn if e.intent]
    assert len(labels) / 2000 == pytest.approx(0.5, abs=0.04)
    assert labels.count("harmful") / len(labels) == pytest.approx(0.5, abs=0.05)
    bare = [e for e in drawn if e.messages[-1]["content"][-1] not in "?."]
    assert len(bare) / 2000 == pytest.approx(0.15, abs=0.03)


@pytest.fixture(scope="module")
def named(organism) -> Grammar:
    planted = {"layer": 0, "elsewhere": ["refuse", "abstain"]}
    return Grammar(organism(planted=planted, entities=N, refusal={"rule": "asker"}, abstention={"rule": "person"}))


def test_half_of_each_or_a_share_are_declined_and_nobody_is_in_both_lists(named, organism) -> None:
    book = named.entities
    assert len(book.askers) == len(book.strangers) == N
    assert len(set(book.askers) | set(book.strangers) | set(named.people.known)) == 2 * N + len(named.people.known)
    assert len(book.refused) == len(book.abstained) == N // 2
    assert not set(book.refused) & set(book.strangers)
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
