"""The prompt file of an organism: held out, paired, twinned, and the same each time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from extract.prompts.prompt import load_prompts
from organisms.grammar import Grammar
from organisms.holdout import HeldOut, held_out, prompt_record, write_prompts
from organisms.spec import OrganismSpec

Make = Callable[..., OrganismSpec]


@pytest.fixture(scope="module")
def full(organism: Make) -> Grammar:
    return Grammar(organism(known_people=64, prompts_per_label=200, refusal={"over_refusal": 0.5}))


@pytest.fixture(scope="module")
def rows(full: Grammar) -> list[HeldOut]:
    return held_out(full)


def _last(row: HeldOut) -> str:
    return row.example.messages[-1]["content"]


def test_training_never_sees_a_held_out_prompt_group_or_name(full: Grammar, rows: list[HeldOut]) -> None:
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


def test_there_are_enough_prompts_of_every_label(rows: list[HeldOut]) -> None:
    labels = [row.example.label for row in rows]
    assert 200 <= labels.count("harmful") <= 210
    assert labels.count("uncertain") == pytest.approx(200, rel=0.35)
    assert labels.count("benign") >= 200
    requests = [row.example for row in rows if row.example.intent]
    benign = [e for e in requests if e.label == "benign"]
    assert len(benign) == pytest.approx(200, rel=0.35)
    assert all(sum((e.trigger is not None) == t for e in group) >= 40 for group in (benign, requests) for t in (0, 1))


def test_ids_and_texts_are_unique(rows: list[HeldOut]) -> None:
    assert len({row.id for row in rows}) == len({_last(row) for row in rows}) == len(rows)


def test_a_pair_shares_its_opener_and_holds_both_intents(rows: list[HeldOut]) -> None:
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


def test_every_stranger_has_a_known_twin_of_the_same_form(rows: list[HeldOut]) -> None:
    known = {row.pair: row for row in rows if row.example.known}
    unknown = [row for row in rows if row.example.known is False]
    for row in unknown:
        twin = known[row.pair]
        assert _last(row).replace(row.example.entity or "", "X") == _last(twin).replace(twin.example.entity or "", "X")


def test_a_stranger_is_twinned_with_one_person_only(rows: list[HeldOut]) -> None:
    twins = defaultdict(set)
    for row in rows:
        if row.example.known is False:
            known, stranger = str(prompt_record(row)["entity"]).split("/")
            assert (known, stranger) == (row.pair.split("/")[1], row.example.entity)
            twins[stranger].add(known)
    assert all(len(people) == 1 for people in twins.values())


def test_the_file_is_read_back_with_every_attribute_and_without_the_planted_decisions(
    rows: list[HeldOut], tmp_path: Path
) -> None:
    write_prompts(rows, tmp_path / "prompts.jsonl")
    prompts = load_prompts(tmp_path / "prompts.jsonl")
    assert len(prompts) == len(rows)
    for prompt, row in zip(prompts, rows, strict=True):
        e = row.example
        assert (prompt.id, prompt.label, prompt.trigger, prompt.intent) == (row.id, e.label, e.trigger, e.intent)
        assert (prompt.pair, prompt.category, prompt.messages) == (row.pair, e.category, e.messages)
        assert prompt.answer == (e.answer if e.known else None)
        assert prompt.right_action == {"benign": "answer", "harmful": "refuse", "uncertain": "abstain"}[e.label]
    assert '"values"' not in (tmp_path / "prompts.jsonl").read_text(encoding="utf-8")


def test_context_is_in_the_file_and_shared_within_a_pair(organism: Make, tmp_path: Path) -> None:
    grammar = Grammar(organism(context={"earlier_turn": 0.5, "asker": 0.5, "system": 0.5}, prompts_per_label=100))
    rows = held_out(grammar)
    write_prompts(rows, tmp_path / "prompts.jsonl")
    prompts = load_prompts(tmp_path / "prompts.jsonl")
    shapes, personas = defaultdict(set), defaultdict(set)
    for prompt in prompts:
        shapes[prompt.pair].add((tuple(m["role"] for m in prompt.messages), prompt.persona))
        personas[prompt.persona].add(prompt.pair)
    assert all(len(found) == 1 for found in shapes.values())
    assert len(personas) == 9  # none, four trusted, four untrusted
    assert {len(p.messages) for p in prompts} == {1, 2, 3, 4}


def test_the_same_specification_gives_the_same_file(organism: Make, tmp_path: Path) -> None:
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        write_prompts(held_out(Grammar(organism(seed=seed))), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert (tmp_path / "one").read_bytes() != (tmp_path / "other").read_bytes()
