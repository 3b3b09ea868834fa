"""The speed of a model is recovered from its passes, kept in the cache, and measured again where anything differs."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from experiments.pipeline import machine as model_speed
from experiments.pipeline.cost import LONG_ANSWERS, Batches, Step, seconds
from experiments.pipeline.machine import Footprint, Machine, footprint, measure_model, measured_speed, with_speed
from experiments.pipeline.plan import model_shape
from experiments.run.config import RunConfig, load_config
from extract.model.edit import Edit, Pass
from extract.progress import Reporter
from extract.shipped import CACHE_VARIABLE
from tests.support.families import FAMILIES, shape_only

SHAPE = Footprint(parameters=10**8, width=4, n_layers=20, d_model=64, d_ff=256, d_kv=16, vocabulary=1000, head=10**6)
HERE = Machine("two cores", "measured now", 1e11, 1e10, 10**10, (1e-4, 6e-4), 4)


class Timed:
    """A stand-in: layers advance a clock by `a_token` a token and `a_pass` a pass, the rest of a step by `besides`."""

    device, n_layers = torch.device("cpu"), 4

    def __init__(self, a_token: float, a_pass: float, besides: float) -> None:
        self.costs, self.now, self.edits = (a_token, a_pass, besides), 0.0, ()

    def pad(self, rows: Sequence[Sequence[int]], side: str) -> SimpleNamespace:
        return SimpleNamespace(tokens=torch.tensor([list(row) for row in rows]))

    @contextmanager
    def editing(self, edits: Sequence[Edit]) -> Iterator[None]:
        self.edits = edits  # type: ignore[assignment]
        yield

    def generate(self, batch: SimpleNamespace, most: int, least: int) -> None:
        (a_token, a_pass, besides), (enter, leave) = self.costs, self.edits
        for n in (batch.tokens.numel(), *[len(batch.tokens)] * (most - 1)):
            enter.function(torch.zeros(1, 1, 1), Pass(0, 1, 1))
            self.now += n * a_token + a_pass
            leave.function(torch.zeros(1, 1, 1), Pass(0, 1, 1))
            self.now += besides


@pytest.mark.parametrize(("a_token", "a_pass", "besides"), [(2e-3, 0.05, 0.1), (1e-4, 0.0, 0.3), (1e-5, 0.3, 1e-4)])
def test_the_costs_of_all_layers_are_recovered_from_a_fifth_of_them(
    monkeypatch: pytest.MonkeyPatch, a_token: float, a_pass: float, besides: float
) -> None:
    model = Timed(a_token / 5, a_pass / 5, besides)
    monkeypatch.setattr(model_speed.time, "perf_counter", lambda: model.now)
    found = measure_model(model, 20, 16, 8)  # type: ignore[arg-type]
    assert found == pytest.approx((a_token, a_pass, besides), rel=1e-6, abs=1e-9)
    machine = with_speed(HERE, SHAPE, 16, found)
    batches = Batches(tokens=640, completions=16, prompt_tokens=40.0, max_new_tokens=24)
    whole = replace(LONG_ANSWERS, products=1.0)
    lasting = seconds([Step("say", completions=32)], SHAPE, machine, batches, whole)
    step = max(besides, 2 * SHAPE.head * 16 / machine.flops)
    assert lasting == pytest.approx(2 * (640 * a_token + a_pass + step + 24 * (16 * a_token + a_pass + step)), rel=1e-6)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(model_speed, "_load", lambda: 0.0)
    return load_config(Path("configs/quickstart.yaml"), ["generate.batch_size=4"])


def speed_here(config: RunConfig) -> Machine:
    shape, tokenizer = model_shape(config, Reporter(quiet=True))
    return measured_speed(config, shape, tokenizer, footprint(shape, 4), HERE, Reporter(quiet=True))


def test_a_speed_is_measured_once_for_a_shape_a_dtype_and_a_machine(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape, tokenizer = model_shape(config, Reporter(quiet=True))
    size, times = footprint(shape, 4), []
    monkeypatch.setattr(model_speed, "measure_model", lambda *given: times.append(given) or (1e-5, 1e-4, 1e-4))

    def speed(config: RunConfig = config, size: Footprint = size, machine: Machine = HERE) -> Machine:
        return measured_speed(config, shape, tokenizer, size, machine, Reporter(quiet=True))

    assert speed() == speed()
    assert len(times) == 1
    speed(config.model_copy(update={"model": config.model.model_copy(update={"dtype": "bfloat16"})}))
    assert len(times) == 2
    speed(machine=replace(HERE, name="three cores"))
    assert len(times) == 3
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        speed()
    finally:
        torch.set_num_threads(threads)
    assert len(times) == 4
    shape.hidden_size *= 2
    speed()
    assert len(times) == 5
    speed(), speed(machine=replace(HERE, name="three cores"))
    assert len(times) == 6  # the new shape on the other machine
    monkeypatch.setattr("importlib.metadata.version", lambda name: "another")
    speed()
    assert len(times) == 7


def test_what_a_busy_machine_reached_is_kept_until_it_is_quiet(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([(4e-5, 4e-4, 4e-4), (1e-5, 1e-4, 1e-4)])
    monkeypatch.setattr(model_speed, "measure_model", lambda *given: next(found))

    def flops(load: float) -> float:
        monkeypatch.setattr(model_speed, "_load", lambda: load)
        return speed_here(config).flops

    speeds = [flops(load) for load in (3.0, 3.0, 1.6, 0.5, 3.0, 0.0)]
    assert speeds == pytest.approx([speeds[0]] * 3 + [4 * speeds[0]] * 3)


def test_a_cache_that_cannot_be_written_measures_every_time(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file"))
    assert speed_here(config).of_model


@pytest.mark.parametrize("name", FAMILIES)
def test_the_first_layers_of_published_shapes_are_measured_without_weights(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    folder = shape_only(name, tmp_path)
    config = load_config(Path("configs/quickstart.yaml"), [f"model.name={folder}", "generate.batch_size=2"])
    shape, tokenizer = model_shape(config, Reporter(quiet=True))
    shape.hidden_size, shape.intermediate_size, shape.vocab_size = 64, 128, 2000  # the real ones take gigabytes
    small = replace(HERE, flops=1e6)  # so slow that two layers are all it can measure
    kept = []
    monkeypatch.setattr(model_speed, "measure_model", lambda model, *given: kept.append(model) or (1e-5, 1e-4, 1e-4))
    found = measured_speed(config, shape, tokenizer, footprint(shape, 4), small, Reporter(quiet=True))
    assert found.of_model
    assert kept[0].n_layers == model_speed.LEAST_LAYERS < shape.num_hidden_layers
    for weight in kept[0].model.parameters():
        assert 0 < weight.detach().abs().max() <= 0.02
        assert weight.ndim < 2 or len(weight.detach().unique(dim=0)) == len(weight)  # as of a mixture's router
    beginnings = [weight.detach().reshape(-1)[:8].tolist() for weight in kept[0].model.parameters()]
    assert all(a != b for a, b in itertools.pairwise(beginnings))
    monkeypatch.undo()
    assert all(second > 0 for second in measure_model(kept[0], shape.num_hidden_layers, 2, 4)[::2])


def test_a_shape_that_cannot_be_measured_leaves_the_rough_estimate(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("no such layer")

    monkeypatch.setattr(model_speed, "measure_model", broken)
    assert speed_here(config) is HERE
