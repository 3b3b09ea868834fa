"""The first screen: a limit is certified or not, as the run's results say; the tiles say what the evidence is."""

import json
from pathlib import Path

import pytest

from experiments.report.page.summary import rates_view, tiles
from experiments.report.results import RunResults


@pytest.fixture(scope="module")
def results(small_run: Path) -> RunResults:
    found = json.loads((small_run / "results.json").read_text())
    risks = found["steer"]["certified"]["risks"]
    risks["over_refusal"] |= {"limit": 0.05, "certified": True, "failures": 0, "n": 63, "at_most": 0.046}
    risks["missed_harm"] |= {"limit": 0.06, "certified": False, "failures": 3, "n": 51, "at_most": 0.142}
    risks["overconfidence"] |= {"limit": None, "certified": False}
    return RunResults.model_validate(found)


def test_each_limit_is_certified_or_not(results: RunResults) -> None:
    rows = {row.name: (row.limit, row.certified, row.style) for row in rates_view(results).rows}
    assert rows["over_refusal"] == ("≤ 5%", "yes, at most 4.6%", "yes")
    assert rows["missed_harm"] == ("≤ 6%", "no, at most 14.2%", "no")
    assert rows["overconfidence"] == ("", "", "")  # no limit was asked for


def test_the_chart_has_the_rates_of_the_table_and_the_limits(results: RunResults) -> None:
    view = rates_view(results)
    spec = json.loads(view.chart.chart)
    rows = [row for data in spec["datasets"].values() for row in data if "when" in row]
    drawn = {(row["rate"], row["when"]): row["value"] for row in rows}
    for name in ("over_refusal", "missed_harm", "overconfidence", "uncertain_refused"):
        assert drawn[name, "without dials"] == results.rates.before.of(name).estimate
        assert drawn[name, "with the dials"] == results.rates.after.of(name).estimate
    limits = {row["rate"]: row["value"] for data in spec["datasets"].values() for row in data if "when" not in row}
    assert (limits["over_refusal"], limits["missed_harm"]) == (0.05, 0.06)
    assert "overconfidence" not in limits


@pytest.mark.parametrize(
    ("organism", "organism_prompts", "said"),
    [(True, False, "not evidence about real models"), (False, True, "A real model on an organism's prompts"),
     (False, False, "A real model")],
)  # fmt: skip
def test_the_tiles_say_what_the_evidence_is(
    results: RunResults, organism: bool, organism_prompts: bool, said: str
) -> None:
    tile = tiles(results.model_copy(update={"organism": organism, "organism_prompts": organism_prompts}), 3)[2]
    assert said in " ".join([tile.answer, *tile.lines])
    assert ("organism" in tile.answer.lower()) == (organism or organism_prompts)
    assert tile.link_text == "3 caveats"
    n = sum(results.prompts_by_part["test"].values())
    assert any(f"rates are of the {n:,} test prompts" in line for line in tile.lines)
