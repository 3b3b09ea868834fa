"""Comparing quick benchmarks with a recorded run: what is named worse, and what is not."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import bench
from benchmarks.bench import FIGURES, compare, measure
from tests.benchmarks.test_benchmarks import KEYS

THEN = {
    "extraction.tokens_per_s": [100.0, 101.0, 99.0],
    "extraction.ratio_vs_bare_forward": [3.0, 3.3, 2.7],
    "probe_grid.seconds_isotropic": [10.0, 10.1, 9.9],
    "store.ms_per_locus_128": [20.0, 20.0, 20.0],
}


@pytest.mark.parametrize(
    ("name", "now", "worse"),
    [
        ("extraction.tokens_per_s", [90.0, 91.0, 89.0], True),
        ("extraction.tokens_per_s", [110.0, 111.0, 109.0], False),
        ("extraction.tokens_per_s", [90.0, 110.0, 89.0], False),  # this run scatters by a tenth
        ("probe_grid.seconds_isotropic", [12.0, 12.1, 11.9], True),
        ("probe_grid.seconds_isotropic", [8.0, 8.1, 7.9], False),
        ("store.ms_per_locus_128", [22.0, 22.0, 22.0], True),
        ("store.ms_per_locus_128", [20.9, 20.9, 20.9], False),  # below the least change
        ("extraction.ratio_vs_bare_forward", [2.6, 2.9, 2.4], False),  # the recorded run scatters by a tenth
        ("extraction.ratio_vs_bare_forward", [2.0, 2.1, 1.9], True),
        ("extraction.other", [1.0], False),  # was not recorded
    ],
)
def test_a_change_beyond_the_noise_of_both_runs_is_worse_in_its_own_direction(
    name: str, now: list[float], worse: bool
) -> None:
    assert [one.name for one in compare({name: now}, THEN) if one.worse] == [name] * worse


def test_times_are_paired_with_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of half the speed gives the same figures; a ratio and a size are as measured."""
    speed = {"now": 1.0}
    monkeypatch.setattr(bench, "reference_seconds", lambda: 2.0 / speed["now"])
    monkeypatch.setattr(bench, "_quick", lambda name: {
        "tokens_per_s": 100 * speed["now"], "ratio_vs_bare_forward": 3.0, "memory_few_mb": 20.0})  # fmt: skip
    fast = measure(["extraction"], 2)
    speed["now"] = 0.5
    assert measure(["extraction"], 2) == fast
    assert fast["extraction.ratio_vs_bare_forward"] == [3.0, 3.0]
    assert fast["extraction.memory_few_mb"] == [20.0, 20.0]


def test_a_benchmark_that_cannot_run_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(FIGURES, "no_such", {"seconds": "time"})
    monkeypatch.setattr(bench, "reference_seconds", lambda: 1.0)
    assert measure(["no_such"], 2) == {}
    assert "no_such is left out: " in capsys.readouterr().err


def test_every_figure_is_one_of_its_benchmark() -> None:
    assert {
        f"{name}.{figure}" for name, figures in FIGURES.items() for figure in figures if figure not in KEYS[name]
    } == set()


@pytest.mark.slow
def test_a_run_is_recorded_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = tmp_path / "recorded.json"
    monkeypatch.setattr(bench, "reference_seconds", lambda: 1.0)
    command = ["bench", "store", "--times", "1", "--recorded", str(recorded)]
    monkeypatch.setattr(sys, "argv", [*command, "--record"])
    assert bench.main() == 0
    record = json.loads(recorded.read_text())
    assert set(record["figures"]) == {f"store.{figure}" for figure in FIGURES["store"]}
    record["figures"]["store.ms_per_locus_128"] = [1e-3]
    recorded.write_text(json.dumps(record))
    monkeypatch.setattr(sys, "argv", command)
    assert bench.main() == 1
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith("worse by more than the noise: ")
    assert "store.ms_per_locus_128" in said
