"""Dials on a running model: reading, a decision for each row, writing; a gate that leaves changes nothing."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from extract.chat.render import Rendered
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, Pass
from probes.direction import Direction, Locus
from probes.grid.logistic import LinearProbe, Platt
from steering.controller import Readings, steering
from steering.dial import Dial
from tests.steering.conftest import WRITE, gates_of, run

Make = Callable[..., Dial]
STEPS = 8


def watched(
    model: ChatModel, rows: list[Rendered], dials: list[Dial], layer: int, thresholds: dict | None = None
) -> list[tuple[Pass, Tensor]]:
    seen: list[tuple[Pass, Tensor]] = []
    batch = model.batch(rows)
    look = Edit("resid_post", layer, lambda stream, pass_: seen.append((pass_, stream.clone())) or stream)
    with steering(model, dials, batch, rows, thresholds), model.editing([look]):
        model.generate(batch, STEPS, min_new_tokens=STEPS)
    return seen


def always(dial: Make, kind: str, gate: int, **changes: object) -> Dial:
    threshold, band = {1: (-1.0, 0.0), 0: (0.5, 2.0), -1: (2.0, 0.0)}[gate]
    return dial(kind, threshold=threshold, band=band, **changes)


def test_declining_and_permitting_change_what_is_said_and_no_dials_are_plain_generation(model, rows, dial) -> None:
    plain = model.generate(model.batch(rows), STEPS, STEPS)
    declining, permitting = (run(model, rows, [always(dial, "normative", gate)])[0] for gate in (1, -1))
    assert plain != declining != permitting != plain
    assert run(model, rows, []) == (plain, Readings())


def test_probabilities_are_those_of_the_unsteered_stream(model, rows, dial, streams) -> None:
    dials = [dial("normative"), dial("epistemic")]
    _, readings = run(model, rows, dials)
    for made in dials:
        np.testing.assert_allclose(readings.probability[made.kind], made.probability(streams), atol=1e-5)
        assert set(gates_of(made, streams)) == {-1, 1}


@pytest.mark.parametrize("position", ["inst_last", "inst_mean", "post_last"])
def test_reads_are_at_their_own_position_whatever_the_padding(model, rows, dial, position) -> None:
    made = dial(read=Locus("resid_pre", 1, position))
    _, together = run(model, rows, [made])
    for i, row in enumerate(rows):
        kept: dict[int, Tensor] = {}
        model.capture(model.batch([row]), "resid_pre", [1], kept.__setitem__)
        expected = made.probability(kept[1][0, list(row.roles[position])].mean(0, keepdim=True).numpy())
        np.testing.assert_allclose(together.probability["normative"][i], expected[0], atol=1e-5)


def test_the_projection_is_the_target_from_the_last_prompt_token_on(model, rows, dial) -> None:
    made = dial(band=0.2, threshold=0.5)
    seen = watched(model, rows, [made], made.write.locus.layer)
    plain = watched(model, rows, [], made.write.locus.layer)
    _, readings = run(model, rows, [made])
    gate = readings.gate["normative"]
    assert set(gate) == {-1, 0, 1}
    r, left = torch.tensor(made.write.vector), torch.from_numpy(gate == 0)
    means = np.where(gate > 0, made.write.mean_positive, made.write.mean_negative)
    goal = torch.tensor(means, dtype=torch.float32)[~left]
    assert len(seen) == STEPS
    for step, (_, stream) in enumerate(seen):
        torch.testing.assert_close(stream[~left, -1] @ r, goal, atol=1e-3, rtol=0)
        assert torch.equal(stream[left], plain[step][1][left])
    assert torch.equal(seen[0][1][:, :-1], plain[0][1][:, :-1])


def test_where_the_normative_gate_declines_the_epistemic_one_leaves(model, rows, dial) -> None:
    normative, epistemic = dial("normative", band=0.2), always(dial, "epistemic", 1)
    for dials in ([normative, epistemic], [epistemic, normative]):  # whatever the order they are given in
        said, readings = run(model, rows, dials)
        declined = readings.gate["normative"] == 1
        assert declined.any()
        assert not declined.all()
        np.testing.assert_array_equal(readings.gate["epistemic"], np.where(declined, 0, 1))
        alone, _ = run(model, rows, [normative])
        for i in np.flatnonzero(declined):
            assert said[i] == alone[i]
        assert any(said[i] != alone[i] for i in np.flatnonzero(~declined))


def test_both_reads_come_before_both_writes(model, rows, dial) -> None:
    """The epistemic dial reads where the normative one writes, a coordinate that the write moves."""
    place = Locus("resid_post", 1, "post_last")
    reading = LinearProbe(dial().write.vector.astype(np.float64), 0.0, 0.1)
    normative = always(dial, "normative", 1)
    epistemic = dial("epistemic", read=place, probe=reading, calibration=Platt(1.0, 0.0))
    alone = run(model, rows, [epistemic])[1].probability["epistemic"]
    np.testing.assert_array_equal(run(model, rows, [normative, epistemic])[1].probability["epistemic"], alone)


def test_what_cannot_be_read_or_written_is_refused(model, rows, dial) -> None:
    absent = replace(dial().write, locus=Locus("resid_post", 9, "post_last"))
    short = Direction("w", np.eye(7, dtype=np.float32)[0], WRITE, 1.0, 0.0)
    left, right = model.batch(rows), model.batch(rows, "right")
    for dials, batch, of_batch, thresholds, said in (
        ([dial(read=Locus("resid_post", 0, "trigger_last"))], left, rows, {}, "at trigger_last, which prompt 1 lacks"),
        ([dial(read=Locus("resid_post", 3, "post_last"))], left, rows, {}, "reads must come before writes"),
        ([dial(write=absent)], left, rows, {}, "layer 9 does not exist: tiny has layers 0 to 3"),
        ([dial(write=short)], left, rows, {}, "the normative dial is for streams of 7 dimensions; tiny has 32"),
        ([dial(), dial()], left, rows, {}, "there are 2 normative dials: give one of each kind"),
        ([dial()], right, rows, {}, "pad the prompts on the left"),
        ([dial()], left, rows[:2], {}, "the batch holds 6 prompts, but 2 rendered ones were given"),
        ([dial()], left, rows, {"epistemic": 0.5}, "for the epistemic dial, but there is no epistemic dial"),
        ([dial()], left, rows, {"normative": [0.5, 0.5]}, "there are 2 normative thresholds for 6 prompts: give one"),
    ):
        with pytest.raises(UserError, match=said), steering(model, dials, batch, of_batch, thresholds):
            pass
