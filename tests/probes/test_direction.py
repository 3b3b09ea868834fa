"""A direction is one unit vector, and its file is an ordinary safetensors file."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from probes.direction import Direction, Locus
from steering.direction_file import load_directions, save_directions

LOCUS = Locus("resid_post", 4, "post_last")


def _direction(name: str = "normative_write", seed: int = 0) -> Direction:
    vector = np.random.default_rng(seed).standard_normal(32)
    vector = (vector / np.linalg.norm(vector)).astype(np.float32)
    return Direction(name, vector, LOCUS, 7.25, -0.1, {"fitted_on": "behaviour", "n": 12})


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (np.full(4, 1.0), "'r' must be one unit vector, got shape (4,), norm 2"),
        (np.zeros(4), "norm 0"),
        (np.array([np.nan, 1.0]), "norm nan"),
        (np.eye(2) / np.sqrt(2), "got shape (2, 2), norm 1"),
    ],
)
def test_only_one_unit_vector_is_a_direction(vector: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match="must be one unit vector") as error:
        Direction("r", vector, LOCUS, 1.0, 0.0)
    assert message in str(error.value)


def test_projection_is_in_float64_for_any_activations() -> None:
    direction = _direction()
    X = np.random.default_rng(1).standard_normal((5, 32)).astype(np.float16) + np.float16(1000)
    along = direction.project(X)
    assert along.dtype == np.float64
    np.testing.assert_allclose(along, [sum(float(a) * float(b) for a, b in zip(x, direction.vector)) for x in X])  # noqa: B905


@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_gives_back_what_was_saved(kind: type, tmp_path: Path) -> None:
    saved = [_direction("normative_write", 0), _direction("epistemic_read", 1)]
    path = kind(tmp_path / "directions.safetensors")
    save_directions(saved, path)
    loaded = load_directions(path)
    assert set(loaded) == {"normative_write", "epistemic_read"}
    for before in saved:
        after = loaded[before.name]
        assert (before, after.vector.dtype) == (after, np.float32)


def test_safetensors_reads_the_file_and_no_other_file_is_left(tmp_path: Path) -> None:
    path = tmp_path / "directions.safetensors"
    save_directions([_direction()], path)
    assert np.array_equal(load_file(path)["normative_write"], _direction().vector)
    with safe_open(path, framework="numpy") as file:
        record = json.loads(file.metadata()["normative_write"])
    assert record["locus"] == {"site": "resid_post", "layer": 4, "position": "post_last"}
    assert list(tmp_path.iterdir()) == [path]


def test_two_directions_of_one_name_and_a_file_of_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="different names, got normative_write, normative_write"):
        save_directions([_direction(seed=0), _direction(seed=1)], tmp_path / "directions.safetensors")
    assert not list(tmp_path.iterdir())
    path = tmp_path / "model.safetensors"
    save_file({"weight": np.zeros((2, 2), dtype=np.float32)}, path)
    with pytest.raises(ValueError, match=r"model\.safetensors was not written by save_directions"):
        load_directions(path)


def test_numpy_numbers_in_locus_and_provenance_are_saved_as_numbers(tmp_path: Path) -> None:
    locus = Locus("resid_post", np.int64(4), "post_last")  # type: ignore[arg-type]
    vector = np.eye(3, dtype=np.float32)[0]
    direction = Direction("a", vector, locus, np.float32(0.5), 0.0, {"n": np.int64(7)})  # type: ignore[arg-type]
    save_directions([direction], tmp_path / "d.safetensors")
    loaded = load_directions(tmp_path / "d.safetensors")["a"]
    assert (loaded.locus.layer, loaded.mean_positive, loaded.provenance) == (4, 0.5, {"n": 7})
    with pytest.raises(TypeError, match="must be JSON values; got set"):
        save_directions([Direction("a", vector, locus, 0.5, 0.0, {"n": {7}})], tmp_path / "d.safetensors")


def test_equal_directions_have_the_same_numbers_and_names_and_a_repr_holds_no_array() -> None:
    one, same = _direction(), _direction()
    assert one == same
    assert hash(one) == hash(same)
    assert len({one, same}) == 1
    moved = one.vector.copy()
    moved[:2] = moved[1::-1]
    changes = [{"name": "x"}, {"locus": Locus("resid_post", 5, "post_last")}, {"mean_positive": 7.0}, {"vector": moved},
               {"mean_negative": 0.0}, {"provenance": {}}, {"later_means": {5: (1.0, 2.0)}}]  # fmt: skip
    assert all(replace(one, **change) != one for change in changes)
    assert one != "normative_write"
    expected = "Direction('normative_write', resid_post layer 4 post_last, d_model 32, class means -0.10 and 7.25)"
    assert repr(_direction()) == expected


def test_equality_survives_another_process() -> None:
    unit = np.eye(4, dtype=np.float32)[0]
    locus = Locus("resid_post", 1, "post_last")
    for direction in (Direction("d", unit, locus, 2.0, -1.0), Direction("d", unit, locus, length=3.0)):
        assert pickle.loads(pickle.dumps(direction)) == direction
        assert direction != replace(direction, name="e")
    assert Direction("d", unit, locus, 2.0, -1.0) != Direction("d", unit, locus, length=3.0)
