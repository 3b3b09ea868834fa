import dataclasses
from itertools import product

import numpy as np
import pytest

from experiments.run.corpus import PARTS, check_parts, divide
from extract.errors import UserError
from extract.prompts.prompt import Prompt
from extract.prompts.sources import PromptsConfig
from probes.contrast import group_split

LABELS = ("benign", "harmful", "uncertain")
CONFIG = PromptsConfig(path="prompts.jsonl")  # type: ignore[arg-type]


def prompt(i: int, label: str, **more: str) -> Prompt:
    return Prompt(str(i), ({"role": "user", "content": f"text {i}"},), label, "answer", **more)  # type: ignore[arg-type]


def many() -> list[Prompt]:
    rows: list[Prompt] = []
    for i in range(200):
        rows.append(prompt(i, ("benign", "harmful")[i % 2], pair=f"pair{i // 2}", template=f"form{i // 2 % 25}"))
    for i in range(200):
        rows.append(prompt(200 + i, ("benign", "uncertain")[i % 2], pair=f"twin{i // 2}", entity=f"who{i // 8}"))
    return rows


def test_no_pair_entity_or_template_is_in_two_parts() -> None:
    corpus = divide(many(), CONFIG, seed=0)
    for field in ("pair", "entity", "template"):
        sides: dict[str, set[str]] = {}
        for row, part in zip(corpus.prompts, corpus.part, strict=True):
            if getattr(row, field):
                sides.setdefault(getattr(row, field), set()).add(part)
        assert sides
        assert all(len(parts) == 1 for parts in sides.values())


def test_every_part_gets_every_label_and_twins_are_the_benign_prompts_paired_with_uncertain_ones() -> None:
    corpus = divide(many(), CONFIG, seed=1)
    for part, label in product(PARTS, LABELS):
        assert (corpus.labelled(label) & corpus.within(part)).any(), (part, label)
    assert np.flatnonzero(corpus.twins).tolist() == list(range(200, 400, 2))


def test_a_file_s_own_split_is_kept_or_refused() -> None:
    rows = [prompt(i, label, pair=f"{i}", split=part) for i, (label, part) in enumerate(product(LABELS, PARTS))]
    assert divide(rows, CONFIG, 0).part.tolist() == [*PARTS] * 3
    with pytest.raises(UserError, match="'split' separates prompts of one pair"):
        divide([*rows, prompt(99, "benign", pair="0", split="test")], CONFIG, 0)


def test_the_same_text_of_two_sources_is_in_one_part() -> None:
    twice = [dataclasses.replace(row, id=f"again {row.id}", pair=None, entity=None) for row in many()]
    corpus = divide([*many(), *twice], CONFIG, seed=0)
    assert (corpus.part[:400] == corpus.part[400:]).all()


def test_categories_of_one_group_each_leave_no_part_without_a_label() -> None:
    config = CONFIG.model_copy(update={"train": 0.34, "validation": 0.12, "calibration": 0.12, "test": 0.42})
    rows = [prompt(i, "harmful", category=f"category {i}") for i in range(12)]
    rows += [prompt(100 + i, ("benign", "uncertain")[i % 2]) for i in range(120)]
    strata = [f"{row.label}/{row.category}" for row in rows]
    shares = {name: getattr(config, name) for name in PARTS}
    within_categories = group_split(np.arange(len(rows)), strata, shares, 0)
    assert "validation" not in within_categories[:12]  # the control
    corpus = divide(rows, config, 0)
    assert {part for part, row in zip(corpus.part, rows, strict=True) if row.label == "harmful"} == set(PARTS)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (LABELS, "no benign prompt falls into the validation part"),
        (LABELS[:1], r"prompts\.jsonl holds no prompt labelled harmful, uncertain; all three labels are need"),
    ],
)
def test_an_empty_part_and_a_missing_label_are_refused(labels: tuple[str, ...], message: str) -> None:
    corpus = divide([prompt(i, label, split="train") for i, label in enumerate(labels)], CONFIG, 0)
    with pytest.raises(UserError, match=message):
        check_parts(corpus, CONFIG)
