"""The report in a real browser: the first screen, contents, charts with their numbers, terms, rows that open."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.dials.counterfactuals import Counterfactuals
from experiments.report.results import RunResults
from experiments.report.stage import write_report
from experiments.run.config import load_config
from experiments.run.inputs import RunInputs
from experiments.run.wording import VERDICTS
from tests.support.browser import AXE, faults, needs_browser, opened
from tests.support.report_page import KINDS, data_of, nearest, place

pytestmark = [needs_browser, pytest.mark.slow]

# -- prompts -----------------------------------------------------------------------------------------------------------


def test_the_list_opens_on_the_test_prompts_that_the_dials_change(
    browser: Any, report: Path, table: Any, context: RunInputs
) -> None:
    results = json.loads(context.file("results.json").read_text())
    set_to = tuple(results["dials"][kind]["threshold"] for kind in KINDS)
    changed = (table.actions_at(set_to) != context.behaviour.actions) & context.corpus.within("test")
    with opened(browser, report) as page:
        assert page.locator(".count").inner_text().endswith(f"of {int(changed.sum())} prompts")
        assert page.locator("select.change").input_value() == "changed"


def test_prompts_are_filtered_sorted_and_counted(page: Any, context: RunInputs, table: Counterfactuals) -> None:
    count, rows, test = page.locator(".count"), page.locator(".each details"), context.corpus.within("test")
    now = table.actions_at(nearest(context, (0.5, 0.5)))
    changed = (context.behaviour.actions == "refuse") & (now == "answer")
    category, trigger = (
        next(filter(None, (getattr(p, name) for p in context.prompts))) for name in ("category", "trigger")
    )
    for name, value, mine in (
        ("change", "refuse → answer", changed),
        ("category", category, np.array([prompt.category == category for prompt in context.prompts])),
        ("trigger", f"={trigger}", np.array([prompt.trigger == trigger for prompt in context.prompts])),
        ("trigger", "-", np.array([not prompt.trigger for prompt in context.prompts])),
    ):
        page.locator(f"select.{name}").select_option(value)
        assert count.inner_text().endswith(f"of {int((test & mine).sum())} prompts")
        page.locator(f"select.{name}").select_option("")
    assert count.inner_text() == f"1 to 20 of {int(context.corpus.within('test').sum())} prompts"
    page.locator("select.label").select_option("uncertain")
    n = int((context.corpus.uncertain & context.corpus.within("test")).sum())
    assert count.inner_text().endswith(f"of {n} prompts")
    page.locator("select.sort").select_option("1-")
    read = []
    for row in rows.all()[:6]:
        row.locator("summary").click()
        read.append(float(re.search(r"[\d.]+", row.locator("dd", has=page.locator(".reading")).nth(1).inner_text())[0]))
    assert read == sorted(read, reverse=True)
    page.locator(".on").click()
    assert count.inner_text().startswith("21 to ")
    word = context.prompts[int(np.flatnonzero(context.corpus.uncertain & context.corpus.within("test"))[0])].id
    page.locator(".search").fill(word)
    assert rows.count() == 1
    page.locator(".search").fill("nothing is like this")
    assert (count.inner_text(), rows.count()) == ("no prompt matches", 0)


def test_a_row_opens_on_both_completions_the_evidence_the_readings_and_the_words(
    page: Any, context: RunInputs, table: Counterfactuals, run: Path
) -> None:
    page.get_by_role("button", name="thresholds of this run").click()
    by_id, steered, worded = (
        {row["id"]: row for row in map(json.loads, (run / f"{name}.jsonl").read_text().splitlines())}
        for name in ("completions", "completions_steered", "attributions")
    )
    at = {prompt.id: i for i, prompt in enumerate(context.prompts)}
    chosen = next(i for i in worded if i in steered and worded[i]["label"] == "benign" and max(worded[i]["scores"]) > 1)
    page.locator(".search").fill(chosen)
    row = page.locator(".each details").first
    row.locator("summary").press("Enter")  # by keyboard
    told = row.locator(".inside").inner_text()
    for text in (by_id[chosen]["completion"], by_id[chosen]["evidence"], steered[chosen]["completion"],
                 steered[chosen]["evidence"], context.prompts[at[chosen]].text):  # fmt: skip
        assert text in told
    for kind, read in zip(KINDS, table.probability, strict=True):
        assert re.search(rf"{kind} dial\n+{read[at[chosen]]:.3f}, ", told)
    word = worded[chosen]["words"][int(np.argmax(worded[chosen]["scores"]))]
    assert row.locator("mark").first.inner_text().startswith(word)
    place(page, "normative", 0.0)  # another outcome: its text is not stored, and no other is shown for it
    row = page.locator(".each details").first
    row.locator("summary").click()
    assert steered[chosen]["completion"] not in row.locator(".inside").inner_text()
    assert "stores the texts of test prompts at its own thresholds" in row.locator(".inside").inner_text()


def test_shares_are_of_the_prompts_shown_and_say_which(page: Any, context: RunInputs, table: Counterfactuals) -> None:
    actions, test = table.actions_at(nearest(context, (0.5, 0.5))), context.corpus.within("test")
    page.locator("details.fold", has=page.locator("table.kinds")).first.evaluate("fold => { fold.open = true; }")
    for part, kept in (("test", test), ("", np.ones(len(test), dtype=bool))):
        page.locator("select.part").select_option(part)
        page.locator("select.by").select_option("category")
        assert page.locator(".selected").inner_text() == f"{int(kept.sum())} prompts ({part or 'all parts'})"
        cells = {row.locator("th").inner_text(): row.locator("td").all_inner_texts()
                 for row in page.locator("table.kinds tbody tr").all()}  # fmt: skip
        for category in {prompt.category for prompt in context.prompts}:
            mine = kept & np.array([prompt.category == category for prompt in context.prompts])
            if mine.any():
                refused = f"{100 * np.mean(actions[mine] == 'refuse'):.1f}"
                assert (cells[category][0], cells[category][4]) == (str(int(mine.sum())), refused)
    page.locator("select.by").select_option("label")


def test_harmful_prompts_are_hidden_everywhere_until_asked_for(page: Any, context: RunInputs) -> None:
    page.locator("select.label").select_option("harmful")
    rows = page.locator(".each details")
    assert page.locator(".each .blurred").count() == 20
    assert rows.first.locator("bdi.blurred").get_attribute("aria-hidden") == "true"
    name = rows.first.locator(".id").inner_text()
    text = next(prompt.text for prompt in context.prompts if prompt.id == name)
    rows.first.locator("summary").click()
    assert "tick “show harmful prompts”" in rows.first.locator(".inside").inner_text()
    assert text not in rows.first.locator(".inside").inner_text()
    rows.first.get_by_role("button", name="Show this harmful prompt").click()
    assert text in rows.first.locator(".inside").inner_text()
    assert page.locator(".each .blurred").count() == 19
    page.locator(".unblur").check()
    assert page.locator(".each .blurred").count() == 0
    examples = page.locator(".triggers details.harmful")
    assert examples.count() > 0
    assert examples.first.locator("bdi").first.is_hidden()
    examples.first.locator("summary").click()
    assert examples.first.locator("bdi").first.is_visible()


# -- what is told ------------------------------------------------------------------------------------------------------


def test_the_first_screen_answers(browser: Any, report: Path, context: RunInputs) -> None:
    results = RunResults.read(context.file("results.json"))
    with opened(browser, report, 1280) as page:
        page.set_viewport_size({"width": 1280, "height": 800})
        tiles, drawn = page.locator(".tile"), page.locator("figure[data-chart=rates] svg")
        assert tiles.first.locator(".answer").inner_text() == VERDICTS[results.dissociation.verdict]
        assert re.search(r"\d+ caveats?$", tiles.nth(2).inner_text())
        assert "in the words of a refusal; of" in tiles.first.inner_text()
        assert page.get_by_text("All answered prompts by the reason to decline").is_visible()
        drawn.wait_for()
        for seen in (page.locator("[data-rate=uncertain_refused]"), drawn):
            box = seen.bounding_box()
            assert box["y"] + box["height"] <= 800


def test_every_chart_is_drawn_and_has_its_numbers(page: Any) -> None:
    charts = page.evaluate("""async () => {
        const { figures } = runs[0].charts;
        await Promise.all(figures.map((figure) => runs[0].charts.draw(figure)));
        return figures.map((figure) => [figure.dataset.chart, figure.querySelectorAll("svg.marks, canvas.marks").length,
            figure.querySelectorAll("table tbody tr").length]);
    }""")  # fmt: skip
    names = [name for name, _, _ in charts]
    known = "rates matrix calibration_normative scatter tradeoff_missed_harm grid_normative cosine".split()
    assert {*known} <= set(names)
    assert all(marks == 1 for _, marks, _ in charts)
    assert all(rows > 0 or name == "scatter" for name, _, rows in charts)
    assert len(data_of(page, "scatter", "prompts")) == page.evaluate("runs[0].prompts.id.length")


def test_the_scatter_is_stepped_through_and_leads_to_a_row(page: Any) -> None:
    plot, line = page.locator("figure[data-chart=scatter] .plot"), page.locator(".pointed")
    plot.focus()
    page.keyboard.press("ArrowRight")
    first = line.inner_text()
    assert "without dials: " in first
    assert "normative: " in first
    page.keyboard.press("ArrowRight")
    assert line.inner_text() != first
    [ring] = data_of(page, "scatter", "stepped")
    stepped = page.evaluate("runs[0].scatter.order[runs[0].scatter.stepped]")
    assert (ring["x"], ring["shown"]) == (page.evaluate(f"runs[0].prompts.x[{stepped}]"), 1)
    page.keyboard.press("Enter")
    name = page.evaluate(f"runs[0].prompts.id[{stepped}]")
    assert page.locator(".each details[open] .id").inner_text() == name


@pytest.mark.usefixtures("without_figures")
def test_what_a_run_lacks_has_no_section_no_entry_and_no_link(browser: Any, run: Path) -> None:
    other = run.with_name("nothing measured")
    shutil.copytree(run, other)
    results = json.loads((run / "results.json").read_text())
    nothing = {"matrix": {}, "effects": [], "variants": [], "side_effects": {}, "contrasts": {}, "power": []}
    nothing |= {"additions": None, "dependence": None, "verdict": "not_applicable"}
    results["dissociation"] |= nothing | {"reasons": ["nothing is refused"]}
    (other / "results.json").write_text(json.dumps(results | {"dials": {}, "steer": {}}))
    write_report([RunInputs(load_config(other / "config.yaml"), other)], other / "report.html")
    with opened(browser, other / "report.html") as page:
        assert "Nothing is refused." in page.locator(".tile").first.inner_text()
        assert page.locator(".tile").first.locator("a").count() == 0
        assert page.locator("section.matrix, section.dials, .slider").count() == 0
        heads = page.locator("table.live-rates thead th").all_inner_texts()
        assert heads == ["rate on test prompts", "without dials", "n"]
        assert page.locator("select.change option").all_inner_texts()[0] == "all"
        assert "changed by the dials" not in page.locator("select.change").inner_text()
        links = page.locator("a[href^='#']").evaluate_all("of => of.map((a) => a.getAttribute('href'))")
        assert all(page.locator(link).count() == 1 for link in links)
        sections = page.locator("article.run > section").evaluate_all("of => of.map((s) => [s.id, s.innerText])")
        assert all(len(text.splitlines()) > 1 for _, text in sections)


# -- for everyone: contrast, paper, tools ------------------------------------------------------------------------------


@pytest.mark.parametrize("chart", ["matrix", "grid_epistemic"])
def test_numbers_contrast_with_the_colour_of_their_cell(page: Any, chart: str) -> None:
    """By WCAG 2, from the colours as they are drawn."""
    colours = page.evaluate("""async (chart) => {
        const figure = runs[0].charts.named(chart);
        await runs[0].charts.draw(figure);
        const fills = (marks) => [...figure.querySelectorAll(marks)].map((mark) => getComputedStyle(mark).fill);
        return [fills(".mark-rect.role-mark path"), fills(".mark-text.role-mark text")];
    }""", chart)  # fmt: skip
    cells, numbers = (np.array([[int(c) for c in re.findall(r"\d+", fill)[:3]] for fill in of]) for of in colours)
    n = len(numbers) // 2  # each number, then each interval
    assert n > 5
    light = [luminance(of) for of in (cells[:n], numbers[:n])]
    contrast = (np.maximum(*light) + 0.05) / (np.minimum(*light) + 0.05)
    assert contrast.min() >= 4.5


def luminance(colour: np.ndarray) -> np.ndarray:
    share = colour / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


def test_on_paper_folds_are_open_and_harmful_prompts_stay_closed(browser: Any, report: Path) -> None:
    with opened(browser, report) as page:
        page.locator("select.change").select_option("")
        page.locator("select.label").select_option("harmful")
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details:not([open]):not(.harmful)").count() == 0
        assert page.locator("details.harmful[open]").count() == 0
        rows = page.locator(".each details")
        assert rows.locator(".inside").count() == rows.count() == 20
        assert page.locator(".each .blurred").first.is_hidden()
        assert "tick “show harmful prompts”" in rows.first.locator(".inside").inner_text()
        assert page.locator(".provenance dd").first.is_visible()
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("details[open]").count() == 0


@pytest.mark.skipif(not AXE, reason="pip install axe-playwright-python")
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_axe_finds_no_serious_fault(browser: Any, report: Path, width: int, scheme: str) -> None:
    with opened(browser, report, width, scheme, bypass_csp=True) as page:
        page.evaluate("Promise.all(runs[0].charts.figures.map((of) => runs[0].charts.draw(of))).then(() => 1)")
        page.locator(".each details summary").first.click()
        page.add_style_tag(content=".wide { background: none !important }")  # behind a gradient axe tells no contrast
        assert [one for one in faults(page) if one[0] in ("serious", "critical")] == []
        assert len(page.locator("main").inner_text()) > 1000
