"""One balanced set from several: labels equal, sources even, groups whole, the same draw every time."""

from collections import Counter, defaultdict

import pytest

from extract.errors import UserError
from extract.prompts.groups import groups_of
from extract.prompts.prompt import Prompt
from extract.prompts.sources import mixed


def prompt(i: int, label: str, source: str, category: str, pair: str | None = None) -> Prompt:
    return Prompt(f"{source}-{i}", ({"role": "user", "content": f"Question {i} of {source}"},), label, "answer",
                  category=category, pair=pair, source=source)  # fmt: skip


def many() -> list[Prompt]:
    """A large set of benign prompts, a small one, a set of minimal pairs, and uncertain prompts in two kinds."""
    found = [prompt(i, "benign", "large", f"kind {i % 5}") for i in range(300)]
    found += [prompt(i, "benign", "small", "one kind") for i in range(20)]
    found += [prompt(i, ("benign", "harmful")[i % 2], "pairs", "one kind", f"{i // 2}") for i in range(160)]
    return found + [prompt(i, "uncertain", "unsure", f"kind {i % 10 == 0}") for i in range(100)]


def test_labels_are_equal_and_groups_whole() -> None:
    prompts = many()
    drawn = mixed(prompts, 60, seed=0)
    assert Counter(one.label for one in drawn) == {"benign": 60, "harmful": 60, "uncertain": 60}
    ids = {one.id for one in drawn}
    members = defaultdict(set)
    for one, group in zip(prompts, groups_of(prompts).tolist(), strict=True):
        members[group].add(one.id)
    assert all(group <= ids or not group & ids for group in members.values())
    assert [one for one in prompts if one.id in ids] == drawn  # the order is kept


def test_labels_that_share_groups_are_balanced_with_parts_of_them() -> None:
    """Every harmful and uncertain prompt has a benign twin: whole groups alone would give twice as many benign."""
    prompts = [prompt(i, ("benign", "harmful")[i % 2], "a", "one kind", f"h{i // 2}") for i in range(100)]
    prompts += [prompt(i, ("benign", "uncertain")[i % 2], "b", "one kind", f"u{i // 2}") for i in range(100)]
    drawn = mixed(prompts, 40, seed=0)
    assert Counter(one.label for one in drawn) == {"benign": 40, "harmful": 40, "uncertain": 40}
    whole = [n for n in Counter((one.source, one.pair) for one in drawn).values() if n == 2]
    assert len(whole) == 40  # as many as fit


def test_sources_and_categories_give_evenly() -> None:
    drawn = mixed([one for one in many() if one.source != "pairs"], 50, seed=0)
    assert Counter(one.source for one in drawn if one.label == "benign") == {"small": 20, "large": 30}
    assert Counter(one.category for one in drawn if one.source == "large") == {f"kind {i}": 6 for i in range(5)}
    assert Counter(one.category for one in drawn if one.source == "unsure") == {"kind True": 10, "kind False": 40}


def test_the_draw_is_seeded() -> None:
    first, again, other = (mixed(many(), 30, seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_too_few_of_a_label_are_refused() -> None:
    with pytest.raises(UserError, match=r"only 80 harmful; ask for fewer with --each"):
        mixed(many(), 90, seed=0)
