"""Makes the pictures of the documentation from a finished run: screenshots of its page and of the live page of its
dials, and two of its figures.

    python -m tests.support.make_images runs/quickstart

From the repository's root; needs Chromium. The page and the figures of the run are written again first.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.report.stage import report
from experiments.run.config import load_config
from experiments.run.inputs import RunInputs
from extract.model.loading import load_model
from extract.shipped import ROOT
from steering.dial_file import read_dials
from tests.support.browser import started
from tests.support.planted_dials import BENIGN, ORGANISM, UNKNOWN
from tests.support.running_server import running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

IMAGES = ROOT / "docs" / "images"
FIGURES = {"grid": "grid_epistemic", "pareto": "pareto"}  # picture: figure of the run
DRAWN = "Promise.all(runs[0].charts.figures.map((figure) => runs[0].charts.draw(figure))).then(() => 1)"


@dataclass(frozen=True)
class Shot:
    width: int
    height: int
    prepare: Callable[[Page], None] = lambda page: None
    scheme: str = "light"


def open_row(page: Page) -> None:
    page.locator("select.change").select_option("refuse → answer")
    scored = page.evaluate("runs[0].list.chosen().find((i) => runs[0].prompts.words[i])")
    page.evaluate(f"runs[0].list.open({scored})")
    page.locator("section.prompts").evaluate("section => section.scrollIntoView()")


def open_tokens(page: Page) -> None:
    open_row(page)
    page.locator(".tokens").evaluate("part => part.scrollIntoView({ block: 'center' })")
    page.locator(".token-line").first.locator(".token").nth(3).hover()


def move_sliders(page: Page) -> None:
    page.get_by_role("button", name="least regret").click()
    page.locator(".dials").first.evaluate("part => part.scrollIntoView()")


def print_it(page: Page) -> None:
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")


SHOTS = {
    "report": Shot(1280, 800),
    "report-dark": Shot(1280, 800, scheme="dark"),
    "report-row": Shot(1280, 800, open_row),
    "report-tokens": Shot(1280, 460, open_tokens),
    "report-sliders": Shot(1280, 420, move_sliders),
    "report-phone": Shot(390, 800),
    "report-print": Shot(794, 1123, print_it),
}


def shoot_live(browser: Browser, dials: Path) -> None:
    with running(load_model(str(ORGANISM)), read_dials(dials)[0], ui=True) as served:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{served.url}/ui")
        page.locator(".slider").first.wait_for()
        for n, (text, threshold) in enumerate(((UNKNOWN, None), ("", "1"), (BENIGN, None)), 1):
            if text:
                page.locator("#prompt").fill(text)
                page.get_by_role("button", name="Ask").click()
            else:
                page.locator("[data-kind=epistemic] .exact").fill(threshold)
                page.locator("[data-kind=epistemic] .exact").press("Enter")
            page.locator(".answer-of").nth(n - 1).wait_for()
            if n == 2:
                page.get_by_role("button", name="Go on from answer 1").click()
        page.locator(".turn").first.locator(".token").nth(3).hover()
        page.screenshot(path=IMAGES / "live.png", full_page=True)
        page.close()


def main(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "quickstart")
        shutil.copytree(directory, run, ignore=shutil.ignore_patterns("generations.sqlite*"))
        report(RunInputs(load_config(run / "config.yaml"), run))
        for picture, figure in FIGURES.items():
            shutil.copy(run / "figures" / f"{figure}.png", IMAGES / f"{picture}.png")
        page_file = run / "report.html"
        hidden = page_file.read_text(encoding="utf-8").replace(str(run), "runs/quickstart")
        page_file.write_text(hidden, encoding="utf-8")
        with started() as browser:
            for name, shot in SHOTS.items():
                size = {"width": shot.width, "height": shot.height}
                page = browser.new_page(viewport=size, color_scheme=shot.scheme)
                page.goto(page_file.as_uri())
                page.evaluate(DRAWN)
                shot.prepare(page)
                page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
                page.screenshot(path=IMAGES / f"{name}.png")
                page.close()
            shoot_live(browser, run / "dials.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
