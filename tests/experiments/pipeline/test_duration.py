"""The estimated time and memory of a run, against values worked out by hand."""

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from experiments.pipeline.cost import FAST, SLOW, Batches, RunSize, Step, minutes, steps, tokens
from experiments.pipeline.machine import Footprint, Machine, measure_device
from experiments.pipeline.plan import describe_fit, estimate
from experiments.run.config import load_config
from extract.capture_spec import THOUGHT
from extract.errors import UserError
from extract.progress import Reporter
from extract.shipped import ROOT
from tests.support.families import FAMILIES, shape_only

MODEL = Footprint(parameters=10**9, width=2, n_layers=10, d_model=1000, d_ff=4000, d_kv=200, vocabulary=30000)
MACHINE = Machine("m", "by hand", 1e14, 1e12, 10**10, (0.0, 0.0), 2)
BATCHES = Batches(tokens=16384, completions=50, prompt_tokens=20.0, max_new_tokens=100)


def test_reading_prompts_is_bound_by_products() -> None:
    low, high = minutes([Step("read", 100_000, 100.0)], MODEL, MACHINE, BATCHES)
    products = 2 * 1e9 * 1e7 / 1e14 / 60
    assert low == pytest.approx(products / FAST.products)
    assert products / SLOW.products < high < 1.2 * products / SLOW.products


def test_what_a_cpu_does_takes_as_long_whatever_the_model_runs_on() -> None:
    for flops in (1e11, 1e14):
        assert minutes([Step("fits", lasting=90.0)], MODEL, replace(MACHINE, flops=flops), BATCHES) == (1.5, 1.5)


def test_decoding_is_bound_by_reading_the_weights_once_a_step_and_batch() -> None:
    low, high = minutes([Step("say", completions=100)], MODEL, MACHINE, BATCHES)
    cached = 50 * (20 + 25) * 2 * 10 * 200 * 2  # completions, tokens seen on average, keys and values of all layers
    step = (2e9 + cached) / (FAST.reading * 1e12)
    prefill = max(2e9 / (FAST.reading * 1e12), 2e9 * 50 * 20 / (FAST.products * 1e14))
    assert low == pytest.approx(2 * (50 * step + prefill) / 60)
    assert high > 3 * low


def test_small_models_wait_for_their_layers_to_start() -> None:
    small = replace(MODEL, parameters=10**5)
    waiting = replace(MACHINE, launch=(1e-3, 2e-3))
    low, _ = minutes([Step("say", completions=50)], small, waiting, BATCHES)
    assert low == pytest.approx(51 * 10 * 1e-3 / 60)


def test_a_large_vocabulary_leaves_fewer_rows_in_a_pass() -> None:
    step = [Step("onsets", 100_000, 6.0, distributions=6)]
    waiting = replace(MACHINE, launch=(1e-2, 1e-2))
    few, many = (minutes(step, replace(MODEL, vocabulary=v), waiting, BATCHES)[0] for v in (2000, 256_000))
    assert many > 10 * few
    repeated = minutes([replace(step[0], repeats=4)], MODEL, MACHINE, BATCHES)
    once = minutes(step, MODEL, MACHINE, BATCHES)
    assert repeated == pytest.approx((once[0], 4 * once[1]))


def test_candidates_chosen_by_first_order_effects_shorten_the_low_end_alone() -> None:
    step = Step("null", 160_000, 6.0, distributions=6)
    all_of_them, an_eighth = (minutes([replace(step, least_passes=n)], MODEL, MACHINE, BATCHES) for n in (None, 20_000))
    assert an_eighth == pytest.approx((all_of_them[0] / 8, all_of_them[1]))


def test_a_batch_that_is_not_full_costs_what_it_holds() -> None:
    """Each setting answers the prompts in batches of its own."""
    products = replace(MACHINE, bandwidth=inf)  # nothing is waited for, so time is work

    def lasting(completions: int, settings: int = 1) -> float:
        return minutes([Step("say", completions=completions, settings=settings)], MODEL, products, BATCHES)[0]

    assert lasting(51) == pytest.approx(lasting(50) * 51 / 50)
    waiting = replace(products, launch=(1.0, 1.0))
    one, six = (minutes([Step("say", completions=60, settings=n)], MODEL, waiting, BATCHES)[1] for n in (1, 6))
    assert six > 2.9 * one  # six batches of ten instead of two


def test_once_there_are_answers_others_are_taken_to_be_as_long() -> None:
    """The last of a batch goes on to the limit: each of 100 passes reads the weights, of fewer and fewer rows."""
    measured = replace(BATCHES, lengths=(10.0, 60.0))
    products = replace(MACHINE, bandwidth=inf)
    say, prefill = Step("say", completions=50), 2e9 * 50 * 20 / 1e14
    low, high = (60 * end for end in minutes([say], MODEL, products, measured))
    assert low == pytest.approx((2e9 * 50 * 35 / 1e14 + prefill) / FAST.products)
    assert high == pytest.approx((2e9 * 50 * 60 / 1e14 + prefill) / SLOW.products)
    half = replace(say, declining=0.5)
    assert 60 * minutes([half], MODEL, products, measured)[1] == pytest.approx(low * FAST.products / SLOW.products)
    reading = replace(MACHINE, flops=inf)
    alive = 50 * 0.6 * (20 + 100 / 2) * 2 * 10 * 200 * 2  # rows, tokens seen on average, keys and values of all layers
    passes = (2e9 + 100 * (2e9 + alive)) / (SLOW.reading * 1e12)
    assert 60 * minutes([say], MODEL, reading, measured)[1] == pytest.approx(passes)


@pytest.mark.parametrize("config", ["quickstart", "chat-model"])
@pytest.mark.parametrize("kinds", [0, 1, 2])
def test_of_a_measured_model_the_range_is_at_most_a_factor_of_two(config: str, kinds: int) -> None:
    size = RunSize(1840, 48.0, 1840, 500, 120, 48.0, 24, 1, 200, 40, 900, 200, 50, kinds)
    machine = replace(MACHINE, bandwidth=inf, launch=(1e-3, 1e-3), of_model=True)
    for step in steps(load_config(ROOT / f"configs/{config}.yaml", ["dissociate.rank=auto"]), size, "report"):
        low, high = minutes([step], MODEL, machine, BATCHES)
        assert low <= high <= 2 * low, step


def test_a_model_that_declines_in_fewer_ways_takes_less() -> None:
    config, size = load_config(ROOT / "configs/quickstart.yaml"), RunSize(1840, 48.0, 1840, 500, 120, 48.0, 24, 1)
    cost = [tokens(steps(config, replace(size, kinds=kinds), "report"), size, 24) for kinds in (0, 1, 2)]
    assert 2 * cost[0] < cost[1] < 0.7 * cost[2]  # a dial says an answer of the user where the model never declines


def test_a_run_that_does_not_fit_is_reported_with_a_remedy() -> None:
    weights, cache, work = MODEL.memory(50, 120, 16384)
    assert (weights, cache) == (2 * 10**9, 50 * 120 * 8000)
    assert describe_fit(MODEL, 50, 120, 16384, 10**10).startswith("fits: about 2.6 GB of 10.0 GB")
    tight = weights + work + 20 * 120 * 8000
    assert describe_fit(MODEL, 50, 120, 16384, tight).endswith("generate.batch_size=20 fits")
    assert "the weights alone take 2.0 GB of 1.0 GB" in describe_fit(MODEL, 50, 120, 16384, 10**9)


def test_this_machine_is_measured() -> None:
    found = measure_device("cpu")
    assert 1e8 < found.flops < 1e14
    assert 1e7 < found.bandwidth < 1e13
    assert found.memory > 10**9
    assert "measured now" in found.described()
    with pytest.raises(UserError, match=r"model\.device 'cuda:77' cannot be used here"):
        measure_device("cuda:77")


@pytest.mark.parametrize("name", FAMILIES)
def test_the_dry_run_of_the_published_shapes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters as published; memory and disk as worked out by hand from the shape."""
    monkeypatch.setattr("experiments.pipeline.plan.measure_device", lambda device: MACHINE)
    monkeypatch.setattr("experiments.pipeline.plan.measured_speed", lambda *_, **__: MACHINE)  # else it takes gigabytes
    lines = (ROOT / "organisms/zoo/two-knobs/prompts.jsonl").read_text().splitlines()
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines[::20]) + "\n")
    given = (f"model.name={shape_only(name, tmp_path)}", f"prompts.path={tmp_path / 'prompts.jsonl'}")
    config = load_config(Path(f"configs/models/{name}.yaml"), given)
    record, shape = estimate(config, "report", Reporter(quiet=True)).record(tmp_path / "run"), FAMILIES[name].shape
    assert record["parameters"] == pytest.approx(FAMILIES[name].billions * 1e9, rel=0.02)
    a_position = 2 * shape["num_hidden_layers"] * shape["hidden_size"] * record["prompts"]
    n_positions, rest = divmod(record["activations on disk, bytes"], a_position)
    assert rest == 0
    if config.extract.positions is not None:
        assert n_positions == len(config.extract.positions) + len(THOUGHT) * bool(config.extract.thought_tokens)
    elif name == "mistral-7b-instruct":  # inst_last, the template's token, inst_mean, trigger_last
        assert n_positions == 4
    else:  # the stand-in tokenizer writes `assistant` and `model` in several tokens
        assert n_positions >= 8
    there = record["here"]
    assert there["weights, bytes"] == 2 * record["parameters"]
    low, high = there["minutes"]
    assert 0 < low < high
    (cache,) = [value for key, value in there.items() if key.startswith("keys and values")]
    a_token = 2 * 2 * shape["num_hidden_layers"] * shape["num_key_value_heads"] * shape["head_dim"]
    assert cache % (a_token * config.generate.batch_size) == 0
    assert cache >= a_token * config.generate.batch_size * config.generate.max_new_tokens
    assert "on a GPU" not in record  # this machine stands for one
