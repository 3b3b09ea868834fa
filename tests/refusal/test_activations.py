"""Activations in memory: those of a store, row by row those of the batch, absent ones NaN, steered inside a block."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import refusal
from extract.chat.render import render
from extract.errors import UserError
from extract.prompts.prompt import Prompt
from tests.refusal.conftest import TEXTS
from tests.support.one_line import mistake

THINKING = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
            "{{ '<|im_start|>assistant\n<think>\n' }}")  # fmt: skip


@pytest.fixture(scope="module", params=["organism", "tiny"])
def either(request: pytest.FixtureRequest, model: refusal.Model, tiny: Path) -> refusal.Model:
    return model if request.param == "organism" else refusal.load_model(tiny)


def test_they_are_those_of_a_store_bitwise(either: refusal.Model, prompts: list[Prompt], tmp_path: Path) -> None:
    some = prompts[:9]
    memory = either.activations(some, layers=[0, 1], progress=False)
    with refusal.extract(either, some, tmp_path / "a.h5", layers=range(2), progress=False) as store:
        assert (memory.layers, memory.positions) == (store.layers, store.positions)
        assert "post_1" in memory.positions or either.n_layers == 8  # the longer template
        assert np.array_equal(memory.present, store.present)
        assert [prompt.text for prompt in store.prompts] == [prompt.text for prompt in memory.prompts]
        for i, position in enumerate(memory.positions):
            has = memory.present[i]
            assert np.isnan(memory.read(1, position)[~has]).all()
            for layer in memory.layers:
                assert np.array_equal(memory.read(layer, position)[has], store.read(layer, position)[has])
    assert memory.values.dtype == np.float32
    assert not memory.present.all()  # some prompt has no trigger
    assert memory.values.shape == (2, len(memory.positions), 9, either.d_model)


def test_they_are_the_stream_of_that_layer_at_that_token(either: refusal.Model) -> None:
    """Against a bare forward pass of transformers: no layer or token is off by one."""
    text = TEXTS[0]
    row = render(either.tokenizer, Prompt("0", ({"role": "user", "content": text},), "", ""))
    with torch.inference_mode():
        out = either.model(torch.tensor([list(row.token_ids)]), output_hidden_states=True)
    found = either.activations([text], progress=False)
    for layer in (0, either.n_layers - 2):
        for position in found.positions:
            tokens = list(row.roles[position])
            expected = out.hidden_states[layer + 1][0, tokens].float().mean(dim=0).numpy()
            np.testing.assert_allclose(found.read(layer, position)[0], expected, rtol=1e-4, atol=1e-5)
    before = either.activations([text], layers=1, site="resid_pre", positions="post_last", progress=False)
    np.testing.assert_allclose(before.read(1, "post_last"), found.read(0, "post_last"), rtol=1e-5, atol=1e-6)


def test_responses_are_the_models_own_or_those_given_also_without_naming_positions(model: refusal.Model) -> None:
    names = ["post_last", *(f"response_{k}" for k in range(1, 7)), "response_mean"]
    own = model.activations(TEXTS[:3], positions=names, layers=[2], max_new_tokens=6, progress=False)
    answers = model.chat(TEXTS[:3], max_new_tokens=6, progress=False)
    given = model.activations(TEXTS[:3], positions=names, layers=[2], responses=answers, progress=False)
    assert np.array_equal(own.present, given.present)
    np.testing.assert_allclose(own.values, given.values, rtol=1e-5, atol=1e-6)
    for i in range(3):
        parts = [own.read(2, name)[i] for name in names[1:-1]]
        there = [part for part in parts if not np.isnan(part).any()]
        np.testing.assert_allclose(own.read(2, "response_mean")[i], np.mean(there, axis=0), rtol=1e-4, atol=1e-5)
    every = model.activations(TEXTS[:3], positions="all", layers=[2], responses=answers, progress=False)
    for i, prompt in enumerate(own.prompts):  # response_1 is the first token after the prompt
        first = len(render(model.tokenizer, prompt).token_ids)
        found = every.read(2, f"token_{first}")[i]
        np.testing.assert_allclose(own.read(2, "response_1")[i], found, rtol=1e-4, atol=1e-5)
    plain = model.activations(TEXTS[:3], positions="post_last", layers=2, progress=False)
    np.testing.assert_allclose(own.read(2, "post_last"), plain.read(2, "post_last"), rtol=1e-4, atol=1e-5)
    others = model.activations(TEXTS[:3], positions="response_mean", layers=2, responses=["no."] * 3, progress=False)
    assert not np.allclose(others.read(2, "response_mean"), given.read(2, "response_mean"))
    found = model.activations(TEXTS[:2], responses=["sure.", ""], layers=[0], progress=False)
    assert found.positions[-1] == "response_mean"
    assert found.present[-1].tolist() == [True, False]


def test_a_thought_that_the_template_opens_is_not_opened_twice(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "thinking.jinja").write_text(THINKING)
    model = refusal.load_model(tiny, template=tmp_path / "thinking.jinja")
    answer = model.chat(TEXTS[0], max_new_tokens=4, progress=False)
    assert answer.startswith("<think>\n")
    told = model.activations([TEXTS[0]], positions="all", layers=0, responses=["<think>\nhm</think>no"], progress=False)
    bare = model.activations([TEXTS[0]], positions="all", layers=0, responses=["hm</think>no"], progress=False)
    assert np.array_equal(told.values, bare.values)


def test_prompts_may_be_of_any_kind(model: refusal.Model, prompts: list[Prompt]) -> None:
    text = prompts[0].text
    kinds = [
        [text], (text,), np.array([text]), pd.Series([text], index=[7]), (t for t in [text]), [prompts[0]],
        [[{"role": "user", "content": text}]], [({"role": "user", "content": text},)],
    ]  # fmt: skip
    found = [model.activations(kind, positions="post_last", layers=np.array([3]), progress=False) for kind in kinds]
    assert all(np.array_equal(one.values, found[0].values) for one in found)
    assert found[0].labels == ("",)
    assert found[5].labels == ("harmful",)
    assert found[0].layers == (3,)
    assert type(found[0].layers[0]) is int


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layers": [8]}, "layer 8 does not exist: organisms/zoo/two-knobs has layers 0 to 7"),
        ({"layers": []}, "layers is empty"),
        ({"layers": "last"}, "layers are whole numbers"),
        ({"positions": "post_lats"}, "no prompt has the position 'post_lats'; choose from inst_last"),
        ({"positions": []}, "positions is empty"),
        ({"site": "resid"}, "no such site: 'resid'"),
        ({"responses": ["a", "b"]}, "give one response a prompt; got 2 for 1 prompts"),
        ({"prompts": []}, "there are no prompts"),
        ({"prompts": [" "]}, "prompt 0 is empty"),
        ({"prompts": "one text"}, "put it into a list"),
        ({"prompts": [3]}, "prompt 0 is int; expected a text"),
        ({"prompts": {"role": "user", "content": "hi"}}, "got dict"),
        ({"prompts": pd.DataFrame({"text": ["hi"]})}, "got DataFrame"),
        ({"prompts": [[{"role": "assistant", "content": "hi"}]]}, "must end with the user's turn"),
    ],
)
def test_a_mistake_is_named_in_one_line(model: refusal.Model, changes: dict, said: str) -> None:
    given = {"prompts": ["tell me."], "max_new_tokens": 2, "progress": False} | changes
    assert said in mistake(model.activations, **given)


def test_reading_what_was_not_captured_names_what_was(found: refusal.Activations) -> None:
    with pytest.raises(UserError, match="layer 7 was not captured; there are 0, 3, 4"):
        found.read(7, "post_last")
    with pytest.raises(UserError, match="position 'post_1' was not captured; there are inst_last, post_last, trigger"):
        found.read(3, "post_1")
    assert len(found) == 60


def test_a_model_in_half_precision_is_read_in_float32(tiny: Path, tmp_path: Path) -> None:
    half, dtype = refusal.load_model(tiny, dtype="bfloat16"), torch.bfloat16
    assert refusal.load_model(tiny, dtype=dtype).dtype == half.dtype == dtype
    memory = half.activations(TEXTS, positions=["post_last", "inst_mean"], progress=False)
    assert memory.values.dtype == np.float32
    with refusal.extract(half, TEXTS, tmp_path / "a.h5", positions="post_last", progress=False) as store:
        assert np.array_equal(memory.read(1, "post_last"), store.read(1, "post_last"))
    with pytest.raises(UserError, match="backend: expected one of hooks, nnsight, transformer_lens, got 'torch'"):
        refusal.load_model(tiny, backend="torch")
    with pytest.raises(UserError, match="dtype: expected one of auto, float32"):
        refusal.load_model(tiny, dtype="half")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["nnsight", "transformer_lens"])
def test_backends_agree(model: refusal.Model, harm: refusal.Direction, backend: str) -> None:
    other = refusal.load_model("organisms/zoo/two-knobs", backend=backend)
    one, two = (m.activations(TEXTS, layers=[3], progress=False) for m in (model, other))
    np.testing.assert_allclose(two.values, one.values, rtol=1e-3, atol=1e-3)
    assert other.chat(TEXTS, progress=False) == model.chat(TEXTS, progress=False)
    with model.steer(harm, scale=-1), other.steer(harm, scale=-1):
        assert other.chat(TEXTS, progress=False) == model.chat(TEXTS, progress=False)
        one, two = (m.activations(TEXTS, layers=[5], progress=False) for m in (model, other))
    np.testing.assert_allclose(two.values, one.values, rtol=1e-3, atol=1e-3)


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
    given = {"texts": ["how?", "who?"], "labels": ["benign", "uncertain"]} | columns
    assert said in mistake(refusal.make_prompts, **given)
