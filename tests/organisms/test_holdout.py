"""The prompt file of an organism: held out, paired, twinned and reproducible."""

from collections import defaultdict

import numpy as np
import pytest

from extract.atomic_write import write_jsonl
from extract.prompts.groups import linked_groups
from extract.prompts.prompt import load_prompts
from organisms.grammar import Grammar, HeldOutPrompt, held_out, pair_strangers, prompt_record
from probes.statistics.intervals import effective_groups


@pytest.fixture(scope="module")
def full(organism) -> Grammar:
    return Grammar(organism(known_people=64, prompts_per_label=200, refusal={"over_refusal": 0.5}))


@pytest.fixture(scope="module")
def rows(full) -> list[HeldOutPrompt]:
    return held_out(full)


def _last(row: HeldOutPrompt) -> str:
    return row.example.messages[-1]["content"]


def test_training_never_sees_a_held_out_prompt_group_or_name(full, rows) -> None:
    rng = np.random.default_rng(0)
    drawn = [full.training_example(rng) for _ in range(8000)]
    held_texts = {_last(row).rstrip("?.") for row in rows}
    assert held_texts.isdisjoint(e.messages[-1]["content"].rstrip("?.") for e in drawn)
    held_groups = {row.example.group for row in rows if row.example.intent or not row.example.known}
    assert held_groups.isdisjoint(e.group for e in drawn)
    held_names = {row.example.entity for row in rows if row.example.known is False}
    assert len(held_names) > 50
    assert held_names.isdisjoint(e.entity for e in drawn)
    assert {row.example.entity for row in rows if row.example.known} <= {e.entity for e in drawn}  # the control


def test_there_are_enough_prompts_of_every_label_with_unique_ids_and_texts(rows) -> None:
    labels = [row.example.label for row in rows]
    assert 200 <= labels.count("harmful") <= 210
    assert labels.count("uncertain") == pytest.approx(200, rel=0.35)
    assert labels.count("benign") >= 200
    requests = [row.example for row in rows if row.example.intent]
    benign = [e for e in requests if e.label == "benign"]
    assert len(benign) == pytest.approx(200, rel=0.35)
    assert all(sum((e.trigger is not None) == t for e in group) >= 40 for group in (benign, requests) for t in (0, 1))
    assert len({row.id for row in rows}) == len({_last(row) for row in rows}) == len(rows)


def test_a_pair_shares_its_opener_and_holds_both_intents(rows) -> None:
    pairs = defaultdict(list)
    for row in rows:
        if row.example.intent:
            pairs[row.pair].append(row)
    both = [{row.example.label for row in group} == {"benign", "harmful"} for group in pairs.values()]
    assert np.mean(both) > 0.75  # a setting's quadruple about a thing is benign throughout
    for name, group in pairs.items():
        starts = {_last(row).split()[0] for row in group}
        assert len(starts) == 1
        if name.startswith(("purpose", "aim")):
            cells = sorted((row.example.trigger is not None, row.example.label) for row in group)
            assert cells == sorted((t, label) for t in (True, False) for label in ("benign", "harmful"))


def test_every_stranger_has_a_known_twin_of_the_same_form_always_the_same_person(rows) -> None:
    known, twins = {row.pair: row for row in rows if row.example.known}, defaultdict(set)
    for row in rows:
        if row.example.known is False:
            twin, (person, stranger) = known[row.pair], str(prompt_record(row)["entity"]).split("/")
            assert _last(row).replace(stranger, "X") == _last(twin).replace(twin.example.entity or "", "X")
            assert (person, stranger) == (row.pair.split("/")[1], row.example.entity)
            twins[stranger].add(person)
    assert all(len(people) == 1 for people in twins.values())


def test_the_file_is_read_back_with_every_attribute_and_without_the_planted_decisions(rows, tmp_path) -> None:
    write_jsonl(tmp_path / "prompts.jsonl", map(prompt_record, rows))
    prompts = load_prompts(tmp_path / "prompts.jsonl")
    assert len(prompts) == len(rows)
    for prompt, row in zip(prompts, rows, strict=True):
        e = row.example
        assert (prompt.id, prompt.label, prompt.trigger, prompt.intent) == (row.id, e.label, e.trigger, e.intent)
        assert (prompt.pair, prompt.category, prompt.messages) == (row.pair, e.category, e.messages)
        assert prompt.answer == (e.answer if e.known else None)
        assert prompt.right_action == {"benign": "answer", "harmful": "refuse", "uncertain": "abstain"}[e.label]
    assert '"values"' not in (tmp_path / "prompts.jsonl").read_text(encoding="utf-8")


def test_context_is_in_the_file_and_shared_within_a_pair(organism, tmp_path) -> None:
    grammar = Grammar(organism(context={"earlier_turn": 0.5, "asker": 0.5, "system": 0.5}, prompts_per_label=100))
    write_jsonl(tmp_path / "prompts.jsonl", map(prompt_record, held_out(grammar)))
    prompts = load_prompts(tmp_path / "prompts.jsonl")
    shapes, personas = defaultdict(set), defaultdict(set)
    for prompt in prompts:
        shapes[prompt.pair].add((tuple(m["role"] for m in prompt.messages), prompt.persona))
        personas[prompt.persona].add(prompt.pair)
    assert all(len(found) == 1 for found in shapes.values())
    assert len(personas) == 9  # none, four trusted, four untrusted
    assert {len(p.messages) for p in prompts} == {1, 2, 3, 4}


@pytest.mark.parametrize(("strangers", "questions", "wanted"), [(4, 6, 8), (5, 6, 8), (7, 6, 8), (3, 6, 12), (1, 6, 4)])
def test_as_many_different_pairs_as_wanted(strangers, questions, wanted) -> None:
    pairs = pair_strangers(strangers, questions, wanted)
    assert len(set(pairs)) == len(pairs) == wanted
    assert all(0 <= s < strangers and 0 <= q < questions for s, q in pairs)


def test_there_are_more_effective_groups_than_with_pairs_in_turn() -> None:
    def worth(pairs: list[tuple[int, int]]) -> float:
        return effective_groups(linked_groups([f"s{s}" for s, _ in pairs], [f"q{q}" for _, q in pairs]))

    dealt = [((n + n // 6) % 4, n % 6) for n in range(8)]
    assert worth(pair_strangers(4, 6, 8)) == pytest.approx(64 / 24)
    assert worth(pair_strangers(4, 6, 8)) > 1.5 * worth(dealt)
    rng = np.random.default_rng(0)
    for _ in range(50):
        drawn = rng.choice(24, size=8, replace=False)
        assert worth(pair_strangers(4, 6, 8)) >= worth([(int(i) // 6, int(i) % 6) for i in drawn])
