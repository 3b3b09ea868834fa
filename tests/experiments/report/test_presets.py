"""The preset of low over-refusal: the setting with the fewest other mistakes, also where a rate is not known."""

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from experiments.dials.surface import RISKS
from experiments.report.page.payload import LOW_OVER_REFUSAL, _presets
from experiments.report.results import RunResults


def test_the_preset_makes_the_fewest_mistakes_without_known_answers(small_run: Path) -> None:
    surface = pyarrow.parquet.read_table(small_run / "surface.parquet")
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
    columns = {name: surface.column(name).to_numpy() for name in surface.column_names}
    found = _presets(columns, RunResults.read(small_run / "results.json"))
    presets = {preset["name"]: preset["thresholds"] for preset in found}
    row = surface.slice(best, 1).to_pylist()[0]
    low = presets[f"over_refusal ≤ {LOW_OVER_REFUSAL:.0%}"]
    assert low == {kind: row[f"{kind}_threshold"] for kind in low}
