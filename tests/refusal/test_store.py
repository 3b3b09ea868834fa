"""Stores and prompts in a notebook: what was written is opened again, and mistakes are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import refusal
from extract.errors import UserError
from tests.refusal.conftest import TEXTS


def test_a_store_is_opened_again_by_file_and_by_directory(model: refusal.Model, tmp_path: Path) -> None:
    path = tmp_path / "activations.h5"
    with refusal.extract(model, TEXTS, str(path), layers=3, positions="post_last", progress=False) as store:
        values, shown = store.read(3, "post_last"), repr(store)
    assert shown == (f"ActivationStore({str(path)!r}, 'organisms/zoo/two-knobs', 5 prompts, resid_post, 1 layers, "
                     "1 positions, d_model 128)")  # fmt: skip
    for given in (path, str(path), tmp_path):
        with refusal.open_store(given) as again:
            assert np.array_equal(again.read(3, "post_last"), values)
            assert len(again) == 5
            assert [prompt.text for prompt in again.prompts] == list(TEXTS)
            assert {prompt.label for prompt in again.prompts} == {""}
    with refusal.extract(model, TEXTS, path, layers=3, positions="post_last", progress=False) as same:
        assert np.array_equal(same.read(3, "post_last"), values)
    with pytest.raises(UserError, match=r"activations\.h5"):
        refusal.extract(model, TEXTS[:2], path, layers=3, positions="post_last", progress=False)


def test_mistakes_are_named(model: refusal.Model, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no folder .*nowhere; make it first"):
        refusal.extract(model, TEXTS, tmp_path / "nowhere" / "a.h5")
    with pytest.raises(UserError, match="layer 8 does not exist"):
        refusal.extract(model, TEXTS, tmp_path / "a.h5", layers=8, progress=False)
    with pytest.raises(UserError, match="there are no prompts"):
        refusal.extract(model, [], tmp_path / "a.h5")
    with pytest.raises(UserError, match=r"nothing\.h5"):
        refusal.open_store(tmp_path / "nothing.h5")
    assert list(tmp_path.iterdir()) == []


def test_prompts_are_made_of_columns() -> None:
    frame = pd.DataFrame({"t": ["how?", "who?"], "l": ["benign", "uncertain"], "p": [1, 1], "w": ["how", None]}, [5, 3])
    made = refusal.make_prompts(frame["t"], frame["l"], pair=frame["p"], trigger=frame["w"])
    assert [(one.id, one.text, one.label, one.pair, one.trigger) for one in made] == [
        ("0", "how?", "benign", "1", "how"), ("1", "who?", "uncertain", "1", None),
    ]  # fmt: skip
    numbers = np.array([7, 7])
    again = refusal.make_prompts(np.array(["how?", "who?"]), iter(["benign", "harmful"]), pair=numbers, id=["a", "b"])
    assert [(one.id, one.pair) for one in again] == [("a", "7"), ("b", "7")]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"labels": ["benign"]}, "columns must have one value a text; got text 2, label 1"),
        ({"labels": ["benign", "bad"]}, "prompt 1: field 'label' is 'bad'; expected one of benign, harmful, uncertain"),
        ({"labels": ["benign", None]}, "prompt 1: field 'label' is None"),
        ({"texts": ["how?", " "]}, "prompt 1: field 'text' is empty"),
        ({"texts": "ab"}, "give texts and labels as lists"),
        ({"id": ["a", "a"]}, "id 'a' is given more than once; ids must be unique"),
    ],
)
def test_a_wrong_column_is_named(columns: dict, said: str) -> None:
    with pytest.raises(UserError) as caught:
        refusal.make_prompts(**{"texts": ["how?", "who?"], "labels": ["benign", "uncertain"]} | columns)
    assert said in str(caught.value)
