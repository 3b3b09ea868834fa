"""Control vectors of other tools: each is added where its tool adds it, none runs code, and each way out comes back."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import make_dataclass, replace
from pathlib import Path
from types import ModuleType

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import refusal
from probes.direction import Direction, Locus
from steering.actuator import Affine
from steering.control_vectors import added_vectors, load_directions, named, save_control_vector
from steering.direction_file import save_directions
from steering.writer import Writer
from tests.support.one_line import mistake
from tests.support.tiny_model import TEXTS, rendered, tiny_llama

D_MODEL = 32


@pytest.fixture(scope="module")
def model() -> refusal.Model:
    made = tiny_llama()
    return refusal.Model(made.model, made.tokenizer, "tiny")


@pytest.fixture
def vectors() -> dict[int, np.ndarray]:
    drawn = np.random.default_rng(0).normal(size=(3, D_MODEL)).astype(np.float32)
    return dict(zip((1, 2, 3), drawn, strict=True))


def logits(model: refusal.Model) -> torch.Tensor:
    return model.logits(model.batch(rendered(model, TEXTS)))


def steered(model: refusal.Model, direction: Direction) -> torch.Tensor:
    with model.steer(direction, 1, tokens="all"):
        return logits(model)


def at_hidden_state(model: refusal.Model, index: int, vector: np.ndarray) -> torch.Tensor:
    """Return the logits with a vector added to transformers' hidden_states[index]: the input of block index."""
    own, seen = model.model.model, []

    def shift(_module: torch.nn.Module, given: tuple) -> tuple:
        seen.append(given[0])
        return given[0] + torch.tensor(vector), *given[1:]

    handle = [*own.layers, own.norm][index].register_forward_pre_hook(shift)
    try:
        expected = logits(model)
    finally:
        handle.remove()
    batch = model.batch(rendered(model, TEXTS))
    plain = model.model(batch.tokens, batch.attention_mask, output_hidden_states=True).hidden_states
    if index < model.n_layers:  # the last of hidden_states is after the final norm
        real = batch.attention_mask.bool()
        torch.testing.assert_close(seen[0][real], plain[index][real], rtol=0, atol=1e-5)
    return expected


def write_gguf(path: Path, vectors: dict[int, np.ndarray], *, architecture: str = "controlvector") -> Path:
    """Write the format of llama.cpp and repeng by gguf's own writer."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_string("controlvector.model_hint", "llama")
    writer.add_uint32("controlvector.layer_count", len(vectors))
    for layer, vector in vectors.items():
        writer.add_tensor(f"direction.{layer}", vector)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_steering_vector(path: Path, vectors: dict[int, np.ndarray], layer_type: str = "decoder_block") -> Path:
    """Pickle an object of the class, module and fields that steering-vectors 0.12 has."""
    fields = ["layer_activations", "layer_type"]
    kind = make_dataclass("SteeringVector", fields, namespace={"__module__": "steering_vectors.steering_vector"})
    modules = {name: ModuleType(name) for name in ("steering_vectors", "steering_vectors.steering_vector")}
    modules["steering_vectors.steering_vector"].SteeringVector = kind  # type: ignore[attr-defined]
    sys.modules.update(modules)
    try:
        torch.save(kind({layer: torch.tensor(v) for layer, v in vectors.items()}, layer_type), path)
    finally:
        for name in modules:
            del sys.modules[name]
    return path


def write_layers(path: Path, vectors: dict[int, np.ndarray]) -> Path:
    torch.save({layer: torch.tensor(vector) for layer, vector in vectors.items()}, path)
    return path


def write_ours(path: Path, vectors: dict[int, np.ndarray]) -> Path:
    save_control_vector(vectors, path, "llama")
    return path


WAYS = {
    "GGUF": lambda folder, vectors: write_gguf(folder / "v.gguf", vectors),
    "steering-vectors": lambda folder, vectors: write_steering_vector(folder / "v.pt", vectors),
    "tensors by layer": lambda folder, vectors: write_layers(folder / "v.pt", vectors),
    "own GGUF": lambda folder, vectors: write_ours(folder / "v.gguf", vectors),
    "own safetensors": lambda folder, vectors: write_ours(folder / "v.safetensors", vectors),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_vector_of_layer_n_is_added_to_the_output_of_block_n(model, vectors, tmp_path: Path, way: str) -> None:
    read = load_directions(WAYS[way](tmp_path, vectors))
    assert [d.locus for d in read.values()] == [Locus("resid_post", layer, "all") for layer in vectors]
    for direction, (layer, vector) in zip(read.values(), vectors.items(), strict=True):
        assert direction.gap == pytest.approx(float(np.linalg.norm(vector)))
        expected = at_hidden_state(model, layer + 1, vector)
        torch.testing.assert_close(steered(model, direction), expected, rtol=0, atol=1e-4)
        elsewhere = replace(direction, locus=replace(direction.locus, layer=layer - 1))
        assert (steered(model, elsewhere) - expected).abs().max() > 0.1  # the check sees another layer


def test_refusal_directions_are_of_the_input_of_a_block(model, tmp_path: Path) -> None:
    means = np.random.default_rng(1).normal(size=(2, model.n_layers, D_MODEL))
    means[:, 0] = 1e-16  # the difference of equal tokens' embeddings, but for rounding
    torch.save(torch.tensor(means), tmp_path / "mean_diffs.pt")
    read = load_directions(tmp_path / "mean_diffs.pt")
    assert list(read)[:3] == ["mean_diffs_1_-2", "mean_diffs_1_-1", "mean_diffs_2_-2"]
    assert len(read) == 2 * (model.n_layers - 1)
    for layer in range(1, model.n_layers):
        direction = read[f"mean_diffs_{layer}_-1"]
        assert direction.locus == Locus("resid_pre", layer, "all")
        expected = at_hidden_state(model, layer, means[-1, layer].astype(np.float32))
        torch.testing.assert_close(steered(model, direction), expected, rtol=0, atol=1e-4)

    torch.save(torch.tensor(means[0, 2]), tmp_path / "direction.pt")
    assert "give --layer N" in mistake(load_directions, tmp_path / "direction.pt")
    by_hand = load_directions(tmp_path / "direction.pt", layer=2)["direction"]
    (tmp_path / "direction_metadata.json").write_text(json.dumps({"pos": -2, "layer": 2}))
    chosen = load_directions(tmp_path / "direction.pt")["direction"]
    assert chosen.locus == by_hand.locus == read["mean_diffs_2_-2"].locus
    assert chosen.provenance["read_at_token"] == -2
    assert np.array_equal(chosen.vector, read["mean_diffs_2_-2"].vector)
    (tmp_path / "direction_metadata.json").write_text("{}")
    assert "give --layer N" in mistake(load_directions, tmp_path / "direction.pt")


def test_the_input_of_a_block_is_written_as_the_output_of_the_one_before(model, tmp_path: Path) -> None:
    vector = np.random.default_rng(2).normal(size=D_MODEL).astype(np.float32)
    before = Direction("d", vector / np.linalg.norm(vector), Locus("resid_pre", 2, "post_last"), 5.0, 2.0)
    save_control_vector(added_vectors([before], -0.5), tmp_path / "v.gguf", "llama")
    (read,) = load_directions(tmp_path / "v.gguf").values()
    assert (read.locus.site, read.locus.layer) == ("resid_post", 1)
    assert read.provenance["model_hint"] == "llama"
    with model.steer(before, -0.5, tokens="all"):
        expected = logits(model)
    torch.testing.assert_close(steered(model, read), expected, rtol=0, atol=1e-4)


def heretic(folder: Path, model: refusal.Model, unit: np.ndarray, rows: Callable, weight: float = 1.2) -> Path:
    """Write an adapter as heretic 1.4 does: B = -weight v and A = vᵀ W, times what `rows` makes of the rows of W."""
    tensors = {}
    for layer, block in enumerate(model.model.model.layers):
        for name, part in (("self_attn.o_proj", block.self_attn.o_proj), ("mlp.down_proj", block.mlp.down_proj)):
            W, v = part.weight.detach(), torch.tensor(unit)[:, None] * (layer > 0)
            key = f"base_model.model.model.layers.{layer}.{name}"
            tensors |= {f"{key}.lora_A.weight": v.T @ W, f"{key}.lora_B.weight": -weight * v * rows(W)}
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, folder / "adapter_model.safetensors")
    return folder


def test_heretics_adapter_gives_back_its_direction_where_one_is_in_it(model, vectors, tmp_path: Path) -> None:
    unit = vectors[1] / np.linalg.norm(vectors[1])
    read = load_directions(heretic(tmp_path, model, unit, lambda W: 1))
    assert {name: (d.locus.site, d.locus.layer, d.length) for name, d in read.items()} == {
        f"heretic_{layer}": ("resid_post", layer, 1.0) for layer in (1, 2, 3)
    }
    np.testing.assert_allclose(read["heretic_2"].vector, unit, atol=1e-6)
    norms = heretic(tmp_path, model, unit, lambda W: W.norm(dim=1, keepdim=True))  # row_normalization = pre
    assert "row_normalization = none" in mistake(load_directions, norms)
    full = heretic(tmp_path, model, unit, lambda W: torch.ones(1, 3))  # of rank 3, heretic's default
    assert "of rank 3" in mistake(load_directions, full / "adapter_model.safetensors")


def test_a_direction_without_class_means_adds_its_length_and_nothing_else(model, vectors, tmp_path: Path) -> None:
    read = load_directions(write_gguf(tmp_path / "v.gguf", vectors))
    assert "length 5.69" in repr(read["v_2"])
    save_directions(list(read.values()), tmp_path / "own.safetensors")
    again = load_directions(tmp_path / "own.safetensors")
    assert again == read
    added = added_vectors(again.values())
    for layer, vector in vectors.items():
        np.testing.assert_allclose(added[layer], vector, atol=1e-6)
    refused = model.steer(read["v_2"], 1, form="affine").__enter__
    assert "use form='add' or form='zero'" in mistake(refused)
    with pytest.raises(ValueError, match="relative to class means, which the direction 'v_2' has not"):
        Writer(read["v_2"], Affine())
    with pytest.raises(ValueError, match="either both class means or a length"):
        replace(read["v_2"], mean_positive=1.0, mean_negative=0.0)
    with pytest.raises(ValueError, match="either both class means or a length"):
        replace(read["v_2"], length=float("nan"))


def test_vectors_of_one_layer_add_up_and_names_choose(vectors, tmp_path: Path) -> None:
    read = load_directions(write_gguf(tmp_path / "v.gguf", vectors))
    chosen = named(read, ["v_1", "v_[23]"], "v.gguf")
    assert [direction.name for direction in chosen] == ["v_1", "v_2", "v_3"]
    np.testing.assert_allclose(added_vectors(chosen, 2.0, [2])[2], 2 * sum(vectors.values()), atol=1e-5)
    assert list(added_vectors(chosen[:1], 1.0, [3, 2])) == [2, 3]
    assert "v.gguf has 3 directions; choose by --direction: v_1, v_2, v_3" in mistake(named, read, [], "v.gguf")
    assert "has no direction 'x'; it has v_1" in mistake(named, read, ["x"], "v.gguf")


class Runs:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


def test_a_file_that_would_run_code_is_not_opened(tmp_path: Path) -> None:
    torch.save({1: Runs(tmp_path / "ran")}, tmp_path / "v.pt")
    assert "holds more than tensors" in mistake(load_directions, tmp_path / "v.pt")
    assert not (tmp_path / "ran").exists()
    torch.load(tmp_path / "v.pt", weights_only=False)
    assert (tmp_path / "ran").exists()  # it would have


def saved(path: Path, value: object) -> Path:
    torch.save(value, path)
    return path


def not_direction(folder: Path) -> Path:
    save_file({"weights": torch.ones(2)}, folder / "v.safetensors")
    return folder / "v.safetensors"


NAN = {1: np.full(4, np.nan, np.float32)}
WRONG = {
    "absent": (lambda folder: folder / "no.gguf", "directions not found: "),
    "a name": (lambda folder: saved(folder / "v.npy", 1), "expected .safetensors, .gguf, .pt"),
    "a model": (lambda folder: write_gguf(folder / "v.gguf", {}, architecture="llama"), "is a GGUF file of 'llama'"),
    "no GGUF": (lambda folder: saved(folder / "v.gguf", 1), "cannot be read as a GGUF file: "),
    "empty": (lambda folder: write_layers(folder / "v.pt", {}), "holds no direction"),
    "not finite": (lambda folder: write_layers(folder / "v.pt", NAN), "v_1: expected a vector of finite numbers"),
    "shape": (lambda folder: saved(folder / "v.pt", torch.ones(2, 2)), "holds (2, 2); expected a tensor by layer"),
    "negative": (lambda folder: saved(folder / "v.pt", {-1: torch.ones(2)}), "numbered from 0; got -1"),
    "attention": (lambda folder: write_steering_vector(folder / "v.pt", {}, "self_attn"), "of 'self_attn'; only"),
    "no adapter": (lambda folder: folder, "is a directory without directions.safetensors"),
    "weights": (not_direction, "was not written by save_directions"),
    "damaged": (lambda folder: saved(folder / "v.safetensors", 1), "cannot be read as directions: "),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, case: str) -> None:
    write, said = WRONG[case]
    assert said in mistake(load_directions, write(tmp_path))


def test_what_cannot_be_written_is_one_line(vectors, tmp_path: Path) -> None:
    unit = vectors[1] / np.linalg.norm(vectors[1])
    first, middle = (Direction("d", unit, Locus(site, 0, "all"), length=1.0) for site in ("resid_pre", "resid_mid"))
    for direction in (first, middle):
        assert "which is no block's output; name the blocks" in mistake(added_vectors, [direction])
    assert list(added_vectors([middle], layers=[2])) == [2]
    assert "adds nothing to the output of block 0" in mistake(
        save_control_vector, {0: vectors[1]}, tmp_path / "v.gguf", ""
    )
    assert "ends in .gguf or .safetensors" in mistake(save_control_vector, vectors, tmp_path / "v.pt", "")
    assert list(tmp_path.iterdir()) == []
