"""Sections of the report, from records: no result is left out, what is not known is not drawn, caveats are listed."""

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.categories.results import CategoryResults
from experiments.categories.text import category_blocks
from experiments.charts.blocks import Block, Figure, Heading
from experiments.charts.points import LEAST, log_odds
from experiments.charts.specification import specification
from experiments.dials.results import DialResult, KnownFacts, SteerResult
from experiments.dials.text import DialReadings, calibration_chart, calibration_points
from experiments.probing.results import BoundaryRow, Independence, SiteRecord, StreamChange, WriteRecord
from experiments.probing.text import independence_lines
from experiments.report.caveats import caveats
from experiments.report.page.article import dials_blocks, reads_note
from experiments.report.page.summary import rate_rows, rates_figure, rates_table, right_action_table, tiles
from experiments.report.results import ModelRecord, Rates, RightActions, RunResults
from extract.table import Table
from probes.direction import Locus
from probes.statistics.intervals import Estimate, clopper_pearson
from scoring.rates import JointRates
from scoring.scorecard import DualUseRecord, RightActionCard
from tests.support.report_page import blocks_html

SHARE = {"estimate": 0.9, "low": 0.8, "high": 0.95, "n": 60}
NONE = {"estimate": 0.01, "low": 0.0, "high": 0.05, "n": 60}


# -- calibration: each point is the share of the declining class among the prompts of its bin --------------------------


def test_each_point_is_the_share_of_its_bin_with_its_n_and_interval() -> None:
    probability = np.array([0.02, 0.04, 0.06, 0.08, 0.55, 0.97, 1.0])
    declining = np.array([False, False, True, False, True, True, True])
    found = calibration_points(DialReadings(probability, declining, np.arange(7)))
    assert [(point["bin"], point["n"]) for point in found] == [
        ("0.01 to 0.1", 4), ("0.5 to 0.7", 1), ("0.9 to 0.99", 1), ("0.999 to 1", 1)
    ]  # fmt: skip
    assert [point["x"] for point in found] == pytest.approx([0.05, 0.55, 0.97, 1.0])
    assert [point["estimate"] for point in found] == [0.25, 1.0, 1.0, 1.0]
    exact = clopper_pearson(1, 4)
    assert (found[0]["low"], found[0]["high"]) == (exact.low, exact.high)
    (first, *_) = calibration_points(DialReadings(probability, declining, np.zeros(7, dtype=int)))
    assert first["high"] - first["low"] > exact.high - exact.low  # one group: nothing is known for sure


def test_the_chart_holds_the_same_points_on_an_axis_of_log_odds() -> None:
    read = DialReadings(np.array([0.02, 0.04, 0.55, 0.97]), np.array([False, True, True, True]), np.arange(4))
    drawn = [row for rows in json.loads(specification(calibration_chart({"epistemic": read})))["datasets"].values()
             for row in rows if "n" in row]  # fmt: skip
    shown = {(row["at"], row["estimate"], row["n"]) for row in drawn}
    assert shown == {(log_odds(point["x"]), point["estimate"], point["n"]) for point in calibration_points(read)}
    assert all("n = 4 test prompts" in row["series"] for row in drawn)
    assert log_odds(0.0) == log_odds(LEAST) == -log_odds(1.0)  # 0 and 1 stay on the axis


# -- categories --------------------------------------------------------------------------------------------------------


def place(layer: int, low: float, high: float) -> BoundaryRow:
    return BoundaryRow(layer=layer, position="post_last", estimate=(low + high) / 2, low=low, high=high, n=40)


@pytest.fixture
def compared() -> CategoryResults:
    both = {"theft": SHARE, "fraud": NONE}
    own = {"estimate": 0.89, "low": 0.8, "high": 0.94}
    tested = {
        "verdict": "distinct", "reason": "each stops its own", "layers": [3, 3], "rank": 2, "rank_settled": True,
        "missing": {"arson": "3 refusals of 9 prompts, 50 are needed"},
        "matrix": {"theft": both, "fraud": {"theft": NONE, "fraud": SHARE}}, "controls": dict.fromkeys(both, NONE),
        "common": {"theft": [NONE, SHARE], "fraud": [SHARE, SHARE]},
        "pairs": [{"between": [*both], "verdict": "distinct", "p": 0.001,
                   "intervals": {f"own minus other on {name}": own for name in both}}],
    }  # fmt: skip
    nothing = {"verdict": "not_applicable", "reason": "too few categories have enough decliners", "missing": {}}
    point = {"way": "subspace", "strength": 1.0, "over_refusal_gone": SHARE, "harmful_refusal_lost": NONE,
             "holds": True}  # fmt: skip
    found = {"margin": 0.15, "alpha": 0.05, "variant": "affine/selected/last_on", "normative": tested}
    found |= {"epistemic": nothing, "over_refusal": nothing, "tradeoff": {"points": [point], "angles": [70.0]}}
    places = {"theft": (place(0, -400.0, 300.0), place(1, 0.2, 0.6))}
    return CategoryResults.model_validate(found).model_copy(update={"places": places})


def of_kind(blocks: list[Block], kind: type) -> list:  # type: ignore[type-arg]
    return [block for block in blocks if isinstance(block, kind)]


def test_verdicts_reasons_matrix_and_pairs_of_categories(compared: CategoryResults) -> None:
    assert category_blocks(None) == []
    blocks = category_blocks(compared)
    said = of_kind(blocks, str)
    assert said[0] == "Distinct knobs: each stops its own. Rank of all categories' directions: 2 of 2."
    assert "Not tested, arson: 3 refusals of 9 prompts, 50 are needed." in said
    assert "Lowers over-refusal at a loss below the margin: subspace." in said
    assert len(of_kind(blocks, Heading)) == 5
    figures = {figure.name: figure for figure in of_kind(blocks, Figure)}
    assert set(figures) == {"categories_normative", "lowering", "category_places"}
    shown = [row[0] for row in figures["categories_normative"].numbers.rows]
    assert (shown.count("permuted labels"), shown.count("first 2 of all")) == (2, 2)
    pairs = of_kind(blocks, Table)[0]
    assert pairs.rows == [["theft and fraud", "Distinct knobs", "0.001", "89 [80, 94]", "89 [80, 94]"]]


def test_a_place_that_is_not_known_is_in_the_numbers_and_not_in_the_drawing(compared: CategoryResults) -> None:
    figure = {figure.name: figure for figure in of_kind(category_blocks(compared), Figure)}["category_places"]
    assert [row[1] for row in figure.numbers.rows] == ["0", "1"]
    assert '"layer":1' in figure.chart
    assert '"layer":0' not in figure.chart


# -- dials -------------------------------------------------------------------------------------------------------------


def test_rates_without_dials_have_one_column(small_run: Path) -> None:
    rates = RunResults.read(small_run / "results.json").rates
    both, alone = (rates_table("", rates.before, after) for after in (rates.after, None))
    assert list(alone.columns) == ["rate", "without dials", "n"]
    assert alone.rows == [[name, before, n] for name, before, _, n in both.rows]


@pytest.mark.parametrize(("n", "shown"), [(108, True), (22, False)])  # where it knows all, the row above says it
def test_facts_lost_are_of_those_that_the_plain_model_gets_right(small_run: Path, n: int, shown: bool) -> None:
    rates = RunResults.read(small_run / "results.json").rates
    facts = KnownFacts(before=22 / n, after=20 / n, n=n, lost=Estimate(0.1, 0.01, 0.3, 22))
    row = ["known facts lost, of those it gets right", "", "10.0% [1.0%, 30.0%]", "22"]
    assert (row in rates_table("", rates.before, rates.after, facts=facts).rows) is shown
    assert all(len(row) == 3 and row[1] for row in rates_table("", rates.before, None, facts=facts).rows)


def with_dial(small_run: Path, **changed: object) -> RunResults:
    """The small run's results, its epistemic dial changed."""
    found = json.loads((small_run / "results.json").read_text())
    found["dials"]["epistemic"] |= changed
    return RunResults.model_validate(found)


@pytest.mark.parametrize(
    ("changed", "reads", "writes"),
    [
        ({}, "layer 3, post_last", "layer 4"),
        ({"write": None}, "layer 3, post_last", "no layer (onset_bias)"),
        ({"read": None, "write": None}, "no layer (probability of its openings)", "no layer (onset_bias)"),
    ],
)
def test_each_dial_has_a_row(small_run: Path, changed: dict, reads: str, writes: str) -> None:
    blocks = dials_blocks(with_dial(small_run, **changed), {})
    (table,) = [table for table in of_kind(blocks, Table) if table.columns[0] == "dial"]
    assert [row[0] for row in table.rows] == ["normative", "epistemic"]
    assert table.rows[1][1:3] == [reads, writes]


def test_a_dial_that_reads_no_token_is_named(small_run: Path) -> None:
    line, no_tokens = "The epistemic dial reads no token", {"prompts": {"tokens": {}, "part": []}}
    assert line not in reads_note(with_dial(small_run), no_tokens)
    note = reads_note(with_dial(small_run, read=None), no_tokens)
    assert note.startswith("Each dial reads once a prompt: normative at layer 3, post_last. " + line)
    one = reads_note(with_dial(small_run), {"prompts": {"tokens": {"0": []}, "part": ["test", "test", "train"]}})
    assert "For 1 of 2 test prompts" in one


# -- the first screen --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(small_run: Path) -> RunResults:
    found = json.loads((small_run / "results.json").read_text())
    risks = found["steer"]["certified"]["risks"]
    risks["over_refusal"] |= {"limit": 0.05, "certified": True, "failures": 0, "n": 63, "at_most": 0.046}
    risks["missed_harm"] |= {"limit": 0.06, "certified": False, "failures": 3, "n": 51, "at_most": 0.142}
    risks["overconfidence"] |= {"limit": None, "certified": False}
    return RunResults.model_validate(found)


def test_each_limit_is_certified_or_not_and_drawn(results: RunResults) -> None:
    rows = {row.name: (row.limit, row.certified, row.style) for row in rate_rows(results)}
    assert rows["over_refusal"] == ("≤ 5%", "yes, at most 4.6%", "yes")
    assert rows["missed_harm"] == ("≤ 6%", "no, at most 14.2%", "no")
    assert rows["overconfidence"] == ("", "", "")  # no limit was asked for
    data = [row for rows in json.loads(rates_figure(results).chart)["datasets"].values() for row in rows]
    drawn = {(row["rate"], row.get("when")): row["estimate"] for row in data}
    for name in ("over_refusal", "missed_harm", "overconfidence", "uncertain_refused"):
        assert drawn[name, "without dials"] == results.rates.before.of(name).estimate
        assert drawn[name, "with the dials"] == results.rates.after.of(name).estimate
    assert (drawn["over_refusal", None], drawn["missed_harm", None]) == (0.05, 0.06)
    assert ("overconfidence", None) not in drawn


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


def card(credit: float) -> RightActionCard:
    shares = [Estimate(estimate=value, low=0.0, high=1.0, n=48) for value in (credit, credit / 2, 0.25, credit / 4)]
    middle = DualUseRecord(
        credit=shares[0], by_action={"clarify": shares[1]}, answered_firmly=shares[2], declined=shares[3]
    )
    return RightActionCard(score=Estimate(0.5, 0.4, 0.6, 900), by_action={"refuse": shares[0]}, dual_use=middle)


def test_every_right_action_and_the_dual_use_prompts_have_a_row_and_without_dials_one_column() -> None:
    found = RightActions(before=card(0.4), after=card(0.8))
    dials = RunResults.model_construct(
        right_action=found, dials={"normative": DialResult(threshold=0.5)}, steer=SteerResult()
    )
    page = blocks_html([right_action_table(dials)])
    for told in ("right-action score", "credit where refuse is right", "dual-use: credit of the action taken",
                 "dual-use: credit where clarify is right", "dual-use: prompts answered firmly",
                 "dual-use: prompts declined", "0.40 [0.00, 1.00]", "0.80 [0.00, 1.00]", "20.0%", "with the dials",
                 "900"):  # fmt: skip
        assert told in page
    without = blocks_html([right_action_table(dials.model_copy(update={"dials": {}}))])
    assert "with the dials" not in without
    assert "0.80" not in without


# -- words -------------------------------------------------------------------------------------------------------------


def test_every_caveat_that_applies_is_listed() -> None:
    site = SiteRecord.model_construct(beats_bag_of_words=False, auroc=0.7, auroc_ci=(0.6, 0.8), n_positive=9,
                                      n_negative=9, bag_of_words_auroc=0.8)  # fmt: skip
    results = RunResults.model_construct(
        organism=True, organism_prompts=True, model=ModelRecord(name="OWNER/MODEL"),
        dials_absent=["epistemic"], sites={"normative": site},
        rates=Rates(before=JointRates(unjudged=2), after=JointRates(unjudged=1)),
        writes={"normative": WriteRecord(available=True, meets_selection_rules=False, within_label=False)},
        left_out=("60 of 90 prompts.",),
    )  # fmt: skip
    text = " ".join(caveats(results))
    for part in ("not evidence about real models", "A time budget cut this run: 60 of 90 prompts.",
                 "OWNER/MODEL is not that organism",
                 "No epistemic dial", "3 completions", "(AUROC 0.700 [0.600, 0.800] against 0.800)",
                 "No locus met the selection rules", "contrasts two labels"):  # fmt: skip
        assert part in text


def test_independence_is_said_against_the_null() -> None:
    change = StreamChange(change=Estimate(0.03, 0.0, 0.1), p_null=0.6, null_95th_percentile=0.1, share=0.09)
    locus = Locus("resid_post", 4, "post_last")
    found = Independence(ablated=locus, watched=locus, n=72, n_null=49, cosine=change, projection=change)
    (line,) = independence_lines({"ablate_normative_watch_epistemic": found})
    assert "Ablating the normative direction moves the stream along the epistemic one by 0.03 of the gap" in line
    assert "9% of its own move" in line
    assert "no more than permuted-label directions do (95th percentile 0.10, p = 0.60)" in line
    moved = change.model_copy(update={"p_null": 0.02, "share": None})
    beyond = found.model_copy(update={"projection": moved})
    (line,) = independence_lines({"ablate_normative_watch_epistemic": beyond})
    assert ": more than permuted-label directions do" in line
