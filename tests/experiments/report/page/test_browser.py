"""The report in a real browser: the sliders against the table, filters, what is told, hostile text, several runs."""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.dials.counterfactuals import Counterfactuals, read_table
from experiments.report import stage as report_stage
from experiments.report.page.article import ReportedRun, article
from experiments.report.page.document import document
from experiments.report.results import RunResults
from experiments.report.stage import write_report
from experiments.run.config import load_config
from experiments.run.inputs import RunInputs
from probes.statistics.intervals import clopper_pearson
from scoring.rates import joint_rates
from scoring.right_action import load_adjacency, right_action_score
from tests.support.browser import needs_browser, opened, started

pytestmark = needs_browser
KINDS = ("normative", "epistemic")
SETTINGS = [(0.5, 0.5), (0.0, 0.5), (1.0, 1.0), (1.0, 0.0), (0.013, 0.9871), (0.9999, 0.0005)]
HOSTILE = ["<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "\u202ereversed", "\u2028", "<!-- -->",
           "x" * 100_000, "'\"&amp;"]  # fmt: skip


@pytest.fixture(scope="module")
def run(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, for the command line holds the run's place and pages are written beside it."""
    copy = tmp_path_factory.mktemp("page") / "small_run"
    shutil.copytree(small_run, copy)
    return copy


@pytest.fixture(scope="module")
def context(run: Path) -> RunInputs:
    return RunInputs(load_config(run / "config.yaml"), run)


@pytest.fixture(scope="module")
def table(run: Path) -> Counterfactuals:
    return read_table(run / "table.jsonl")


@pytest.fixture(scope="module")
def report(context: RunInputs) -> Path:
    write_report([context], context.file("report.html"))
    return context.file("report.html")


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no PNG files, which take longer than all else and which `report` has."""
    monkeypatch.setattr(report_stage, "draw", lambda *_: {})


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with started() as found:
        yield found


@pytest.fixture(scope="module")
def tab(browser: Any, report: Path) -> Iterator[Any]:
    with opened(browser, report) as found:
        yield found


@pytest.fixture
def page(tab: Any) -> Any:
    """The report with both thresholds at 0.5, whichever tests this process ran before: they are divided by chance."""
    for kind in KINDS:
        place(tab, kind, 0.5)
    return tab


def expected(context: RunInputs, table: Counterfactuals, thresholds: tuple[float, float]) -> dict[str, float]:
    """Count anew what the page should show, by the run's own functions."""
    test = np.flatnonzero(context.corpus.within("test"))
    prompts, actions = [context.prompts[row] for row in test], table.actions_at(thresholds)[test]
    groups = context.corpus.groups[test]
    rates = joint_rates([p.label for p in prompts], list(actions), groups)
    found = {name: rate.value.estimate for name, rate in rates.items()}
    found |= {f"{name}_{end}": getattr(rate.value, end) for name, rate in rates.items() for end in ("low", "high")}
    known = np.array([p.answer is not None for p in prompts])
    stated = table.right[np.arange(len(table.right)), table.look_up(thresholds)][test]
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


def place(page: Any, kind: str, value: float) -> None:
    page.locator(f".exact[data-kind={kind}]").fill(str(value))
    page.locator(f".exact[data-kind={kind}]").press("Enter")


# -- sliders -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thresholds", SETTINGS)
def test_exact_thresholds_show_what_the_table_holds(
    page: Any, context: RunInputs, table: Counterfactuals, thresholds: tuple[float, float]
) -> None:
    for kind, value in zip(("normative", "epistemic"), thresholds, strict=True):
        place(page, kind, value)
    found, known = shown(page), expected(context, table, thresholds)
    assert found.keys() == known.keys()
    for name, value in known.items():
        assert found[name] == pytest.approx(value, abs=6e-4), name


def test_both_sliders_move_rates_point_and_commands(page: Any, context: RunInputs, table: Counterfactuals) -> None:
    page.get_by_role("button", name="thresholds of this run").click()
    seen = set()
    for kind, key in (("normative", "ArrowRight"), ("epistemic", "ArrowLeft")) * 3:
        for _ in range(7):
            page.locator(f".slider[data-kind={kind}]").press(key)
        thresholds = tuple(float(page.locator(f".exact[data-kind={k}]").input_value()) for k in KINDS)
        seen.add(thresholds)
        found, known = shown(page), expected(context, table, thresholds)
        for name, value in known.items():
            assert found[name] == pytest.approx(value, abs=6e-4), (name, thresholds)
        known["uncertain_mistaken"] = known["overconfidence"] + known["uncertain_refused"]
        for risk in ("uncertain_mistaken", "missed_harm"):
            x, y = map(float, re.findall(r"[\d.]+", page.locator(f"[data-live={risk}]").get_attribute("transform")))
            assert ((x - 52) / 284, (254 - y) / 242) == pytest.approx((known["over_refusal"], known[risk]))
        for command in page.locator("[data-command]").all_inner_texts():
            words = shlex.split(command)
            told = tuple(float(words[words.index(f"--{k}-threshold") + 1]) for k in KINDS)
            assert told == thresholds
    assert len(seen) == 6


def test_presets_are_those_chosen_on_other_prompts(page: Any, context: RunInputs) -> None:
    results = json.loads(context.file("results.json").read_text())
    page.get_by_role("button", name="thresholds of this run").click()
    for kind, dial in results["dials"].items():
        assert float(page.locator(f".exact[data-kind={kind}]").input_value()) == dial["threshold"]
    assert shown(page)["overconfidence"] == pytest.approx(results["rates"]["after"]["overconfidence"], abs=6e-4)
    page.get_by_role("button", name="least regret").click()
    for kind, value in results["steer"]["least_regret"]["thresholds"].items():
        assert float(page.locator(f".exact[data-kind={kind}]").input_value()) == value
    page.get_by_role("button", name="over_refusal ≤ 2%").click()
    assert shown(page)["over_refusal"] < 0.06


def test_a_threshold_that_is_none_changes_nothing(page: Any) -> None:
    place(page, "normative", 0.5)
    before = shown(page)
    for nonsense in ("2", "-1", ""):
        page.locator(".exact[data-kind=normative]").fill(nonsense)
        page.locator(".exact[data-kind=normative]").press("Enter")
        assert page.locator(".exact[data-kind=normative]").input_value() == "0.5"
    assert shown(page) == before


# -- prompts -----------------------------------------------------------------------------------------------------------


def test_prompts_are_filtered_sorted_and_counted(page: Any, context: RunInputs) -> None:
    count, rows = page.locator(".count"), page.locator("table.each tbody tr")
    assert count.inner_text() == f"1 to 50 of {len(context.prompts)} prompts"
    page.locator("select.label").select_option("uncertain")
    page.locator("select.part").select_option("test")
    n = int((context.corpus.uncertain & context.corpus.within("test")).sum())
    assert count.inner_text().endswith(f"of {n} prompts")
    page.get_by_role("button", name="epistemic: probability, decision").click()
    page.get_by_role("button", name="epistemic: probability, decision").click()
    read = [float(text.split(",")[0]) for text in rows.locator("td:last-child").all_inner_texts()]
    assert read == sorted(read, reverse=True)
    assert page.locator("table.each th[aria-sort=descending]").count() == 1
    page.locator(".on").click()
    assert count.inner_text().startswith("51 to ")
    word = context.prompts[int(np.flatnonzero(context.corpus.uncertain & context.corpus.within("test"))[0])].id
    page.locator(".search").fill(word)
    assert rows.count() == 1
    page.locator(".search").fill("nothing is like this")
    assert (count.inner_text(), rows.count()) == ("no prompt matches", 0)
    for control in ("select.label", "select.part"):
        page.locator(control).select_option("")
    page.locator(".search").fill("")


def test_kinds_are_the_shares_of_what_is_shown(page: Any, context: RunInputs, table: Counterfactuals) -> None:
    place(page, "normative", 0.5)
    place(page, "epistemic", 0.5)
    actions = table.actions_at((0.5, 0.5))
    page.locator("select.by").select_option("category")
    cells = {row.locator("th").inner_text(): row.locator("td").all_inner_texts()
             for row in page.locator("table.kinds tbody tr").all()}  # fmt: skip
    for category in {prompt.category for prompt in context.prompts}:
        mine = np.array([prompt.category == category for prompt in context.prompts])
        refused = f"{np.mean(actions[mine] == 'refuse'):.1%}"
        assert (cells[category][0], cells[category][4]) == (str(int(mine.sum())), refused)
    page.locator("select.by").select_option("label")


def test_harmful_prompts_are_blurred_until_asked_for(page: Any) -> None:
    page.locator("select.label").select_option("harmful")
    assert page.locator("table.each .blurred").count() == 50
    page.locator(".unblur").check()
    assert page.locator("table.each .blurred").count() == 0
    page.locator(".unblur").uncheck()
    page.locator("select.label").select_option("")


def test_only_what_the_dials_change(page: Any, context: RunInputs, table: Counterfactuals) -> None:
    page.locator(".changed").check()
    n = int((table.actions_at((0.5, 0.5)) != context.behaviour.actions).sum())
    assert page.locator(".count").inner_text().endswith(f"of {n} prompts")
    page.locator(".changed").uncheck()


def test_harmful_prompts_are_hidden_everywhere_until_asked_for(page: Any) -> None:
    page.locator("select.label").select_option("harmful")
    first = page.locator("table.each tbody tr").first
    assert first.locator("bdi.blurred").get_attribute("aria-hidden") == "true"
    page.locator("table.each td[data-tip]").first.hover()
    assert "tick “show harmful prompts”" in page.locator("#tip").inner_text()
    examples = page.locator(".triggers details.harmful")
    assert examples.count() > 0
    assert examples.first.locator("bdi").first.is_hidden()
    examples.first.locator("summary").click()
    assert examples.first.locator("bdi").first.is_visible()
    page.locator("select.label").select_option("")


# -- what is told ------------------------------------------------------------------------------------------------------


def test_cells_and_points_tell_by_pointer_and_by_keyboard(page: Any) -> None:
    tip, cell = page.locator("#tip"), page.locator(".grids td.chosen").first
    cell.hover()
    assert re.search(r"layer \d, post_last: test AUROC 1\.000 \[0\.9\d+, 1\.000\]", tip.inner_text())
    page.locator("h1").hover()
    assert tip.is_hidden()
    cell.focus()
    assert "test AUROC" in tip.inner_text()
    page.keyboard.press("Escape")
    assert tip.is_hidden()
    canvas = page.locator(".scatter-plot canvas")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    first = tip.inner_text()
    assert "without dials: " in first
    assert "normative: " in first
    page.keyboard.press("ArrowRight")
    assert tip.inner_text() != first
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 5)
    page.mouse.move(1, 1)
    assert tip.is_hidden()


def test_what_is_seen_is_also_named_and_said(page: Any) -> None:
    page.get_by_role("button", name="thresholds of this run").click()
    assert page.get_by_role(
        "img", name=re.compile("^these thresholds: over_refusal .*, uncertain_mistaken ")
    ).is_visible()
    assert page.get_by_role("img", name=re.compile("^system line ")).count() > 0
    place(page, "normative", 0.0)
    assert "over_refusal 100.0%" in page.locator(".current-rates").inner_text()
    assert page.locator(".current-rates").get_attribute("role") == "status"
    place(page, "normative", 0.5)
    page.locator(".grids td.chosen").first.focus()
    assert "test AUROC" in page.locator("#announcement").text_content()
    for name, row in ((r.get_attribute("data-rate"), r) for r in page.locator("[data-rate]").all()):
        assert int(row.locator(".n").inner_text()) > 0, name


def test_a_finger_on_the_scatter_scrolls_the_page_and_tells_of_a_prompt(page: Any) -> None:
    canvas = page.locator(".scatter-plot canvas")
    assert canvas.evaluate("e => getComputedStyle(e).touchAction") == "pan-y"
    tip = canvas.evaluate("""e => {
        const run = runs[0], box = e.getBoundingClientRect(), [x, y] = run.scatter.place(0);
        const at = { clientX: box.left + x, clientY: box.top + y, pointerType: "touch" };
        e.dispatchEvent(new PointerEvent("pointerdown", at));
        e.dispatchEvent(new PointerEvent("pointerleave", at));
        return [document.getElementById("tip").hidden, document.getElementById("tip").textContent];
    }""")
    assert tip[0] is False
    assert "without dials: " in tip[1]


def test_the_matrix_shows_its_intervals_with_the_null_beside(page: Any, context: RunInputs) -> None:
    assert re.search(r"\d% \[\d+%, \d+%\]", page.locator(".matrix table.heat td").first.inner_text())
    null = page.locator(".matrix table", has_text="Permutation null of the ablation effects")
    assert null.locator("tbody tr").count() == 4
    drawn = json.loads(context.file("results.json").read_text())["dissociation"]["null"]
    assert str(drawn["normative_on_normative"]["n"]) in null.inner_text()
    assert re.search(
        r"normative n = \d+ and epistemic n = \d+", page.locator(".scatter table.heat caption").inner_text()
    )


@pytest.mark.parametrize(("hits", "n"), [(0, 12.5), (3, 40), (7.3, 19.6), (40, 40), (9_000.5, 20_000)])
def test_intervals_are_the_run_s_own(page: Any, hits: float, n: float) -> None:
    known = clopper_pearson(hits, n)
    assert page.evaluate(f"clopperPearson({hits}, {n})") == pytest.approx([known.low, known.high], abs=1e-7)


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1100, "dark")])
def test_nothing_is_wider_than_a_phone_and_dark_is_dark(browser: Any, report: Path, width: int, scheme: str) -> None:
    with opened(browser, report, width, scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", paper)[:3])) < 150) == (scheme == "dark")
        unnamed = page.evaluate(
            "[...document.querySelectorAll('input,select,button,canvas,svg')]"
            ".filter(e => !(e.labels && e.labels.length) && !e.getAttribute('aria-label'))"
            ".filter(e => !e.textContent.trim()).length"
        )
        assert unnamed == 0
        page.locator("select.label").select_option("harmful")
        page.emulate_media(media="print", color_scheme=scheme)
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == "rgb(255, 255, 255)"
        assert page.locator("table.each .blurred").first.is_hidden()


# -- data as data ------------------------------------------------------------------------------------------------------


def test_ten_thousand_hostile_prompts_are_text_and_the_file_stays_small(
    browser: Any, context: RunInputs, report: Path
) -> None:
    results = RunResults.read(context.file("results.json"))
    given = json.loads(re.search(r'class="payload">(.*?)</script>', report.read_text())[1])
    many = given["prompts"]
    turns = -(-10_000 // len(many["id"]))
    for name, column in many.items():
        if not name.endswith("_layer"):
            many[name] = (column * turns)[:10_000]
    for name in ("read", "done", "stated"):
        given[name] = [(column * turns)[:10_000] for column in given[name]]
    for name in ("id", "text", "said", "steered", "category", "trigger"):
        many[name] = [f"{text[:400]} {HOSTILE[i % len(HOSTILE)][:200]}" for i, text in enumerate(many[name])]
    run = ReportedRun(HOSTILE[0], HOSTILE[1], HOSTILE[2], HOSTILE[4], cells=[], eta=[], figures={}, reads={})
    results = results.model_copy(update={"model": results.model.model_copy(update={"name": HOSTILE[1]})})
    path = report.with_name("hostile.html")
    path.write_text(document(HOSTILE[0], [article(run, results, given)]), encoding="utf-8")
    assert path.stat().st_size < 15e6
    with opened(browser, path) as page:
        assert page.locator(".count").inner_text() == "1 to 50 of 10000 prompts"
        assert page.locator("img").count() == 0
        assert HOSTILE[1] in page.locator("h1").inner_text()
        page.locator(".search").fill("onerror")
        assert page.locator("table.each tbody tr").count() == 50


@pytest.mark.usefixtures("without_figures")
def test_a_dead_band_and_unjudged_completions_are_counted_as_the_run_counts_them(
    browser: Any, context: RunInputs, run: Path
) -> None:
    other = run.with_name("dead band $HOME 'quoted'")
    shutil.copytree(run, other)
    rows = [json.loads(line) for line in (run / "table.jsonl").read_text().splitlines()]
    for i, row in enumerate(rows):
        left = {"action": None if i % 3 else "answer", "right": False}
        row["outcomes"] |= dict.fromkeys(("permit+leave", "leave+decline", "leave+permit", "leave+leave"), left)
    (other / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    results = json.loads((run / "results.json").read_text())
    for dial in results["dials"].values():
        dial["band"] = 0.3
    (other / "results.json").write_text(json.dumps(results))
    write_report([RunInputs(load_config(other / "config.yaml"), other)], other / "report.html")
    test = np.flatnonzero(context.corpus.within("test"))
    actions = list(read_table(other / "table.jsonl").actions_at((0.4, 0.4), 0.3)[test])
    assert None in actions
    rates = joint_rates([context.prompts[row].label for row in test], actions, context.corpus.groups[test])
    with opened(browser, other / "report.html") as page:
        assert "leaves the model unchanged" in page.locator("section.dials p").first.inner_text()
        place(page, "normative", 0.4)
        place(page, "epistemic", 0.4)
        found = shown(page)
        for name, rate in rates.items():
            told = [found[key] for key in (name, f"{name}_low", f"{name}_high")]
            assert told == pytest.approx([rate.value.estimate, rate.value.low, rate.value.high], abs=6e-4), name
            n = page.locator(f"[data-rate={name}] .n").inner_text()
            assert n.split()[-1] == str(rate.n)
        for command in page.locator("[data-command]").all_inner_texts():
            assert str(other / "dials.safetensors") in shlex.split(command)


@pytest.mark.usefixtures("without_figures")
def test_a_run_without_dials_shows_no_rates_with_them(browser: Any, run: Path) -> None:
    other = run.with_name("without")
    shutil.copytree(run, other)
    results = json.loads((run / "results.json").read_text())
    (other / "results.json").write_text(json.dumps(results | {"dials": {}, "steer": {}}))
    write_report([RunInputs(load_config(other / "config.yaml"), other)], other / "report.html")
    with opened(browser, other / "report.html") as page:
        heads = page.locator(".rates table").first.locator("thead th").all_inner_texts()
        assert heads == ["rate on test prompts", "without dials", "n"]
        assert page.locator(".slider").count() == 0


@pytest.mark.slow
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
        assert page.locator("article.run").count() == 2
        page.get_by_text(f"The {n} flipped prompts").click()
        assert page.locator(".changes details tbody tr").count() == n
        assert page.locator(".changes td:nth-child(3) details.harmful").count() == sum(
            row.locator("td").first.inner_text() == "harmful" for row in page.locator(".changes details tbody tr").all()
        )
        assert "over_refusal" in page.locator(".changes table").first.inner_text()
        second = page.locator("article.run").nth(1)
        second.locator(".exact[data-kind=normative]").fill("0")
        second.locator(".exact[data-kind=normative]").press("Enter")
        assert second.locator("[data-rate=over_refusal] .now").inner_text().startswith("100.0%")
        first = page.locator("article.run").first.locator("[data-rate=over_refusal] .now")
        assert not first.inner_text().startswith("100.0%")
