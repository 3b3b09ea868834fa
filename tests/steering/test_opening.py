"""Opening directions: set to their answering means where a dial permits, and nowhere else."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from probes.direction import Direction, Locus
from steering.actuator import Affine, OnsetBias
from steering.controller import steering
from steering.dial import Dial
from steering.dial_file import load_dials, save_dials
from steering.writer import ConstantGateWriter, Writer, held_edits
from tests.steering.conftest import WRITE, unit
from tests.steering.test_joint_write import MEANS, D, stream, vectors, write

Make = Callable[..., Dial]
MEANS_OF_OPENING = ((4.0, -3.0), (2.0, -1.0))


def oblique() -> list[np.ndarray]:
    """Return two unit vectors, oblique to each other and to the dials' own."""
    own = vectors(-0.5)
    rng = np.random.default_rng(7)
    mixed = [rng.standard_normal(D) + 2.0 * own[0], rng.standard_normal(D) - own[1]]
    return [(one / np.linalg.norm(one)).astype(np.float32) for one in mixed]


@pytest.fixture
def both() -> list[Writer]:
    locus = Locus("resid_post", 1, "post_last")
    opening = tuple(Direction(f"over_refusal_{i}", vector, locus, *means)
                    for i, (vector, means) in enumerate(zip(oblique(), MEANS_OF_OPENING, strict=True)))  # fmt: skip
    normative, epistemic = (Writer(Direction(name, vector, locus, *MEANS[name]), Affine())
                            for name, vector in zip(MEANS, vectors(-0.5), strict=True))  # fmt: skip
    return [replace(normative, opening=opening), epistemic]


def projections(x: torch.Tensor, writer: Writer) -> np.ndarray:
    return (x[:, 0] @ torch.tensor(np.stack([at.vector for at in writer.opening])).T).numpy()


def test_where_it_permits_all_projections_are_at_their_answering_means(both: list[Writer]) -> None:
    written = write(both, [-1, 0], stream())
    np.testing.assert_allclose(projections(written, both[0]), np.tile([-3.0, -1.0], (6, 1)), atol=1e-4)
    own = written[:, 0] @ torch.tensor(vectors(-0.5)[0])
    np.testing.assert_allclose(own.numpy(), MEANS["normative"][1], atol=1e-4)
    again = write(both, [-1, 0], written)
    torch.testing.assert_close(again, written, atol=1e-4, rtol=0)


@pytest.mark.parametrize("gates", [(1, 0), (0, 1), (0, -1), (0, 0)])
def test_where_it_declines_or_leaves_it_is_a_dial_without_them(both: list[Writer], gates: tuple[int, int]) -> None:
    bare = [replace(both[0], opening=()), both[1]]
    assert torch.allclose(write(both, gates, stream()), write(bare, gates, stream()), atol=1e-5)


def test_each_row_by_its_own_gate(both: list[Writer]) -> None:
    x, gates = stream(), [1, -1, 0, -1, 1, 0]
    rows = torch.cat([write(both, [gate, 0], x[i : i + 1]) for i, gate in enumerate(gates)])
    torch.testing.assert_close(write(both, [gates, 0], x), rows, atol=1e-5, rtol=0)
    assert not torch.allclose(rows, write([replace(both[0], opening=()), both[1]], [gates, 0], x), atol=0.1)


def test_the_key_of_a_cached_response_names_them(both: list[Writer]) -> None:
    with_, without = (held_edits([ConstantGateWriter(writer, -1)])[0].key
                      for writer in (both[0], replace(both[0], opening=())))  # fmt: skip
    assert with_ != without
    assert "where permitted" in with_


def test_dials_with_them_are_saved_and_act(model: ChatModel, rows: list[Rendered], dial: Make, tmp_path: Path) -> None:
    opening = (Direction("over_refusal_0", unit(21), WRITE, 5.0, -8.0),)
    made, bare = (dial("normative", threshold=2.0, opening=given) for given in (opening, ()))
    save_dials([made], tmp_path / "dials.safetensors", "f" * 64)
    (again,) = load_dials(tmp_path / "dials.safetensors", "f" * 64)
    assert [one.name for one in again.opening] == ["over_refusal_0"]
    np.testing.assert_array_equal(again.opening[0].vector, unit(21))
    said = []
    for one in (made, again, bare):
        batch = model.batch(rows)
        with steering(model, [one], batch, rows):
            said.append(model.generate(batch, 6, 6))
    assert said[0] == said[1] != said[2]


def test_they_are_written_where_the_dial_writes(both: list[Writer]) -> None:
    elsewhere = replace(both[0].opening[0], locus=Locus("resid_post", 2, "post_last"))
    with pytest.raises(ValueError, match="opening directions are written where its own direction is"):
        replace(both[0], opening=(elsewhere,))
    with pytest.raises(ValueError, match="opening directions are written where its own direction is"):
        Writer(None, OnsetBias(((1,),)), opening=both[0].opening)
