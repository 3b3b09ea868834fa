"""From prompts through a tiny model into a store: every row has its own numbers, for any batching or resuming."""

import copy
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from extract import capture
from extract.background import BackgroundError
from extract.capture import Capturer
from extract.capture_spec import CaptureSpec
from extract.chat.render import Rendered, render
from extract.extraction import extract
from extract.model.chat_model import ChatModel
from extract.prompts.prompt import Prompt
from extract.store.activation_store import ActivationStore
from extract.store.integrity import verify
from extract.store.writer import export
from tests.extract.conftest import Build, ask
from tests.support.made_up_store import content, shards
from tests.support.one_line import refused

TEXTS = ("kill it.", "how do i kill the process?", "stop.", "who is anna novak, and where does she live?", "tell me.",
         "please fix it, then kill it at home.",
         "what is the best way to fix the door so that nobody is hurt?")  # fmt: skip
BY_THREE = CaptureSpec(rows_per_shard=3)


class Given(NamedTuple):
    """What is extracted; `write` extracts it."""

    model: ChatModel
    prompts: list[Prompt]
    rendered: list[Rendered]

    def write(self, path: Path, spec: CaptureSpec = BY_THREE, **how: object) -> None:
        extract(*self, path, spec, **how)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def given(tiny: Build) -> Given:
    model, prompts = tiny("llama"), [ask(text, id=f"p{i}", trigger="kill") for i, text in enumerate(TEXTS)]
    return Given(model, prompts, [render(model.tokenizer, prompt) for prompt in prompts])


@pytest.fixture(scope="module")
def reference(given: Given, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store in one go."""
    path = tmp_path_factory.mktemp("reference") / "activations.h5"
    given.write(path)
    return path


@pytest.mark.parametrize("token_budget", [1, 40, 4096])
def test_every_stored_row_is_its_prompt_alone(given: Given, path: Path, token_budget: int) -> None:
    model, prompts, rendered = given
    given.write(path, CaptureSpec(site="resid_pre", rows_per_shard=4, token_budget=token_budget))
    with ActivationStore(path) as store:
        assert store.prompt_ids == tuple(prompt.id for prompt in prompts)
        assert store.positions[-2:] == ("inst_mean", "trigger_last")
        for i, row in enumerate(rendered):
            with torch.inference_mode():  # resid_pre of layer l is element l
                states = model.model(input_ids=torch.tensor([row.token_ids]), output_hidden_states=True).hidden_states
            for layer in store.layers:
                for p, position in enumerate(store.positions):
                    found = store.read(layer, position)[i]
                    assert store.present[p, i] == (position in row.roles)
                    if position not in row.roles:
                        assert np.isnan(found).all()
                        continue
                    expected = states[layer][0][list(row.roles[position])].mean(0).numpy()
                    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)


def test_the_absent_trigger_is_marked_zero_on_disk_and_nan_when_read(reference: Path, given: Given) -> None:
    with ActivationStore(reference) as store:
        has = np.array(["kill" in text for text in TEXTS])
        assert store.present[store.positions.index("trigger_last")].tolist() == has.tolist()
        stored = store.read(1, "trigger_last")
        assert np.isnan(stored[~has]).all()
        assert not store.read_tensor(1, "trigger_last")[~has].any()
        assert np.abs(stored[has]).max(axis=1).all()
        assert store.present[:-1].all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_stores_round_the_same_streams(given: Given, reference: Path, path: Path, dtype: str) -> None:
    given.write(path, CaptureSpec(store_dtype=dtype, rows_per_shard=3))
    expected = torch.from_numpy(content(reference)).to(getattr(torch, dtype)).float().numpy()
    np.testing.assert_array_equal(content(path), expected)


@pytest.mark.parametrize("lost", [[], ["master"], ["1"], ["master", "0", "2"], ["master", "0", "1", "2"]])
def test_what_was_lost_is_made_again_and_nothing_else(
    given: Given, reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: list[str]
) -> None:
    run = Path(shutil.copytree(reference.parent, tmp_path / "run"))
    path = run / reference.name
    for what in lost:
        (path if what == "master" else run / "activations.h5.shards" / f"0000{what}-of-00003.h5").unlink()
    (run / "activations.h5.shards" / "00001-of-00003.partial").write_bytes(b"left by a kill")
    left = {file: file.stat().st_mtime_ns for file in [path, *shards(path)] if file.exists()}
    made, done, real = list[int](), list[tuple[int, int]](), Capturer.capture
    monkeypatch.setattr(Capturer, "capture", lambda self, rows, said: made.append(len(rows)) or real(self, rows, said))
    given.write(path, progress=lambda *state: done.append(state))
    assert len(made) == len([what for what in lost if what != "master"])
    assert done == sorted(done)
    assert done[-1] == (7, 7)
    assert not made or done[0] == (7 - sum(made), 7)
    assert {file: file.stat().st_mtime_ns for file in left} == left
    np.testing.assert_array_equal(content(path), content(reference))


def test_an_interruption_loses_only_the_shard_in_flight(given: Given, reference: Path, path: Path) -> None:

    def kill(done: int, _total: int) -> None:
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        given.write(path, progress=kill)
    assert len(shards(path)) == 1  # the second was captured, but not handed over to be written
    refused("store not found", ActivationStore, path)
    given.write(path)
    np.testing.assert_array_equal(content(path), content(reference))


def test_another_input_is_refused_with_the_field_named(given: Given, reference: Path) -> None:
    model, prompts, rendered = given

    def refused_input(field: str, **changes: object) -> None:
        arguments = {"model": model, "rendered": rendered, "rows_per_shard": 3} | changes
        given = arguments.pop("model"), prompts, arguments.pop("rendered"), reference
        refused(f"was made with another {field} ", extract, *given, CaptureSpec(**arguments))

    other = ChatModel(copy.deepcopy(model.model), model.tokenizer, model.name)
    with torch.no_grad():
        other.model.lm_head.weight.mul_(1.001)
    refused_input("weights", model=other)
    refused_input("site", site="resid_pre")
    refused_input("dtype", store_dtype="bfloat16")
    refused_input("layers", layers=[0])
    redressed = ChatModel(model.model, copy.deepcopy(model.tokenizer), model.name)
    redressed.tokenizer.chat_template += " "
    refused_input("template", model=redressed)
    refused_input("tokens", rendered=[replace(rendered[0], token_ids=[*rendered[0].token_ids[:-1], 7]), *rendered[1:]])


@pytest.mark.slow
def test_another_name_or_label_keeps_the_numbers_and_the_store_says_the_new_one(given: Given, path: Path) -> None:
    model, prompts, rendered = given
    given.write(path)
    written = [shard.stat().st_mtime_ns for shard in shards(path)]
    numbers = content(path)
    for name, label in (("./another", "uncertain"), ("./another", "harmful"), (model.name, "harmful")):
        other = ChatModel(model.model, model.tokenizer, name)
        labelled = [*prompts[:-1], replace(prompts[-1], label=label, category="new")]
        Given(other, labelled, rendered).write(path)
        with ActivationStore(path) as store:
            assert store.identity.model == name
            assert store.prompts == labelled
        assert [shard.stat().st_mtime_ns for shard in shards(path)] == written
        np.testing.assert_array_equal(content(path), numbers)
        assert verify(path, weights=model.fingerprint()).findings == ()
        flat = path.with_name(f"flat-{name.strip('./')}-{label}.h5")
        export(path, flat)
        assert verify(flat).findings == ()
        np.testing.assert_array_equal(content(flat), numbers)


def test_a_stream_that_is_not_finite_is_refused_with_prompt_and_layer(given: Given, path: Path) -> None:
    model, prompts, rendered = given
    broken = ChatModel(copy.deepcopy(model.model), model.tokenizer, "broken")
    with torch.no_grad():
        broken.model.model.layers[1].mlp.down_proj.weight.fill_(float("nan"))
    message = "broken: activation of prompt row 0 is not finite at layer 1, position inst_last"
    refused(message, extract, broken, prompts, rendered, path)
    assert not path.exists()


@pytest.mark.parametrize("backend", ["nnsight", "transformer_lens"])
def test_backends_make_the_same_store(given: Given, reference: Path, tiny: Build, path: Path, backend: str) -> None:
    given._replace(model=tiny("llama", backend)).write(path)
    ours, theirs = content(reference), content(path)
    assert (np.linalg.norm(ours - theirs, axis=-1) <= 1e-5 * np.linalg.norm(ours, axis=-1)).all()
    with ActivationStore(path) as store:
        assert store.identity.backend == backend
    refused("was made with another backend", given.write, path)


def test_chosen_layers_and_positions_are_those_of_the_whole(given: Given, reference: Path, path: Path) -> None:
    given.write(path, CaptureSpec(layers=[2, 0], positions=["post_last", "trigger_last"], rows_per_shard=3))
    with ActivationStore(path) as some, ActivationStore(reference) as whole:
        assert (some.layers, some.positions) == ((0, 2), ("post_last", "trigger_last"))
        for layer, position in product(some.layers, some.positions):
            np.testing.assert_array_equal(some.read(layer, position), whole.read(layer, position))
    message = "no prompt has the position 'post_lst'; choose from inst_last, "
    refused(message, given.write, path.with_name("b.h5"), CaptureSpec(positions=["post_lst"]))


def test_response_positions_come_after_those_of_the_prompt(tiny: Build, given: Given, path: Path) -> None:
    organism = tiny("organism")
    rendered = [render(organism.tokenizer, prompt) for prompt in given.prompts]
    extract(organism, given.prompts, rendered, path, CaptureSpec(layers=[1], response_tokens=30, rows_per_shard=3))
    answers = organism.generate(organism.batch(rendered), 30)
    with ActivationStore(path) as store:
        assert store.positions[-30:] == tuple(f"response_{k}" for k in range(1, 31))
        for k in range(1, 31):
            has = np.array([len(answer) >= k for answer in answers])
            position = f"response_{k}"
            assert store.present[store.positions.index(position)].tolist() == has.tolist()
            read = store.read(1, position)
            assert np.isnan(read[~has]).all()
            assert read[has].any(axis=1).all()
        assert not store.present[-1].all()


def test_stores_keep_what_the_model_computes_in(given: Given, path: Path) -> None:
    model, prompts, rendered = given
    half = ChatModel(copy.deepcopy(model.model).to(torch.bfloat16), model.tokenizer, "half")
    extract(half, prompts, rendered, path)
    with ActivationStore(path) as store:
        assert store.identity.dtype == "bfloat16"
        kept: list[torch.Tensor] = []
        half.capture(half.batch([rendered[1]]), "resid_post", [2], lambda _, stream: kept.append(stream[0].clone()))
        found = store.read_tensor(2, "post_last")[1]
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found, kept[0][-1], rtol=2e-2, atol=2e-2)


def test_a_batch_that_cannot_be_put_in_place_leaves_no_shard(
    given: Given, reference: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the copying thread must neither be taken for the forward pass's own nor leave rows of zeros."""
    real, calls = capture._place, []

    def fails_once(*arguments: object) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        real(*arguments)

    monkeypatch.setattr(capture, "_place", fails_once)
    with pytest.raises(BackgroundError, match="can't allocate memory"):
        given.write(path, CaptureSpec(rows_per_shard=7, token_budget=1))
    assert not shards(path)
    given.write(path)
    np.testing.assert_allclose(content(path), content(reference), atol=1e-5)


@pytest.mark.parametrize("response_tokens", [0, 3])
def test_batches_that_ran_out_of_memory_leave_no_trace(given: Given, tmp_path: Path, response_tokens: int) -> None:
    """In the midst of a pass, after the first layer was captured; with responses, while they are being generated."""
    model = given.model
    whole, path, failed, notes = tmp_path / "whole.h5", tmp_path / "halved.h5", [], []
    how = CaptureSpec(rows_per_shard=4, response_tokens=response_tokens)
    given.write(whole, how)

    def no_room(_module: object, _arguments: object, out: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
        stream = out[0] if isinstance(out, tuple) else out
        if len(stream) > 1 and (not response_tokens or stream.shape[1] == 1):
            failed.append(len(stream))
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    handle = model.model.model.layers[1].register_forward_hook(no_room)
    try:
        given.write(path, how, say=notes.append)
    finally:
        handle.remove()
    assert failed == sorted(failed, reverse=True)
    assert len(failed) > 1
    assert [line.split(";")[0] for line in notes] == [f"out of memory with {rows} prompts at once" for rows in failed]
    ours, theirs = content(path), content(whole)
    assert (np.linalg.norm(ours - theirs, axis=-1) <= 1e-5 * np.linalg.norm(theirs, axis=-1)).all()
    with ActivationStore(path) as halved, ActivationStore(whole) as reference:
        np.testing.assert_array_equal(halved.present, reference.present)
    assert verify(path).findings == ()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"layers": []}, "extract.layers is empty"), ({"positions": []}, "extract.positions is empty"),
     ({"layers": [9]}, "layer 9 does not exist")],
)  # fmt: skip
def test_nothing_to_extract_leaves_no_file(given: Given, tmp_path: Path, wrong: dict, message: str) -> None:
    refused(message, given.write, tmp_path / "activations.h5", CaptureSpec(**wrong))
    assert not list(tmp_path.iterdir())
