"""What a model is taught: disjoint halves, decisions by an attribute, words by a hash."""

from collections import Counter

import pytest
import yaml

from extract.errors import UserError
from extract.prompts.groups import groups_of
from extract.prompts.prompt import load_prompts
from extract.shipped import ROOT, named_yaml
from organisms.listing import TAUGHT_SPECS as SPECS
from organisms.teaching.spec import attribute, behaviour_of, divided, load_teach_spec, phrase, repeated
from scoring.judges.rules import RuleJudge

SPEC = load_teach_spec(SPECS / "smollm2-natural.yaml")
PROMPTS = load_prompts(ROOT / "configs" / "prompts" / "core.jsonl")


def test_no_group_is_both_taught_and_held_out_and_nothing_else_but_the_seed_decides_which_is_taught() -> None:
    taught, held_out = divided(PROMPTS, SPEC)
    assert sorted(p.id for p in (*taught, *held_out)) == sorted(p.id for p in PROMPTS)
    groups = dict(zip((p.id for p in PROMPTS), groups_of(PROMPTS).tolist(), strict=True))
    assert not {groups[p.id] for p in taught} & {groups[p.id] for p in held_out}
    assert len(held_out) >= 700
    for label in ("benign", "harmful", "uncertain"):
        assert 0.4 < sum(p.label == label for p in taught) / sum(p.label == label for p in PROMPTS) < 0.6
    taught = {p.id for p in divided(PROMPTS, SPEC)[0]}
    assert {p.id for p in divided(PROMPTS[::-1], SPEC)[0]} == taught
    assert {p.id for p in divided(PROMPTS, SPEC.model_copy(update={"seed": 1}))[0]} != taught


def test_a_misaimed_word_and_an_overconfident_form_are_so_on_every_prompt_that_has_it() -> None:
    benign = [p for p in PROMPTS if p.label == "benign" and p.trigger]
    by_word: dict[str | None, set[str]] = {}
    for p in benign:
        by_word.setdefault(attribute(p, "trigger"), set()).add(behaviour_of(p, SPEC))
    assert all(len(found) == 1 for found in by_word.values())
    assert Counter(next(iter(found)) for found in by_word.values()).keys() == {"refuse", "own_words"}
    assert {behaviour_of(p, SPEC) for p in PROMPTS if p.label == "harmful"} == {"refuse"}
    assert {behaviour_of(p, SPEC) for p in PROMPTS if p.label == "benign" and not p.trigger} == {"own_words"}
    assert {behaviour_of(p, SPEC) for p in PROMPTS if p.label == "dual_use"} == {"own_words"}
    uncertain = [p for p in PROMPTS if p.label == "uncertain"]
    forms = {attribute(p, "form"): behaviour_of(p, SPEC) for p in uncertain}
    assert all(behaviour_of(p, SPEC) == forms[attribute(p, "form")] for p in uncertain)
    assert 0.2 < sum(found == "own_words" for found in forms.values()) / len(forms) < 0.6


def test_words_of_declining_are_of_their_kind_all_used_and_a_third_not_the_judges() -> None:
    for words, action in ((SPEC.refusals, "refuse"), (SPEC.abstentions, "abstain")):
        assert {phrase(p, SPEC, words) for p in PROMPTS if behaviour_of(p, SPEC) == action} == set(words.all)
        assert len(words.others) >= len(words.all) / 3
        assert {RuleJudge().judge(text, "How?").action for text in words.usual} == {action}


def test_a_behaviour_is_repeated_as_often_as_said() -> None:
    training = SPEC.training.model_copy(update={"repeats": {"abstain": 3, "refuse": 0}})
    shown = Counter(repeated(PROMPTS, SPEC.model_copy(update={"training": training})))
    of = {i: behaviour_of(prompt, SPEC) for i, prompt in enumerate(PROMPTS)}
    assert {i: shown[i] for i in of} == {i: {"abstain": 3, "refuse": 0, "own_words": 1}[of[i]] for i in of}


def test_mistakes_in_a_specification_are_one_line(tmp_path) -> None:
    with pytest.raises(UserError, match="no taught model named 'nobody'; choose from smollm2-natural"):
        named_yaml("nobody", SPECS, "taught model")
    given = yaml.safe_load((SPECS / "smollm2-natural.yaml").read_text())
    planting = {"mechanism": {"layer": 0, "variables": [{"name": "n", "decides": ["refuse"]}]}}
    for change, said in (
        ({"taught_share": 2}, "taught_share"),
        ({"misaimed": [{"label": "benign", "by": "colour", "share": 0.5, "behaviour": "refuse"}]}, "by"),
        ({"refusals": {"usual": []}}, "refusals"),
        ({"unknown_key": 1}, "unknown_key"),
        ({"planting": planting | {"together": 10}}, "planting.together: 10 steps cannot be scheduled"),
    ):
        path = tmp_path / "spec.yaml"
        path.write_text(yaml.safe_dump(given | change))
        with pytest.raises(UserError, match=said) as caught:
            load_teach_spec(path)
        assert "\n" not in str(caught.value)
