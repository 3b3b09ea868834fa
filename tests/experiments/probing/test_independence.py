"""Representational independence: planted orthogonal directions are independent; a direction and itself are not."""

import json

import numpy as np
import pytest
import torch
from torch import Tensor

from experiments.probing.geometry import independence, stream_changes
from experiments.probing.results import StreamChange
from experiments.responses.batched_edits import RepeatedPrompts
from extract.chat.render import Rendered, render
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit
from extract.model.loading import load_model
from extract.prompts.prompt import load_prompts
from extract.shipped import ROOT
from probes.direction import Direction, Locus
from steering.ablation import ablation
from steering.interventions import place

ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"


def direction(vector: np.ndarray, layer: int, gap: tuple[float, float] = (6.0, -6.0), name: str = "d") -> Direction:
    unit = (vector / np.linalg.norm(vector)).astype(np.float32)
    return Direction(name, unit, Locus("resid_post", layer, "post_last"), *gap)


def basis(i: int) -> np.ndarray:
    return np.eye(32)[i]


# -- a tiny model ------------------------------------------------------------------------------------------------------


def test_changes_are_what_plain_passes_give(tiny: ChatModel, tiny_rows: list[Rendered]) -> None:
    ablated, watched = direction(np.arange(32) - 9.0, 1), direction(np.arange(32) ** 0.5, 2, (3.0, 1.0))
    prompts, trials = RepeatedPrompts(tiny, tiny_rows), [[], ablation(ablated)]
    found = stream_changes(tiny, prompts, trials, [ablated, watched], [1, 2, 3])
    assert found["cosine"].shape == found["projection"].shape == (2, 2, 3, len(tiny_rows))
    assert found["cosine"][:, 0].max() < 1e-6  # nothing was edited; the pass beside an edited one may round otherwise
    changes = {measure: change[1] for measure, change in found.items()}
    for i, row in enumerate(tiny_rows):
        before, after = (_streams(tiny, row, edits) for edits in ([], ablation(ablated)))
        for layer in (1, 2, 3):
            moved = (after[layer] - before[layer]) @ watched.vector / 2
            assert changes["projection"][1, layer - 1, i] == pytest.approx(abs(moved), abs=1e-5)
            cosines = [s[layer] @ watched.vector / np.linalg.norm(s[layer]) for s in (before, after)]
            assert changes["cosine"][1, layer - 1, i] == pytest.approx(abs(cosines[1] - cosines[0]), abs=1e-5)


def _streams(model: ChatModel, row: Rendered, edits: list[Edit]) -> dict[int, np.ndarray]:
    found: dict[int, np.ndarray] = {}
    with model.editing(edits):
        model.capture(model.batch([row]), "resid_post", [1, 2, 3],
                      lambda layer, stream: found.update({layer: stream[0, -1].double().numpy()}))  # fmt: skip
    return found


def test_a_direction_depends_on_itself_entirely(tiny: ChatModel, tiny_rows: list[Rendered]) -> None:
    prompts, groups = RepeatedPrompts(tiny, tiny_rows), np.arange(len(tiny_rows))
    one, same, other = direction(basis(0), 1), direction(basis(0), 1), direction(basis(1), 1)
    null = [direction(np.random.default_rng(i).standard_normal(32), 1, (1.0, 0.0)) for i in range(39)]
    dependent = independence(tiny, prompts, groups, one, same, null).projection
    control = independence(tiny, prompts, groups, other, one, null).projection
    assert dependent.share == pytest.approx(1.0, abs=1e-5)
    assert dependent.by_layer[0].p_null == 1 / 40
    assert control.by_layer[0].change.estimate < 1e-6  # orthogonal: where it is ablated the other stays
    assert control.share < 0.9


def test_orthogonal_directions_are_dependent_where_a_later_layer_computes_one_from_the_other(
    tiny: ChatModel, tiny_rows: list[Rendered]
) -> None:
    source, target = direction(basis(0), 1), direction(basis(1), 2)

    def copied(stream: Tensor) -> Tensor:
        return torch.cat([stream[..., :1], stream[..., 1:2] + 3 * stream[..., :1], stream[..., 2:]], dim=-1)

    def found(edits: list[Edit]) -> StreamChange:
        with tiny.editing(edits):
            return independence(tiny, RepeatedPrompts(tiny, tiny_rows), np.arange(5), source, target, []).projection

    wired, plain = found([place("resid_post", 2, "all", copied)]), found([])
    assert [layer.layer for layer in wired.by_layer] == [1, 2, 3]
    assert wired.by_layer[0].change.estimate < 1e-6  # at layer 1 nothing is computed yet
    assert wired.by_layer[1].change.estimate > 1.0
    assert wired.share > 3 * plain.share
    assert wired.p_null is wired.null_95th_percentile is None


def test_layers_before_the_ablated_one_are_left_out(tiny: ChatModel, tiny_rows: list[Rendered]) -> None:
    low, high = direction(basis(0), 0), direction(basis(0), 3)
    record = independence(tiny, RepeatedPrompts(tiny, tiny_rows), np.arange(5), high, low, []).cosine
    assert [layer.layer for layer in record.by_layer] == [3]
    assert record.change.estimate == record.by_layer[0].change.estimate > 0


# -- the organism, whose two directions are planted orthogonal ---------------------------------------------------------


@pytest.fixture(scope="module")
def organism() -> tuple[ChatModel, RepeatedPrompts, np.ndarray]:
    model = load_model(str(ORGANISM), device="cpu")
    prompts = load_prompts(ORGANISM / "prompts.jsonl")
    chosen = [p for label in ("harmful", "benign", "uncertain")
              for p in [p for p in prompts if p.label == label][:16]]  # fmt: skip
    return model, RepeatedPrompts(model, [render(model.tokenizer, p) for p in chosen]), np.arange(len(chosen))


def planted(name: str) -> Direction:
    truth = json.loads((ORGANISM / "truth.json").read_text())
    (found,) = [v for v in truth["variables"] if v["name"] == name]
    return direction(np.array(found["direction"]), truth["layer"], (found["mean_on"], found["mean_off"]), name)


def test_planted_directions_are_independent_and_half_of_one_is_not(
    organism: tuple[ChatModel, RepeatedPrompts, np.ndarray],
) -> None:
    normative, epistemic = planted("normative"), planted("epistemic")
    oblique = direction(normative.vector + epistemic.vector, 4, (epistemic.mean_positive, epistemic.mean_negative))
    for one, other in ((normative, epistemic), (epistemic, normative)):
        apart = independence(*organism, one, other, []).projection
        assert apart.by_layer[0].change.estimate < 1e-3
        assert apart.share < 0.3
    leaning = independence(*organism, normative, oblique, []).projection  # the control
    assert leaning.by_layer[0].change.estimate > 0.1
    assert leaning.share > 0.6
