"""Dials work with every way of decoding: cache or none, beams, samples, histories, early ends, streaming."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from extract.chat.render import Rendered
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.continuation import cache_prompts, continued_log_probs
from extract.model.edit import Edit
from extract.model.loading import load_model
from extract.model.streaming import stream
from probes.direction import Direction, Locus
from probes.grid.logistic import LinearProbe, Platt
from steering.actuator import Addition, Affine, Clamp, OnsetBias
from steering.controller import steering
from steering.dial import Dial
from tests.steering.conftest import D_MODEL, READ, WRITE, run, unit
from tests.support.covering import matrix
from tests.support.planted_dials import ORGANISM
from tests.support.tiny_model import TEXTS, each, last_streams, rendered

Make = Callable[..., Dial]
STEPS = 8
SMALL = {"hidden_size": D_MODEL, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256, "initializer_range": 0.2}  # fmt: skip
ARCHITECTURES = {
    "llama": SMALL,
    "qwen3": SMALL,
    "gemma2": SMALL | {"sliding_window": 6},
    "gpt2": {"n_embd": D_MODEL, "n_layer": 4, "n_head": 4, "n_positions": 256, "initializer_range": 0.2},
    "gpt_neox": {k: v for k, v in SMALL.items() if k not in ("num_key_value_heads", "head_dim")},
}  # fmt: skip
ACTUATORS = {"affine": Affine(), "addition": Addition(0.5), "clamp": Clamp(), "onset": OnsetBias(((3,), (5, 6)), 9.0)}
WAYS = [pytest.param({"actuator": actuator}, id=name) for name, actuator in ACTUATORS.items()]
WAYS += [
    pytest.param({"steps": 1}, id="prefill only"),
    pytest.param({"steps": 3}, id="until the onset is past"),
    pytest.param({"reread": True}, id="reread"),
    pytest.param({"reread": True, "steps": 4, "actuator": Addition(0.5)}, id="reread, some steps"),
]
QUICK = ("affine", "onset", "reread, some steps")
FEW_WAYS = [pytest.param(*way.values, id=way.id, marks=() if way.id in QUICK else pytest.mark.slow) for way in WAYS]
QUESTIONS = ("how do i fix the engine at home?", "tell me how to strike the process beside my sister.",
             "who is anna novak, and where does she live?", "please fix it for my sister.")  # fmt: skip


def chat_model(architecture: str) -> ChatModel:
    tokenizer = AutoTokenizer.from_pretrained(ORGANISM, padding_side="left")
    torch.manual_seed(1)
    ids = {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": tokenizer.bos_token_id,
           "eos_token_id": tokenizer.eos_token_id}  # fmt: skip
    config = AutoConfig.for_model(architecture, vocab_size=len(tokenizer), **ids, **ARCHITECTURES[architecture])
    return ChatModel(AutoModelForCausalLM.from_config(config).float(), tokenizer, architecture)


def dials_for(model: ChatModel, rows: list[Rendered], **changes: object) -> list[Dial]:
    """Make two dials whose probabilities lie on both sides of one half among the rows."""
    streams, made = last_streams(model, rows, READ.layer), []
    for seed, kind in ((1, "normative"), (2, "epistemic")):
        weight = unit(seed).astype(np.float64)
        score = streams @ weight
        probe = LinearProbe(weight, -float(np.median(score)), 0.1)
        size = float(np.linalg.norm(streams, axis=1).mean())
        bias = isinstance(changes.get("actuator"), OnsetBias)
        write = None if bias else Direction(f"{kind} write", unit(seed + 10), WRITE, size, -size)
        calibration = Platt(3.0 / float(score.std()), 0.0)
        made.append(Dial(kind, READ, probe, calibration, 0.5, 0.05, write, **changes))
    return made


@pytest.fixture(scope="module", params=list(ARCHITECTURES))
def other(request) -> tuple[ChatModel, list[Rendered]]:
    model = chat_model(request.param)
    return model, rendered(model, TEXTS)


@matrix("other, way", ARCHITECTURES, WAYS, indirect=["other"])
def test_with_and_without_the_cache_in_a_batch_and_alone_the_same_is_said(other, way) -> None:
    model, rows = other
    dials = dials_for(model, rows, **way)
    together, readings = run(model, rows, dials)
    assert set(readings.gate["normative"]) >= {-1, 1}
    assert together != run(model, rows, [])[0]  # control: the dials do something
    uncached, again = run(model, rows, dials, use_cache=False)
    assert uncached == together
    for kind in ("normative", "epistemic"):
        np.testing.assert_array_equal(again.gate[kind], readings.gate[kind])
    for i in (0, 1, 4):
        alone, own = run(model, [rows[i]], dials)
        assert alone == [together[i]]
        assert own.gate["normative"][0] == readings.gate["normative"][i]


@pytest.mark.parametrize("way", FEW_WAYS)
def test_beams_of_a_mixed_batch_are_those_of_its_rows(model, rows, way) -> None:
    dials = dials_for(model, rows, **way)
    together, readings = run(model, rows, dials, num_beams=3)
    assert len(together) == len(rows)
    assert set(readings.gate["normative"]) >= {-1, 1}
    assert together != run(model, rows, [], num_beams=3)[0]
    assert together != run(model, rows, dials)[0]  # control: more than one beam is another search
    assert run(model, rows, dials, num_beams=3, use_cache=False)[0] == together
    for i, row in enumerate(rows):
        assert run(model, [row], dials, num_beams=3)[0] == [together[i]]


@pytest.mark.parametrize("way", FEW_WAYS)
def test_samples_follow_from_the_seed_and_neutral_rows_are_the_plain_ones(model, rows, way) -> None:
    dials, batch, seeds = dials_for(model, rows, **way), model.batch(rows), list(range(len(rows)))
    plain = [one.token_ids for one in model.sample(batch, STEPS, seeds)]

    def sampled(thresholds: dict | None = None) -> list[tuple[int, ...]]:
        with steering(model, dials, batch, rows, thresholds):
            return [one.token_ids for one in model.sample(batch, STEPS, seeds)]

    first = sampled()
    assert first == sampled()
    assert first != plain
    assert sampled({"normative": math.nan, "epistemic": math.nan}) == plain
    with steering(model, dials, model.batch(rows[2:3]), rows[2:3]):
        assert [one.token_ids for one in model.sample(model.batch(rows[2:3]), STEPS, [2])] == [first[2]]


def test_each_row_has_its_own_thresholds(model, rows, dial) -> None:
    dials = [dial("normative"), dial("epistemic")]
    normative, epistemic = [0.0, 1.0, None, 0.9, 0.1, math.nan], [0.5, 0.0, 1.0, None, math.nan, 0.0]
    together, readings = run(model, rows, dials, {"normative": normative, "epistemic": epistemic})
    assert readings.threshold["normative"][:2].tolist() == [0.0, 1.0]
    assert readings.threshold["normative"][2] == dials[0].threshold
    assert readings.gate["normative"][[0, 1, 5]].tolist() == [1, -1, 0]
    for i, (row, n, e) in enumerate(zip(rows, normative, epistemic, strict=True)):
        alone, own = run(model, [row], dials, {"normative": [n], "epistemic": [e]})
        assert alone == [together[i]]
        assert own.gate["epistemic"][0] == readings.gate["epistemic"][i]


@pytest.mark.parametrize("way", WAYS)
def test_rows_left_alone_are_bitwise_the_plain_model(model, rows, way) -> None:
    dials, batch = dials_for(model, rows, **way), model.batch(rows)
    apart = {kind: [math.nan, 0.0, math.nan, 1.0, math.nan, math.nan] for kind in ("normative", "epistemic")}
    kept: dict[str, list[Tensor]] = {"plain": [], "under": []}

    def logits(name: str) -> list[list[int]]:
        look = Edit("resid_post", 3, lambda s, _: kept[name].append(s.clone()) or s)
        with model.editing([look]):
            return model.generate(batch, STEPS, STEPS)

    plain = logits("plain")
    with steering(model, dials, batch, rows, apart):
        under = logits("under")
    for i in range(len(rows)):
        assert (under[i] == plain[i]) or i in (1, 3)
        same = all(torch.equal(a[i], b[i]) for a, b in zip(kept["plain"], kept["under"], strict=True))
        assert same or i in (1, 3)
    assert under != plain  # control


def test_prompts_that_are_not_run_whole_cannot_be_read(model, rows, dial) -> None:
    batch = model.batch(rows)
    remembered = cache_prompts(model, batch)
    early = dial(read=Locus("resid_post", 0, "inst_mean"))
    with (
        pytest.raises(UserError, match="the dials read whole prompts, and these were not run from their beginning"),
        steering(model, [early], batch, rows),
    ):
        continued_log_probs(model, remembered, each(remembered, [3]))
    made = dial(threshold=-1.0)
    with steering(model, [made], batch, rows), torch.inference_mode():
        found, whole = continued_log_probs(model, remembered, each(remembered, []))[:, 0], model.logits(batch)[:, -1]
    torch.testing.assert_close(found, whole.log_softmax(dim=-1), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(("steps", "written"), [(1, [0]), (3, [0, 1, 2]), (None, list(range(STEPS)))])
@pytest.mark.parametrize("use_cache", [True, False])
def test_it_writes_at_so_many_steps(model, rows, dial, steps, written, use_cache) -> None:
    made, batch = dial(threshold=-1.0, steps=steps), model.batch(rows)
    r, goal = torch.tensor(made.write.vector), made.write.mean_positive
    seen: list[Tensor] = []
    look = Edit("resid_post", made.write.locus.layer, lambda s, _: seen.append(s.clone()) or s)
    with steering(model, [made], batch, rows), model.editing([look]):
        model.generate(batch, STEPS, STEPS, use_cache=use_cache)
    whole = torch.cat(seen, dim=1) if use_cache else seen[-1]  # every token's stream: prompts, then what was said
    at_goal = ((whole @ r - goal).abs() < 1e-3).all(dim=0)
    assert (at_goal.nonzero()[:, 0] - (batch.prompt_length - 1)).tolist() == written


def test_reading_again_is_reading_what_was_said_so_far(model, rows) -> None:
    dials = dials_for(model, rows, reread=True)
    said, readings = run(model, rows, dials)
    assert len(readings.later_probability["normative"]) == STEPS - 1  # the last token is never run
    gates = np.stack(readings.later_gate["normative"])
    assert len({tuple(gate) for gate in gates.T}) > 1
    assert (gates != readings.gate["normative"]).any()  # control: some gates change while talking
    assert not (np.stack(readings.later_gate["epistemic"])[gates > 0]).any()
    for i, row in enumerate(rows):
        kept: list[Tensor] = []
        whole = model.pad([[*row.token_ids, *said[i][:-1]]], "left")
        model.capture(whole, "resid_post", [READ.layer], lambda _, s: kept.append(s[0].clone()))  # noqa: B023
        later = kept[0][len(row.token_ids) :].numpy()
        for made in dials:
            found = np.array([p[i] for p in readings.later_probability[made.kind]])
            np.testing.assert_allclose(found, made.probability(later), atol=1e-4)
    uncached = run(model, rows, dials, use_cache=False)[1]
    assert len(uncached.later_gate["epistemic"]) == STEPS - 1
    np.testing.assert_array_equal(np.stack(uncached.later_gate["normative"]), gates)


def test_dials_may_be_read_again_one_without_the_other(model, rows) -> None:
    normative, epistemic = dials_for(model, rows)
    again = dials_for(model, rows, reread=True)
    for dials in ([again[0], epistemic], [normative, again[1]]):
        taus = {"normative": [0.4, 0.6, 0.5, 0.5, 0.2, 0.8], "epistemic": [0.5, 0.1, 0.9, 0.3, 0.5, 0.7]}
        for beams in (1, 3):
            together, _ = run(model, rows, dials, taus, num_beams=beams)
            assert together == run(model, rows, dials, taus, use_cache=False, num_beams=beams)[0]
            for i in range(len(rows)):
                own = {kind: [values[i]] for kind, values in taus.items()}
                assert run(model, rows[i : i + 1], dials, own, num_beams=beams)[0] == [together[i]]


def test_a_block_may_decode_twice(model, rows) -> None:
    for way in ({}, {"reread": True}):
        dials, batch = dials_for(model, rows, **way), model.batch(rows)
        with steering(model, dials, batch, rows):
            first = model.generate(batch, STEPS, STEPS)
            assert model.generate(batch, STEPS, STEPS, use_cache=False) == first
            beams = model.generate(batch, STEPS, STEPS, num_beams=2)
            assert model.generate(batch, STEPS, STEPS) == first
        assert beams == run(model, rows, dials, num_beams=2)[0]


@pytest.mark.parametrize("way", [{}, {"reread": True}, {"steps": 2}])
def test_rows_that_end_early_are_as_alone(two_knobs, talk, planted, way) -> None:
    dials, rows = [planted("normative", **way), planted("epistemic", **way)], talk(*QUESTIONS)
    thresholds = {"normative": [1.0, 0.0, None, None], "epistemic": [0.0, None, 1.0, None]}
    batch = two_knobs.batch(rows)
    with steering(two_knobs, dials, batch, rows, thresholds):
        together = two_knobs.generate(batch, 32)
    assert len({len(response) for response in together}) > 1  # control: they end at different steps
    for i, row in enumerate(rows):
        own = {kind: [values[i]] for kind, values in thresholds.items()}
        with steering(two_knobs, dials, two_knobs.batch([row]), [row], own):
            assert two_knobs.generate(two_knobs.batch([row]), 32) == [together[i]]


@matrix("backend, way", ["nnsight", "transformer_lens"], [{}, {"reread": True, "steps": 4}])
def test_every_backend_says_the_same_under_dials(two_knobs, talk, planted, backend, way) -> None:
    other = load_model(str(ORGANISM), backend=backend)
    assert other.fingerprint() == two_knobs.fingerprint()  # so that one file of dials fits both
    dials, rows = [planted("normative", **way), planted("epistemic", **way)], talk(*QUESTIONS)
    thresholds = {"normative": [0.0, 1.0, None, math.nan], "epistemic": [None, None, 1.0, 0.0]}
    said = []
    for model in (two_knobs, other):
        with steering(model, dials, model.batch(rows), rows, thresholds):
            whole = [model.generate(model.batch(rows), 16, **how) for how in ({}, {"num_beams": 2})]
        with steering(model, dials, model.batch(rows[:1]), rows[:1], {"normative": 0.0}):
            said.append((whole, list(stream(model, model.batch(rows[:1]), 16))))
    assert said[0] == said[1]


@pytest.mark.parametrize("actuator", ACTUATORS.values(), ids=ACTUATORS)
def test_the_model_is_as_before_after_a_watcher_failed(model, rows, actuator) -> None:
    dials, batch = dials_for(model, rows, actuator=actuator), model.batch(rows)
    before = {name: value.clone() for name, value in model.model.state_dict().items()}
    own, plain = model.model.generation_config, model.generate(batch, STEPS, STEPS)

    def fail(tokens: list[int]) -> None:
        raise RuntimeError("the connection was lost")

    with pytest.raises(RuntimeError, match="the connection was lost"), steering(model, dials, batch, rows):
        model.generate(batch, STEPS, STEPS, watch=fail)
    assert model.edits == ()
    assert model.processors == ()
    assert model.model.generation_config is own
    assert all(torch.equal(value, before[name]) for name, value in model.model.state_dict().items())
    assert sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.model.modules()) == 0
    assert model.generate(batch, STEPS, STEPS) == plain
