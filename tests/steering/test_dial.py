"""The three gates of a dial and what it writes for each; dials saved to a file and loaded are the same dials."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

from extract.errors import UserError
from probes.direction import Direction, Locus
from probes.grid.logistic import Platt
from steering.actuator import Addition, Clamp, OnsetBias
from steering.dial import CategoryThresholds, Dial, Threshold, check_order, decide
from steering.dial_file import load_dials, save_dials
from steering.direction_file import save_directions
from tests.support.one_line import mistake

VECTOR = np.eye(32, dtype=np.float32)[0]
LATER = Direction("write", VECTOR, Locus("resid_post", 1, "post_last"), 3.0, -1.0, {}, {2: (4.0, -2.0), 3: (5.5, -3.0)})


def test_probability_is_the_calibrated_score_of_the_probe(dial, streams) -> None:
    made = dial(calibration=Platt(2.0, -1.0))
    score = streams.astype(np.float64) @ made.probe.weight + made.probe.bias
    np.testing.assert_allclose(made.probability(streams), 1 / (1 + np.exp(-(2.0 * score - 1.0))), atol=1e-9)


@pytest.mark.parametrize(
    ("threshold", "band", "states"),
    [
        (0.5, 0.1, [-1, -1, 0, 0, 0, 1, 1, 0]),
        (0.5, 0.0, [-1, -1, -1, 1, 1, 1, 1, 0]),  # no dead band: never left alone
        (0.5, 0.6, [0, 0, 0, 0, 0, 0, 0, 0]),
        (0.0, 0.0, [1, 1, 1, 1, 1, 1, 1, 0]),
        (1.01, 0.0, [-1, -1, -1, -1, -1, -1, -1, 0]),
        (np.nan, 0.0, [0, 0, 0, 0, 0, 0, 0, 0]),  # off
    ],
)
def test_the_gate_declines_from_the_upper_edge_on_and_permits_below_the_lower(threshold, band, states) -> None:
    p = np.array([[0.0, 0.39, 0.4, 0.5, 0.59, 0.6, 1.0, np.nan]])  # what could not be read is left alone
    assert decide(p, threshold, band)[0].tolist() == states
    assert decide(torch.tensor(p), threshold, band)[0].tolist() == states


def test_where_the_first_gate_declines_the_second_leaves() -> None:
    p = np.array([[0.9, 0.5, 0.1, 0.9, 0.1], [0.9, 0.9, 0.9, 0.1, 0.1]])
    tau, band = np.array([[0.5], [0.6]]), np.array([[0.1], [0.0]])
    expected = [[1, 0, -1, 1, -1], [0, 1, 1, 0, -1]]
    assert decide(p, tau, band).tolist() == expected
    assert decide(*map(torch.tensor, (p, tau, band))).tolist() == expected


def test_a_threshold_is_that_of_the_request_before_the_categorys_before_the_dials_own(dial, read) -> None:
    made = dial(threshold=0.3, by_category=CategoryThresholds(read, {"one": 0.7, "": 0.9}))
    assert [made.resolved().of(name) for name in (None, "one", "two", "")] == [0.3, 0.7, 0.3, 0.3]
    assert [made.resolved(tau).of(name) for tau in (0.2, 0.0) for name in (None, "one")] == [0.2, 0.2, 0.0, 0.0]
    for off in ("off", np.nan):
        assert np.isnan([made.resolved(off).of(name) for name in (None, "one")]).all()
    assert made.resolved(made.resolved("off")) == Threshold(None)


def test_a_direction_that_points_to_answering_makes_no_dial(dial) -> None:
    write = dial().write
    for label in ("refuse", "harmful", True):
        assert dial(write=replace(write, provenance={"positive_class": label})).write.vector is write.vector
    for label in ("answer", "benign"):
        with pytest.raises(ValueError, match=f"points to '{label}'; a dial needs one that points to declining"):
            dial(write=replace(write, provenance={"positive_class": label}))


@pytest.mark.parametrize(
    ("read", "write", "circular"),
    [
        (("resid_post", 0), ("resid_post", 1), False),
        (("resid_post", 1), ("resid_post", 1), False),  # readers are called first
        (("resid_pre", 1), ("resid_pre", 1), False),
        (("resid_pre", 1), ("resid_post", 1), False),
        (("resid_post", 1), ("resid_pre", 2), False),
        (("resid_post", 2), ("resid_post", 1), True),
        (("resid_pre", 2), ("resid_post", 1), True),
        (("resid_mid", 1), ("resid_mid", 1), False),
        (("resid_mid", 1), ("resid_post", 1), False),
        (("resid_post", 1), ("resid_mid", 1), True),  # the stream between attention and MLP comes before the output
        (("resid_mid", 1), ("resid_pre", 1), True),
        (("resid_post", 1), ("resid_pre", 1), True),  # the block's input is written before its output is read
    ],
)
def test_a_read_after_a_write_is_refused(dial, read, write, circular) -> None:
    made = dial(read=Locus(*read, "post_last"), write=replace(dial().write, locus=Locus(*write, "post_last")))
    said = rf"a dial reads {read[0]} at layer {read[1]} but one writes {write[0]} at layer {write[1]}: reads must"
    with pytest.raises(UserError, match=said) if circular else nullcontext():
        check_order([made])


def test_one_dials_write_before_anothers_read_is_refused(dial) -> None:
    late = dial("epistemic", read=Locus("resid_post", 2, "post_last"),
                write=replace(dial().write, locus=Locus("resid_post", 3, "post_last")))  # fmt: skip
    check_order([late])
    check_order([dial()])
    check_order([])
    with pytest.raises(UserError, match="reads resid_post at layer 2 but one writes resid_post at layer 1"):
        check_order([dial(), late])


def test_dials_of_the_same_weights_in_another_dtype_are_used_with_a_remark(dial, tmp_path) -> None:
    path, said = tmp_path / "dials.safetensors", list[str]()
    save_dials([dial()], path, "wide", "cast")
    assert len(load_dials(path, "narrow", "cast", said.append)) == 1
    (remark,) = said
    assert "was made for these weights in another dtype" in remark
    load_dials(path, "wide", "cast", said.append)
    assert len(said) == 1
    with pytest.warns(UserWarning, match="in another dtype"):
        load_dials(path, "narrow", "cast")
    with pytest.raises(UserError, match=r"was made for other weights \(fingerprint wide…, this model narrow…\)"):
        load_dials(path, "narrow", "other")
    save_dials([dial()], path, "wide")
    with pytest.raises(UserError, match="was made for other weights"):
        load_dials(path, "narrow", None)


def test_dials_of_other_template_arguments_are_refused(dial, tmp_path) -> None:
    path = tmp_path / "dials.safetensors"

    def load(made: dict[str, object] | None, here: dict[str, object] | None) -> None:
        save_dials([dial()], path, "abc", template_args=made)
        assert len(load_dials(path, "abc", template_args=here)) == 1

    thinks, mute = {"enable_thinking": True}, {"enable_thinking": False, "effort": "low"}
    for made, here in (({}, {}), (thinks, dict(thinks)), (None, mute), (mute, None)):  # None: an earlier version's file
        load(made, here)
    on, both = "enable_thinking=true", 'enable_thinking=false, effort="low"'
    for made, here, there, now, how in (
        (thinks, mute, on, both, f"--template-arg {on}"),
        (thinks, {}, on, "defaults", f"--template-arg {on}"),
        ({}, thinks, "defaults", on, "without --template-arg"),
    ):
        assert mistake(load, made, here) == (
            f"{path} was made with the chat template's {there}, and this model is opened with {now}; "
            f"open it in the same way ({how})"
        )


@pytest.mark.parametrize(
    "changes",
    [
        {"threshold": 0.3, "band": 0.02, "calibration": Platt(0.7, -0.1)},
        {"actuator": Clamp(0.5), "steps": 4},
        {"actuator": Addition(2.0), "reread": True},
        {"actuator": Clamp(), "later": True, "write": LATER},
        {"actuator": OnsetBias(((3, 4), (5,)), 12.0), "write": None},
        {"actuator": OnsetBias(((3,),)), "write": None, "read": None, "probe": None, "calibration": None, "steps": 2},
    ],
)
def test_saved_dials_load_as_they_were(dial, streams, tmp_path, changes) -> None:
    path, made = tmp_path / "dials.safetensors", [dial("epistemic"), dial(**changes)]
    save_dials(made[:1], path, "abc")
    save_dials(made, path, "abc")  # in place of the former file
    loaded = load_dials(path, "abc")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert [d.kind for d in loaded] == ["normative", "epistemic"]
    for a, b in zip(made[::-1], loaded, strict=True):
        names = [field.name for field in fields(Dial) if field.name != "probe"]
        assert [getattr(a, name) for name in names] == [getattr(b, name) for name in names]
        assert (a.probe is None) == (b.probe is None)
        if a.probe is not None:
            np.testing.assert_array_equal(a.probability(streams), b.probability(streams))
    with safe_open(path, framework="numpy") as file:  # any reader of safetensors opens it
        assert {"epistemic.read", "epistemic.write"} <= set(file.keys())
        assert json.loads(file.metadata()["epistemic"])["threshold"] == 0.5


def rewritten(path: Path, change: Callable[[dict, dict], object]) -> None:
    with safe_open(path, framework="numpy") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(metadata, tensors)
    save_file(tensors, path, metadata=metadata)


def renamed(metadata: dict, tensors: dict) -> None:
    metadata["moral"] = metadata.pop("normative")
    tensors |= {name.replace("normative", "moral"): tensor for name, tensor in tensors.items()}


def with_actuator(actuator: object) -> Callable[[dict, dict], object]:
    return lambda metadata, _: metadata.update(
        normative=json.dumps(json.loads(metadata["normative"]) | {"actuator": actuator})
    )


BROKEN = {
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-10]),
    "empty": lambda path: path.write_bytes(b""),
    "no safetensors": lambda path: path.write_bytes(b"\xff" * 64),
    "directions": lambda path: save_directions([replace(LATER, name="normative")], path),
    **{
        f"record {text}": lambda path, text=text: rewritten(path, lambda m, _: m.update(normative=text))
        for text in ("{", "{}", "[]", '{"read": {"site": "resid_post"}}')
    },
    "tensor lost": lambda path: rewritten(path, lambda _, t: t.pop("normative.write")),
    "not a unit vector": lambda path: rewritten(path, lambda _, t: t.update({"normative.write": 2 * VECTOR})),
    "another kind": lambda path: rewritten(path, renamed),
    "no actuator": lambda path: rewritten(path, with_actuator({"name": "push"})),
    "a bare name": lambda path: rewritten(path, with_actuator("affine")),
}


@pytest.mark.parametrize("damage", BROKEN.values(), ids=BROKEN)
def test_what_is_no_file_of_dials_is_refused(dial, tmp_path, damage) -> None:
    path = tmp_path / "dials.safetensors"
    save_dials([dial()], path, "abc")
    damage(path)
    with pytest.raises(UserError) as caught:
        load_dials(path, "abc")
    assert str(caught.value).startswith(f"{path} is not a dials file: ")
    assert "\n" not in str(caught.value)
    assert ("it has no fingerprint" in str(caught.value)) == (damage is BROKEN["directions"])
