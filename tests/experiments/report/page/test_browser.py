"""The report in a real browser: the sliders against the table, hostile text, phone, dark, print, several runs."""

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.dials.counterfactuals import Counterfactuals, read_table
from experiments.dials.policies import evaluate
from experiments.dials.stage import _surface_rows
from experiments.probing.read_probes import write_parquet
from experiments.report.page.article import ReportedRun, article
from experiments.report.page.document import document
from experiments.report.page.payload import inspect_logs
from experiments.report.results import RunResults
from experiments.report.stage import write_report
from experiments.run.config import load_config
from experiments.run.inputs import RunInputs
from tests.support.browser import needs_browser, opened
from tests.support.report_page import KINDS, data_of, expected, nearest, place, shown, thresholds_of

pytestmark = [needs_browser, pytest.mark.slow]
SETTINGS = [(0.5, 0.5), (0.0, 0.5), (1.0, 1.0), (1.0, 0.0), (0.013, 0.9871), (0.9999, 0.0005)]
HOSTILE = ["<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "\u202ereversed", "\u2028", "<!-- -->",
           "x" * 100_000, "'\"&amp;"]  # fmt: skip


# -- sliders -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thresholds", SETTINGS)
def test_the_nearest_thresholds_tried_show_what_the_table_holds(
    page: Any, context: RunInputs, table: Counterfactuals, thresholds: tuple[float, float]
) -> None:
    for kind, value in zip(("normative", "epistemic"), thresholds, strict=True):
        place(page, kind, value)
    there = nearest(context, thresholds)
    assert thresholds_of(page) == there
    found, known = shown(page), expected(context, table, there)
    assert found.keys() == known.keys()
    for name, value in known.items():
        assert found[name] == pytest.approx(value, abs=6e-4), name


def test_both_sliders_move_rates_point_and_commands(page: Any, context: RunInputs, table: Counterfactuals) -> None:
    page.get_by_role("button", name="thresholds of this run").click()
    seen = set()
    for kind, key in (("normative", "ArrowRight"), ("epistemic", "ArrowLeft")) * 3:
        for _ in range(7):
            page.locator(f".slider[data-kind={kind}]").press(key)
        thresholds = thresholds_of(page)
        seen.add(thresholds)
        found, known = shown(page), expected(context, table, thresholds)
        for name, value in known.items():
            assert found[name] == pytest.approx(value, abs=6e-4), (name, thresholds)
        known["uncertain_mistaken"] = known["overconfidence"] + known["uncertain_refused"]
        for risk in ("uncertain_mistaken", "missed_harm"):
            [point] = data_of(page, f"tradeoff_{risk}", "live")
            assert (point["x"], point["y"], point["shown"]) == pytest.approx((known["over_refusal"], known[risk], 1))
        for command in page.locator("[data-command]").all_inner_texts():
            words = shlex.split(command)
            told = tuple(float(words[words.index(f"--{k}-threshold") + 1]) for k in KINDS)
            assert told == thresholds
    assert len(seen) == 6


def test_prompts_link_to_their_samples_where_the_run_has_inspects_logs(page: Any, context: RunInputs) -> None:
    (context.directory / "inspect").mkdir()
    without = inspect_logs(context.directory)
    (context.directory / "inspect" / "before.eval").touch()
    logs = inspect_logs(context.directory)
    shutil.rmtree(context.directory / "inspect")
    assert page.locator("section.prompts code").last.inner_text() == without["command"]
    assert without["command"] == f"refusal export {context.directory} --inspect && {logs['command']}"
    page.locator(".each summary").first.click()
    page.locator(".each details[open] > :nth-child(2)").wait_for()  # filled by an event that comes after the click
    assert page.locator(".each a").count() == 0
    page.evaluate(f"runs[0].inspect = {json.dumps(logs)}; runs[0].list.show()")
    page.locator(".each summary").first.click()
    page.locator(".each details[open] > :nth-child(2)").wait_for()
    [link] = page.locator(".each a").all()
    name = page.locator(".each .id").first.inner_text()
    assert link.get_attribute("href") == f"http://127.0.0.1:7575/#/logs/before.eval/samples/sample/{name}/1"
    page.evaluate(f"runs[0].inspect = {json.dumps(without)}; runs[0].list.show()")


def test_presets_are_those_chosen_on_other_prompts(page: Any, context: RunInputs) -> None:
    results = json.loads(context.file("results.json").read_text())
    page.get_by_role("button", name="thresholds of this run").click()
    assert thresholds_of(page) == tuple(results["dials"][kind]["threshold"] for kind in KINDS)
    assert page.locator(".live-rates.moved").count() == 0
    after = RunResults.read(context.file("results.json")).rates.after.of("overconfidence").estimate
    assert shown(page)["overconfidence"] == pytest.approx(after, abs=6e-4)
    page.get_by_role("button", name="least regret").click()
    assert thresholds_of(page) == tuple(results["steer"]["least_regret"]["thresholds"][kind] for kind in KINDS)
    assert page.locator(".live-rates.moved").count() == 1  # certificates are not of these thresholds
    page.get_by_role("button", name="over_refusal ≤ 2%").click()
    assert shown(page)["over_refusal"] < 0.06


def test_a_threshold_that_is_none_changes_nothing(page: Any) -> None:
    before, box = shown(page), page.locator(".exact[data-kind=normative]")
    value = box.input_value()
    for nonsense in ("2", "-1", ""):
        box.fill(nonsense)
        box.press("Enter")
        assert box.input_value() == value
    assert shown(page) == before


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1100, "dark")])
def test_nothing_is_wider_than_a_phone_and_dark_is_dark(browser: Any, report: Path, width: int, scheme: str) -> None:
    with opened(browser, report, width, scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", paper)[:3])) < 150) == (scheme == "dark")
        cut = page.evaluate(
            "[...document.querySelectorAll('table')].filter(t => t.getBoundingClientRect().right > innerWidth + 1)"
            ".map(t => t.parentElement)"
            ".filter(of => getComputedStyle(of).overflowX !== 'auto' || of.tabIndex < 0).length"
        )
        assert cut == 0  # what is wider scrolls in a region of its own, by keyboard too
        page.emulate_media(media="print", color_scheme=scheme)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


# -- data as data ------------------------------------------------------------------------------------------------------


def test_ten_thousand_hostile_prompts_are_text_and_the_file_stays_small(
    browser: Any, context: RunInputs, report: Path
) -> None:
    results = RunResults.read(context.file("results.json"))
    given = json.loads(re.search(r'class="payload">(.*?)</script>', report.read_text())[1])
    many = given["prompts"]
    turns = -(-10_000 // len(many["id"]))
    for name, column in many.items():
        if not name.endswith("_layer") and name not in ("words", "tokens"):
            many[name] = (column * turns)[:10_000]
    for name in ("read", "done"):
        given[name] = [(column * turns)[:10_000] for column in given[name]]
    given["gate"] = [{name: (column * turns)[:10_000] for name, column in of.items()} for of in given["gate"]]
    for name in ("id", "text", "said", "steered", "why", "why_steered", "category", "trigger"):
        many[name] = [f"{text[:400]} {HOSTILE[i % len(HOSTILE)][:200]}" for i, text in enumerate(many[name])]
    run = ReportedRun(HOSTILE[0], HOSTILE[2], HOSTILE[4], cells=[], eta=[], reads={})
    results = results.model_copy(update={"model": results.model.model_copy(update={"name": HOSTILE[1]})})
    path = report.with_name("hostile.html")
    path.write_text(document(HOSTILE[0], [article(run, results, given)]), encoding="utf-8")
    assert path.stat().st_size < 15e6
    with opened(browser, path) as page:
        for name in ("part", "change"):
            page.locator(f"select.{name}").select_option("")
        assert page.locator(".count").inner_text() == "1 to 20 of 10000 prompts"
        assert page.locator("img").count() == 0
        assert HOSTILE[1] in page.locator("h1").inner_text()
        page.locator(".search").fill("onerror")
        rows = page.locator(".each details")
        assert rows.count() == 20
        for row in rows.all():
            row.locator("summary").click()
        assert page.locator("img").count() == 0
        charts = page.evaluate(
            "Promise.all(runs[0].charts.figures.map((of) => runs[0].charts.draw(of))).then((v) => v.length)"
        )
        assert charts > 0
        assert page.locator("figure[data-chart=scatter] canvas").count() == 1  # too many for SVG


@pytest.mark.usefixtures("without_figures")
def test_a_dead_band_and_unjudged_completions_are_shown_as_the_run_counts_them(
    browser: Any, context: RunInputs, run: Path, tmp_path: Path
) -> None:
    """One judged prompt less also changes what a constant policy earns on the others, where some have `acceptable`."""
    other = tmp_path / "dead band $HOME 'quoted'"
    shutil.copytree(run, other)
    prompts = [json.loads(line) for line in Path(context.config.prompts.path or "").read_text().splitlines()]
    for row in prompts[::3]:
        row["acceptable"] = ["answer", "abstain"]
    (other / "mine.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    rows = [json.loads(line) for line in (run / "table.jsonl").read_text().splitlines()]
    for i, row in enumerate(rows):
        left = {"action": None if i % 3 else "answer", "right": False}
        row["outcomes"] |= dict.fromkeys(("permit+leave", "leave+decline", "leave+permit", "leave+leave"), left)
    (other / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    results = json.loads((run / "results.json").read_text())
    for dial in results["dials"].values():
        dial["band"] = 0.3
    (other / "results.json").write_text(json.dumps(results))
    changed = RunInputs(load_config(other / "config.yaml", [f"prompts.path={other / 'mine.jsonl'}"]), other)
    table = read_table(other / "table.jsonl")
    set_to = [results["dials"][kind]["threshold"] for kind in KINDS]
    policy = evaluate(changed, table, [changed.corpus.harmful, changed.corpus.uncertain])
    write_parquet(_surface_rows(policy, set_to, 0.3), other / "surface.parquet")
    write_report([changed], other / "report.html")
    with opened(browser, other / "report.html") as page:
        assert "leaves the model unchanged" in page.locator(".dials .how").inner_text()
        for thresholds in ((0.4, 0.4), *SETTINGS[1:3]):
            for kind, value in zip(KINDS, thresholds, strict=True):
                place(page, kind, value)
            there = thresholds_of(page)
            actions = [action or "not judged" for action in table.actions_at(there, 0.3)]
            assert page.evaluate("runs[0].actionsNow.map((action) => runs[0].action(action))") == actions
            found, known = shown(page), expected(changed, table, there, 0.3)
            for name, value in known.items():
                assert np.isnan(value) or found[name] == pytest.approx(value, abs=6e-4), (name, there)
        for command in page.locator("[data-command]").all_inner_texts():
            assert str(other / "dials.safetensors") in shlex.split(command)


@pytest.mark.usefixtures("without_figures")
def test_several_runs_are_compared(browser: Any, context: RunInputs, run: Path) -> None:
    other = run.with_name("other")
    shutil.copytree(run, other)
    plain = (run / "completions.jsonl").read_text().splitlines()
    steered = {json.loads(line)["id"]: line for line in (run / "completions_steered.jsonl").read_text().splitlines()}
    changed = [steered.get(json.loads(line)["id"], line) for line in plain]
    (other / "completions.jsonl").write_text("\n".join(changed) + "\n")
    n = sum(json.loads(a)["action"] != json.loads(b)["action"] for a, b in zip(plain, changed, strict=True))
    path = run.with_name("both.html")
    write_report([context, RunInputs(load_config(other / "config.yaml"), other)], path)
    with opened(browser, path) as page:
        page.get_by_text(f"The {n} flipped prompts").click()
        assert page.locator(".changes details.fold tbody tr").count() == n
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
        assert len(ids) == len(set(ids))
        for link in page.locator("nav.contents a").evaluate_all("of => of.map((a) => a.getAttribute('href'))"):
            assert page.locator(link).count() == 1
        caption = page.locator(".changes caption").first.inner_text()
        assert "of every part" in caption  # rates elsewhere are of test prompts
        second = page.locator("article.run").nth(1)
        second.locator(".exact[data-kind=normative]").fill("0")
        second.locator(".exact[data-kind=normative]").press("Enter")
        assert second.locator("[data-rate=over_refusal] .now").inner_text().startswith("100.0%")
        first = page.locator("article.run").first.locator("[data-rate=over_refusal] .now")
        assert not first.inner_text().startswith("100.0%")
