"""The prompts of a run from files and public sets: order, limits, contrasts; and one balanced set from several."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import yaml

from extract.prompts.groups import groups_of
from extract.prompts.prompt import Prompt, load_prompts
from extract.prompts.sources import PromptsConfig, contrasted, contrasted_action, draw, mixed, read_prompts
from extract.shipped import ROOT
from tests.support.one_line import mistake, refused

LABELS = ("benign", "harmful", "uncertain")


def prompt(name: str, label: str = "benign", **more: str) -> Prompt:
    text = more.pop("text", f"text {name}")
    return Prompt(name, ({"role": "user", "content": text},), label, "answer", **more)  # type: ignore[arg-type]


def paired(n: int) -> list[Prompt]:
    return [prompt(f"{label}{i}", label, pair=f"p{i}") for i in range(n) for label in ("benign", "harmful")]


@pytest.fixture
def config(tmp_path: Path) -> PromptsConfig:
    """A prompt file and a set of one's own, both with local files."""
    rows = [{"id": str(i), "text": f"mine {i}", "label": LABELS[i % 3]} for i in range(6)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "theirs.json").write_text(json.dumps([{"q": f"theirs {i}"} for i in range(20)]))
    described = {"about": "a set", "licence": "MIT", "url": "https://example.org", "citation": "Nobody, 2024",
                 "columns": {"text": "q"}, "constants": {"label": "uncertain"},
                 "parts": {"all": {"file": "theirs.json"}}}  # fmt: skip
    (tmp_path / "theirs.yaml").write_text(yaml.safe_dump(described))
    given = {"name": str(tmp_path / "theirs.yaml"), "path": tmp_path}
    return PromptsConfig.model_validate({"path": tmp_path / "mine.jsonl", "datasets": [given]})


def test_a_file_and_a_set_follow_one_another_and_a_limit_is_drawn_with_the_seed(config: PromptsConfig) -> None:
    prompts = read_prompts(config, seed=0)
    assert [p.id for p in prompts] == [*map(str, range(6)), *(f"theirs/all/{i}" for i in range(1, 21))]
    alone = PromptsConfig.model_validate({"datasets": config.datasets})
    assert read_prompts(alone, seed=0) == prompts[6:]
    limited = config.model_copy(update={"datasets": (config.datasets[0].model_copy(update={"limit": 7}),)})
    drawn = [read_prompts(limited, seed=seed) for seed in (0, 0, 1)]
    assert [len(prompts) for prompts in drawn] == [6 + 7] * 3  # the file's are not limited
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_set_named_twice_is_refused(config: PromptsConfig) -> None:
    twice = config.model_copy(update={"datasets": config.datasets * 2})
    refused(r"theirs\.yaml: id 'theirs/all/1' occurs twice; name each source once", read_prompts, twice, seed=0)


def test_few_prompts_of_dual_use_are_drawn_and_all_others_stay() -> None:
    every = [prompt(f"{label}{i}", label, pair=f"p{i}") for label in ("benign", "dual_use") for i in range(9)]
    for most in (0, 4, 9, 20):
        drawn = draw(every, None, 0, most)
        assert Counter(p.label for p in drawn) == Counter({"benign": 9, "dual_use": min(most, 9)})
        assert [p for p in every if p in drawn] == drawn
    seeds = [draw(every, None, seed, 4) for seed in (0, 0, 1)]
    assert seeds[0] == seeds[1] != seeds[2]


@pytest.mark.parametrize("seed", range(5))
def test_a_draw_keeps_pairs_whole_labels_even_and_order(seed: int) -> None:
    prompts = [*paired(30), *(prompt(f"alone{i}") for i in range(40))]
    drawn = draw(prompts, 10, seed)
    counts = Counter(p.label for p in drawn)
    assert counts["benign"] == 10
    assert counts["harmful"] <= 10
    assert set(Counter(p.pair for p in drawn if p.pair).values()) <= {2}
    assert [p for p in prompts if p in drawn] == drawn
    assert len({p.id for p in drawn}) == len(drawn)
    for limit in (30, 100):  # no less than there are
        assert draw(paired(30), limit, seed) == paired(30)


def test_each_question_gets_its_own_prompts_and_independent_groups_come_first() -> None:
    core = load_prompts(ROOT / "configs/prompts/core.jsonl")
    for limit in (20, 40, 130, 240):
        drawn = draw(core, limit, seed=0)
        counts = Counter(p.label for p in drawn)
        assert (counts["harmful"], counts["uncertain"], counts["benign"]) == (limit, limit, 2 * limit)
        twins = Counter((p.pair, p.label) for p in drawn)
        assert all(twins[pair, "benign"] == n for (pair, label), n in twins.items() if label in LABELS)
        most = dict[str, int]()  # harmful prompts of one group: a quadruple has two in its unit, other groups one
        for (pair, label), n in twins.items():
            if label == "harmful":
                most[pair[0]] = max(n, most.get(pair[0], 0))
        cut = sum(1 for (pair, label), n in twins.items() if (label, pair[0], n) == ("harmful", "q", 1))
        assert cut <= 1  # the last quadruple alone, where the limit is reached
        assert limit == 240 or (most["q"], most["c"], most.get("p", 1), most.get("s", 1)) == (2, 1, 1, 1)


def test_many_benign_prompts_in_a_group_leave_room_for_harmful_ones() -> None:
    prompts = [prompt(f"b{i}", pair=f"{i // 5}") for i in range(50)]
    prompts += [prompt(f"h{i}", "harmful", pair=f"{i}") for i in range(10)]
    drawn = Counter((p.label, p.pair) for p in draw(prompts, 10, seed=0))
    assert drawn == Counter({(label, str(i)): 1 for label in ("harmful", "benign") for i in range(10)})


def test_the_same_words_of_two_sets_are_one_group() -> None:
    prompts = [prompt("a/1", text="how?", pair="x"), prompt("a/2", "harmful", pair="x"), prompt("b/1", text="how?")]
    assert len(set(groups_of(prompts).tolist())) == 1
    assert len(set(groups_of([prompts[0], prompt("b/1", text="how")]).tolist())) == 2


def declined(label: str, decline: str | None = None) -> Prompt:
    return prompt(f"{label}/{decline}", label, acceptable=("clarify",), decline=decline)


def test_the_two_ways_take_the_labels_of_the_two_refusals_and_other_declines_are_fitted_to_nothing() -> None:
    prompts = [declined("harmful", "policy"), declined("benign", "instructed"), declined("benign"),
               declined("uncertain"), declined("harmful", "legal"), declined("harmful")]  # fmt: skip
    found = contrasted(prompts, ("policy", "instructed"), "file")
    assert [p.label for p in found] == ["harmful", "uncertain", "benign", "dual_use", "dual_use", "dual_use"]
    assert [(p.right_action, p.acceptable) for p in found[:2]] == [("refuse", ()), ("abstain", ())]
    assert found[2] is prompts[2]
    swapped = contrasted(prompts, ("instructed", "policy"), "file")
    assert [p.label for p in swapped[:2]] == ["uncertain", "harmful"]


@pytest.mark.parametrize(
    ("ways", "message"),
    [
        (("policy", "law"), "no prompt has the field 'decline' with the value 'law'; the ways are instructed, policy"),
        (("policy", "policy"), "a contrast needs two different ways of declining, got 'policy' twice"),
    ],
)
def test_ways_that_no_contrast_can_be_made_of_are_a_users_error(ways: tuple[str, str], message: str) -> None:
    prompts = [declined("harmful", "policy"), declined("benign", "instructed")]
    assert message in mistake(contrasted, prompts, ways, "file")


@pytest.mark.parametrize(
    ("label", "action", "read"),
    [
        ("harmful", "abstain", "refuse"), ("harmful", "refuse", "refuse"), ("uncertain", "refuse", "abstain"),
        ("uncertain", "answer", "answer"), ("benign", "refuse", "refuse"), ("benign", "abstain", "abstain"),
        ("uncertain", None, None), ("uncertain", "clarify", "clarify"),
    ],
)  # fmt: skip
def test_a_decline_is_that_of_its_prompt_however_it_is_worded(label: str, action: str | None, read: str | None) -> None:
    assert contrasted_action(action, declined(label)) == read


def sample(i: int, label: str, source: str, category: str, pair: str | None = None) -> Prompt:
    return prompt(f"{source}-{i}", label, category=category, pair=pair, source=source)


def many() -> list[Prompt]:
    """A large set of benign prompts, a small one, a set of minimal pairs, and uncertain prompts in two kinds."""
    found = [sample(i, "benign", "large", f"kind {i % 5}") for i in range(300)]
    found += [sample(i, "benign", "small", "one kind") for i in range(20)]
    found += [sample(i, ("benign", "harmful")[i % 2], "pairs", "one kind", f"{i // 2}") for i in range(160)]
    return found + [sample(i, "uncertain", "unsure", f"kind {i % 10 == 0}") for i in range(100)]


def test_labels_are_equal_groups_whole_and_the_draw_seeded() -> None:
    prompts = many()
    drawn = mixed(prompts, 60, seed=0)
    assert Counter(one.label for one in drawn) == {"benign": 60, "harmful": 60, "uncertain": 60}
    ids = {one.id for one in drawn}
    members = defaultdict(set)
    for one, group in zip(prompts, groups_of(prompts).tolist(), strict=True):
        members[group].add(one.id)
    assert all(group <= ids or not group & ids for group in members.values())
    assert [one for one in prompts if one.id in ids] == drawn  # the order is kept
    assert mixed(prompts, 60, seed=0) == drawn != mixed(prompts, 60, seed=1)


def test_labels_that_share_groups_are_balanced_with_parts_of_them() -> None:
    """Every harmful and uncertain prompt has a benign twin: whole groups alone would give twice as many benign."""
    prompts = [sample(i, ("benign", "harmful")[i % 2], "a", "one kind", f"h{i // 2}") for i in range(100)]
    prompts += [sample(i, ("benign", "uncertain")[i % 2], "b", "one kind", f"u{i // 2}") for i in range(100)]
    drawn = mixed(prompts, 40, seed=0)
    assert Counter(one.label for one in drawn) == {"benign": 40, "harmful": 40, "uncertain": 40}
    whole = [n for n in Counter((one.source, one.pair) for one in drawn).values() if n == 2]
    assert len(whole) == 40  # as many as fit


def test_sources_and_categories_give_evenly() -> None:
    drawn = mixed([one for one in many() if one.source != "pairs"], 50, seed=0)
    assert Counter(one.source for one in drawn if one.label == "benign") == {"small": 20, "large": 30}
    assert Counter(one.category for one in drawn if one.source == "large") == {f"kind {i}": 6 for i in range(5)}
    assert Counter(one.category for one in drawn if one.source == "unsure") == {"kind True": 10, "kind False": 40}


def test_too_few_of_a_label_are_refused() -> None:
    refused(r"only 80 harmful; ask for fewer with --each", mixed, many(), 90, seed=0)
