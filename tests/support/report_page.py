"""What tests of the report in a browser share: what the page should show, what it shows, and how it is moved."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from experiments.charts.blocks import Block, Section
from experiments.dials.counterfactuals import Counterfactuals
from experiments.report.page.document import render
from experiments.run.inputs import RunInputs
from scoring.rates import RATES, joint_rates
from scoring.right_action import load_adjacency, right_action_score

KINDS = ("normative", "epistemic")


def blocks_html(blocks: Sequence[Block]) -> str:
    """Return the HTML of the blocks of a section."""
    return render("comparison.html", title="", runs=[], sections=[Section("", "", "", blocks)])


def expected(
    context: RunInputs, table: Counterfactuals, thresholds: tuple[float, ...], band: float = 0.0
) -> dict[str, float]:
    """Count again what the page should show, by the run's own functions."""
    test = np.flatnonzero(context.corpus.within("test"))
    prompts, actions = [context.prompts[row] for row in test], table.actions_at(thresholds, band)[test]
    groups = context.corpus.groups[test]
    rates = joint_rates([p.label for p in prompts], list(actions), groups)
    found = {name: rates.of(name).estimate for name in RATES}
    found |= {f"{name}_{end}": getattr(rates.of(name), end) for name in RATES for end in ("low", "high")}
    known = np.array([p.answer is not None for p in prompts])
    stated = table.right[np.arange(len(table.right)), table.look_up(thresholds, band)][test]
    right, acceptable = [p.right_action for p in prompts], [p.acceptable for p in prompts]
    score = right_action_score(right, acceptable, list(actions), groups, load_adjacency())
    return found | {"known_facts": float(stated[known].mean()), "right_action": score.estimate}


def shown(page: Any) -> dict[str, float]:
    found = {}
    for row in page.locator("[data-rate]").all():
        name, text = row.get_attribute("data-rate"), row.locator(".now").inner_text()
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", text.replace("\u2212", "-"))]
        scale = 1 if name == "right_action" else 100
        keys = [name, f"{name}_low", f"{name}_high"][: len(numbers)]
        found |= {key: number / scale for key, number in zip(keys, numbers, strict=True)}
    return found


def thresholds_of(page: Any) -> tuple[float, ...]:
    """The thresholds that count; the boxes show them with three digits."""
    boxes = [page.locator(f".exact[data-kind={kind}]") for kind in KINDS]
    found = tuple(float(box.get_attribute("data-exact")) for box in boxes)
    assert [float(box.input_value()) for box in boxes] == pytest.approx(found, abs=5e-4)
    return found


def data_of(page: Any, chart: str, name: str) -> list[dict[str, Any]]:
    """The rows of a drawn chart's data, after its last change."""
    return page.evaluate("""async ([chart, name]) => {
        const charts = runs[0].charts, view = await charts.draw(charts.named(chart));
        await view.runAsync();
        return view.data(name).map((row) => ({ ...row }));
    }""", [chart, name])  # fmt: skip


def nearest(context: RunInputs, thresholds: tuple[float, ...]) -> tuple[float, ...]:
    """Return the thresholds tried that are nearest to these."""
    surface = pyarrow.parquet.read_table(context.file("surface.parquet"))
    tried = [np.unique(surface.column(f"{kind}_threshold").to_numpy()) for kind in KINDS]
    return tuple(float(taus[np.abs(taus - tau).argmin()]) for taus, tau in zip(tried, thresholds, strict=True))


def place(page: Any, kind: str, value: float) -> None:
    """Write a threshold into its box; the page takes the nearest one that was tried."""
    page.locator(f".exact[data-kind={kind}]").fill(str(value))
    page.locator(f".exact[data-kind={kind}]").press("Enter")
