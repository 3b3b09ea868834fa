"""The preset of low over-refusal: the setting with the fewest other mistakes, also where a rate is not known."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from experiments.dials.surface import RISKS
from experiments.report.page.payload import LOW_OVER_REFUSAL, _presets
from experiments.report.results import RunResults
from experiments.run.config import load_config
from experiments.run.inputs import RunInputs


def test_the_preset_makes_the_fewest_mistakes_without_known_answers(small_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(small_run, tmp_path / "run"))
    surface = pyarrow.parquet.read_table(run / "surface.parquet")
    n = surface.num_rows
    rates = {name: np.full(n, 0.9) for name in RISKS} | {"over_refusal": np.zeros(n), "facts_lost": np.full(n, np.nan)}
    rates = {name: values.copy() for name, values in rates.items()}
    best = n // 2
    for name in set(RISKS) - {"facts_lost"}:
        rates[name][best] = 0.0
    rates["over_refusal"][best + 1 :] = np.nan  # unknown is not low
    rates["missed_harm"][best - 1] = np.nan  # nor is an unknown rate of one setting no mistake
    for name, values in rates.items():
        at = surface.schema.get_field_index(f"choice_{name}")
        surface = surface.set_column(at, f"choice_{name}", pyarrow.array(values))
    pyarrow.parquet.write_table(surface, run / "surface.parquet")
    inputs = RunInputs(load_config(run / "config.yaml"), run)
    presets = {one["name"]: one["thresholds"] for one in _presets(inputs, RunResults.read(run / "results.json"))}
    row = surface.slice(best, 1).to_pylist()[0]
    found = presets[f"over_refusal ≤ {LOW_OVER_REFUSAL:.0%}"]
    assert found == {kind: row[f"{kind}_threshold"] for kind in found}
