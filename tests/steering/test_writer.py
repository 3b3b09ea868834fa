"""What two dials write at one place is one write: both projections are set, and what a gate leaves alone is free."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
import torch
from torch import Tensor

from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, Pass
from probes.direction import Direction, Locus
from steering.actuator import Actuator, Addition, Affine, Clamp, OnsetBias
from steering.controller import steering
from steering.dial import Dial
from steering.dial_file import load_dials, save_dials
from steering.interventions import add, affine
from steering.writer import ConstantGateWriter, GatedWriter, Writer, held_edits, joint_edits
from tests.steering.conftest import WRITE, run, unit

Make = Callable[..., Dial]
D = 16
MEANS = {"normative": (11.0, -6.0), "epistemic": (9.0, -7.0)}
COSINES = [-0.5, 0.6]
FIRST = Pass(0, 1, 1)  # the last prompt token alone
MEANS_OF_OPENING = ((4.0, -3.0), (2.0, -1.0))
LATER_MEANS = {2: (5.0, -3.0), 3: (8.0, -6.0)}


def vectors(cosine: float, d_model: int = D) -> np.ndarray:
    a, b = np.linalg.qr(np.random.default_rng(3).standard_normal((d_model, 2)))[0].T
    return np.stack([a, cosine * a + np.sqrt(1 - cosine**2) * b]).astype(np.float32)


def writers(cosine: float, actuators: Sequence[Actuator] = (Affine(), Affine()), layer: int = 1) -> list[Writer]:
    return [
        Writer(Direction(name, vector, Locus("resid_post", layer, "post_last"), *MEANS[name]), actuator)
        for name, vector, actuator in zip(MEANS, vectors(cosine), actuators, strict=True)
    ]


def stream(rows: int = 6, dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.randn(rows, 1, D, generator=torch.Generator().manual_seed(0)) * 5).to(dtype)


def write(chosen: Sequence[Writer], gates: Sequence[int | Sequence[int]], x: Tensor) -> Tensor:
    columns = [np.broadcast_to(np.array(gate).reshape(-1, 1), (len(x), 1)) for gate in gates]
    gated = [GatedWriter(w, lambda *_, g=column: g) for w, column in zip(chosen, columns, strict=True)]
    (edit,) = joint_edits(gated)
    return edit.function(x, FIRST)


def in_turn(chosen: Sequence[Writer], gates: Sequence[int], x: Tensor) -> Tensor:
    for writer, gate in zip(chosen, gates, strict=True):
        x = write([writer], [gate], x)
    return x


def goals(gates: Sequence[int], cosine: float = 0.0) -> list[float]:
    """Return the class means of these gates, moved by cosine x gap where the other gate declines."""
    own = [on if gate > 0 else off for (on, off), gate in zip(MEANS.values(), gates, strict=True)]
    rises = [on - off if gate > 0 else 0.0 for (on, off), gate in zip(MEANS.values(), gates, strict=True)]
    return [mean + cosine * rise for mean, rise in zip(own, rises[::-1], strict=True)]


@pytest.mark.parametrize("gates", [(-1, -1), (-1, 1), (1, 1)])
@pytest.mark.parametrize("cosine", COSINES)
def test_both_projections_are_at_their_targets_at_once(cosine, gates) -> None:
    R, pair, x = torch.tensor(vectors(cosine)), writers(cosine), stream()
    wanted = torch.tensor(goals(gates, cosine)).expand(6, 1, 2)
    written = write(pair, gates, x)
    torch.testing.assert_close(written @ R.T, wanted, atol=1e-4, rtol=0)
    across = torch.linalg.qr(torch.cat([R, torch.randn(D - 2, D)]).T)[0][:, 2:]
    torch.testing.assert_close(written @ across, x @ across, atol=1e-4, rtol=0)  # and nothing else moves
    missed = in_turn(pair, gates, x) @ R.T - wanted  # the control: the second write moves the first projection
    assert missed.abs().mean() > 1


@pytest.mark.parametrize("cosine", COSINES)
def test_to_decline_is_to_move_from_where_both_permit_along_its_own_direction(cosine) -> None:
    """The decision that the other dial reads from its own coordinate stays: no dial undoes a part of the other's."""
    pair, x, R = writers(cosine), stream(), torch.tensor(vectors(cosine))
    permitted = write(pair, (-1, -1), x)
    for which, gates in enumerate([(1, -1), (-1, 1)]):
        on, off = list(MEANS.values())[which]
        torch.testing.assert_close(write(pair, gates, x), add(permitted, R[which], on - off), atol=1e-4, rtol=0)
        assert (write(pair, gates, x) @ R[which]).flatten().tolist() == pytest.approx([on] * 6, abs=1e-4)


@pytest.mark.parametrize("cosine", [*COSINES, 0.99])
@pytest.mark.parametrize("actuators", list(permutations([Affine(), Addition(0.5), Clamp(), Affine(0.5)], 2)))
def test_the_order_of_the_dials_does_not_matter(cosine, actuators) -> None:
    pair, x = writers(cosine, actuators), stream()
    for gates in product((-1, 0, 1), repeat=2):
        found, turned = write(pair, gates, x), write(pair[::-1], gates[::-1], x)
        torch.testing.assert_close(found, turned, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_a_gate_leaves_is_free_and_what_all_leave_is_bitwise_unchanged(dtype) -> None:
    pair, x = writers(-0.5), stream(dtype=dtype)
    normative, epistemic = (1, -1, 0, 0, -1, 1), (0, 0, 1, 0, -1, -1)
    written, R = write(pair, (normative, epistemic), x), torch.tensor(vectors(-0.5))
    assert torch.equal(written[3], x[3])
    alone = [affine(x, R[0], goals([1, 0])[0]), affine(x, R[0], goals([-1, 0])[0]), affine(x, R[1], goals([0, 1])[1])]
    for row, wanted in enumerate(alone):
        torch.testing.assert_close(written[row], wanted[row], atol=1e-5 if dtype == torch.float32 else 0.05, rtol=0.01)
    for row in range(6):
        one = write(pair, (normative[row], epistemic[row]), x[row : row + 1])
        torch.testing.assert_close(written[row : row + 1], one)


def test_it_is_computed_in_float32_and_rounded_once() -> None:
    x = stream(dtype=torch.bfloat16)
    assert torch.equal(write(writers(-0.5), (-1, -1), x), write(writers(-0.5), (-1, -1), x.float()).bfloat16())
    twice = in_turn(writers(0.0), (-1, -1), x)
    assert not torch.equal(twice, in_turn(writers(0.0), (-1, -1), x.float()).bfloat16())  # the control


def test_a_clamp_beyond_its_bound_keeps_its_projection() -> None:
    R, pair = torch.tensor(vectors(-0.5)), writers(-0.5, (Clamp(), Affine()))
    x = stream()
    x = x + (-20.0 - (x @ R.T)[..., :1]) * R[0]  # its projection is beyond the answering mean of -6
    written = write(pair, (-1, -1), x) @ R.T
    torch.testing.assert_close(written, torch.tensor([-20.0, -7.0]).expand(6, 1, 2), atol=1e-4, rtol=0)
    assert (in_turn(pair, (-1, -1), x) @ R[0] + 20).abs().min() > 0.5  # the control: the other write moves it
    short = write(pair, (-1, -1), x + 40 * R[0]) @ R.T
    torch.testing.assert_close(short, torch.tensor([-6.0, -7.0]).expand(6, 1, 2), atol=1e-4, rtol=0)


def test_vectors_are_added_first_so_that_no_addition_moves_a_projection_that_is_set() -> None:
    R, x = torch.tensor(vectors(-0.5)), stream()
    gap = MEANS["normative"][0] - MEANS["normative"][1]
    for gate, goal in ((-1, -7.0), (1, -7.0 - 0.5 * 0.5 * gap)):  # one that declines moves the target along with it
        wanted = affine(add(x, R[0], gate * 0.5 * gap), R[1], goal)
        for order in (1, -1):
            pair, gates = writers(-0.5, (Addition(0.5), Affine()))[::order], (gate, -1)[::order]
            torch.testing.assert_close(write(pair, gates, x), wanted, atol=1e-4, rtol=0)
    both = write(writers(-0.5, (Addition(), Addition(2.0))), (1, -1), x)
    torch.testing.assert_close(both, add(add(x, R[0], gap), R[1], -32.0), atol=1e-4, rtol=0)


def test_a_strength_is_the_share_of_the_change_of_the_projections() -> None:
    R, x = torch.tensor(vectors(-0.5)), stream()
    before = x @ R.T
    written = write(writers(-0.5, (Affine(0.5), Affine(0.25))), (-1, 1), x) @ R.T
    wanted = before + torch.tensor([0.5, 0.25]) * (torch.tensor(goals((-1, 1), -0.5)) - before)
    torch.testing.assert_close(written, wanted, atol=1e-4, rtol=0)
    alone = write(writers(-0.5, (Affine(0.0), Affine())), (-1, 1), x)  # strength 0 is no dial: its direction is free
    torch.testing.assert_close(alone, affine(x, R[1], 9.0), atol=1e-4, rtol=0)


def test_a_dial_whose_steps_are_over_leaves_its_direction_free() -> None:
    R = torch.tensor(vectors(-0.5))
    normative, epistemic = writers(-0.5)
    (edit,) = joint_edits([GatedWriter(w, lambda first, last, start, rows: np.full((rows, 1), -1))
                           for w in (replace(normative, steps=2), epistemic)])  # fmt: skip
    x = torch.randn(2, 6, D, generator=torch.Generator().manual_seed(1)) * 5
    whole = edit.function(x, Pass(0, 6, 3))
    assert torch.equal(whole[:, :2], x[:, :2])
    torch.testing.assert_close(whole[:, 2:4], write([normative, epistemic], (-1, -1), x[:, 2:4].reshape(4, 1, D)
                                                    ).reshape(2, 2, D))  # fmt: skip
    torch.testing.assert_close(whole[:, 4:], affine(x[:, 4:], R[1], -7.0), atol=1e-4, rtol=0)
    for t in range(2, 6):  # with a cache, token by token
        torch.testing.assert_close(edit.function(x[:, t : t + 1], Pass(t, 1, 3)), whole[:, t : t + 1])


@pytest.mark.parametrize("cosine", [0.92, 0.98, 0.999, 1.0])
def test_one_knob_with_two_dials_is_written_within_bounds(cosine) -> None:
    """Both write nearly one vector: permits meet between their means, and the dial that declines declines."""
    R, pair, x = torch.tensor(vectors(cosine)), writers(cosine), stream()
    for gates in product((-1, 1), repeat=2):
        written = write(pair, gates, x)
        needed = (torch.tensor(goals(gates, cosine)) - x @ R.T).norm(dim=-1)
        assert ((written - x).norm(dim=-1) <= needed + 1e-4).all()
        along, goal = (written @ R.T).mean(dim=-1), float(np.mean(goals(gates, cosine)))
        torch.testing.assert_close(along, torch.full((6, 1), goal), atol=1e-3, rtol=0)
        assert goal > 5 if 1 in gates else goal < -5


def pair_of_dials(dial: Make, cosine: float = -0.5, layers: tuple[int, int] = (1, 1), **changes: object) -> list[Dial]:
    made = []
    for kind, vector, layer in zip(MEANS, vectors(cosine, 32), layers, strict=True):
        later = {after: (MEANS[kind][0] + after, MEANS[kind][1] - after) for after in range(layer + 1, 4)}
        write = Direction(f"{kind} write", vector, Locus("resid_post", layer, "post_last"), *MEANS[kind],
                          later_means=later)  # fmt: skip
        made.append(dial(kind, write=write, **changes))
    return made


def projections(model: ChatModel, rows: list[Rendered], dials: list[Dial], **how: object) -> dict[int, Tensor]:
    """Return the projections on both directions at the written tokens, by layer, (rows, tokens, 2)."""
    batch, seen = model.batch(rows), {layer: [] for layer in (1, 2, 3)}
    R = torch.tensor(np.stack([one.write.vector for one in dials]))

    def look(layer: int) -> Edit:
        def function(x: Tensor, pass_: Pass) -> Tensor:
            seen[layer].append(x[:, pass_.tokens("last_on")] @ R.T)
            return x

        return Edit("resid_post", layer, function)

    with steering(model, dials, batch, rows), model.editing([look(layer) for layer in seen]):
        model.generate(batch, 4, 4, **how)
    return {layer: torch.cat(each, dim=1) if how.get("use_cache", True) else each[-1] for layer, each in seen.items()}


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("layers", [(1, 1), (1, 2), (2, 1)])
def test_every_layer_sets_all_projections_with_its_own_means(model, rows, dial, layers, use_cache) -> None:
    dials = [replace(one, threshold=2.0, later=True) for one in pair_of_dials(dial, layers=layers)]  # both permit
    found = projections(model, rows, dials, use_cache=use_cache)
    for layer, which in product((1, 2, 3), (0, 1)):
        if layer >= layers[which]:
            means = (dials[which].write.later_means | {layers[which]: MEANS[dials[which].kind]})[layer]
            np.testing.assert_allclose(found[layer][..., which], means[1], atol=1e-3)
    alone = projections(model, rows, [replace(one, later=False) for one in dials])
    assert (alone[3][..., 0] - (MEANS["normative"][1] - 3)).abs().max() > 0.1  # the control


def test_dials_and_held_gates_write_alike(model, rows, dial) -> None:
    dials, batch = [replace(one, threshold=2.0) for one in pair_of_dials(dial)], model.batch(rows)
    said = run(model, rows, dials, steps=6)[0]
    held = [ConstantGateWriter(one.writer, -1) for one in dials]
    with model.editing(held_edits(held)):
        assert model.generate(batch, 6, 6) == said
    with model.editing([edit for one in held for edit in held_edits([one])]):  # the control: one after the other
        assert model.generate(batch, 6, 6) != said


def test_edits_of_held_gates_are_named_by_all_that_is_held(both) -> None:
    (opening, epistemic), normative = both, replace(both[0], opening=())
    one = (normative, -1)
    cases = [[one], [(epistemic, -1)], [one, (epistemic, -1)], [one, (epistemic, 1)],
             [one, (replace(epistemic, steps=1), -1)], [one, (epistemic, 0)], [(opening, -1)]]  # fmt: skip
    keys = [[edit.key for edit in held_edits([ConstantGateWriter(*each) for each in case])] for case in cases]
    assert keys[5] == keys[0]  # a gate that leaves is no gate
    assert all(len(key) == 1 for key in keys)
    assert len({key for (key,) in keys}) == 6


@pytest.fixture
def both() -> list[Writer]:
    """Give the normative writer two openings, oblique to each other and to the dials' own directions."""
    own, rng = vectors(-0.5), np.random.default_rng(7)
    mixed = [rng.standard_normal(D) + 2.0 * own[0], rng.standard_normal(D) - own[1]]
    oblique = [(one / np.linalg.norm(one)).astype(np.float32) for one in mixed]
    opening = tuple(Direction(f"over_refusal_{i}", vector, WRITE, *means)
                    for i, (vector, means) in enumerate(zip(oblique, MEANS_OF_OPENING, strict=True)))  # fmt: skip
    normative, epistemic = writers(-0.5)
    return [replace(normative, opening=opening), epistemic]


def test_where_it_permits_all_projections_are_at_their_answering_means_each_row_by_its_own_gate(both) -> None:
    written = write(both, [-1, 0], stream())
    along = (written[:, 0] @ torch.tensor(np.stack([at.vector for at in both[0].opening])).T).numpy()
    np.testing.assert_allclose(along, np.tile([-3.0, -1.0], (6, 1)), atol=1e-4)
    own = written[:, 0] @ torch.tensor(vectors(-0.5)[0])
    np.testing.assert_allclose(own.numpy(), MEANS["normative"][1], atol=1e-4)
    torch.testing.assert_close(write(both, [-1, 0], written), written, atol=1e-4, rtol=0)
    x, gates = stream(), [1, -1, 0, -1, 1, 0]
    rows = torch.cat([write(both, [gate, 0], x[i : i + 1]) for i, gate in enumerate(gates)])
    torch.testing.assert_close(write(both, [gates, 0], x), rows, atol=1e-5, rtol=0)
    assert not torch.allclose(rows, write([replace(both[0], opening=()), both[1]], [gates, 0], x), atol=0.1)


@pytest.mark.parametrize("gates", [(1, 0), (0, 1), (0, -1), (0, 0)])
def test_where_it_declines_or_leaves_it_is_a_dial_without_them(both, gates) -> None:
    bare = [replace(both[0], opening=()), both[1]]
    assert torch.allclose(write(both, gates, stream()), write(bare, gates, stream()), atol=1e-5)


def test_dials_with_them_are_saved_and_act(model, rows, dial, tmp_path) -> None:
    opening = (Direction("over_refusal_0", unit(21), WRITE, 5.0, -8.0),)
    made, bare = (dial("normative", threshold=2.0, opening=given) for given in (opening, ()))
    save_dials([made], tmp_path / "dials.safetensors", "f" * 64)
    (again,) = load_dials(tmp_path / "dials.safetensors", "f" * 64)
    assert [one.name for one in again.opening] == ["over_refusal_0"]
    np.testing.assert_array_equal(again.opening[0].vector, unit(21))
    said = [run(model, rows, [one], steps=6)[0] for one in (made, again, bare)]
    assert said[0] == said[1] != said[2]


@pytest.mark.parametrize("changes", [{"actuator": Affine(0.5)}, {"actuator": Clamp(), "steps": 2}, {"later": True},
                                     {"actuator": OnsetBias(((3, 5),)), "write": None}])  # fmt: skip
def test_a_held_gate_is_a_dial_that_always_decides_so(model, rows, dial, changes) -> None:
    made, batch = dial(**{"write": replace(dial().write, later_means=LATER_MEANS)} | changes), model.batch(rows)
    said = {}
    for gate, threshold in ((1, 0.0), (-1, 2.0)):
        decided = run(model, rows, [replace(made, threshold=threshold)])[0]
        held = ConstantGateWriter(made.writer, gate)
        with model.editing(held_edits([held]), held.processors(batch.prompt_length)):
            said[gate] = model.generate(batch, 8, 8)
        assert said[gate] == decided
    assert said[1] != said[-1]
    left = ConstantGateWriter(made.writer, 0)
    assert held_edits([left]) == left.processors(1) == []
