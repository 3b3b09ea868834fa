"""Size of the report page for 10,000 prompts, and its time until use in headless Chromium.

Keys: `megabytes`, `seconds_to_use` (median time until the prompts, the rates under the dials and the charts in view are
drawn), `seconds_to_all` (until every chart of the page is drawn, the scatter plot of all prompts among them),
`ratio_vs_empty_page` (`seconds_to_use` divided by that of an empty page, which holds Vega's script too). Prompts are
synthetic, 100 to 400 characters with answers of 200; all other parts are those of a committed run.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import main
from experiments.charts.points import shape_of
from experiments.dials.results import COUNTED, MOST_PROMPTS
from experiments.probing.results import GridRow
from experiments.report.page.article import ReportedRun, article
from experiments.report.page.document import document
from experiments.report.page.payload import behaviours, encoded, inspect_logs
from experiments.report.page.summary import KNOWN_FACTS
from experiments.report.results import RunResults
from experiments.triggers.results import ProjectionRows
from extract.errors import UserError
from extract.prompts.prompt import LABELS
from extract.shipped import ROOT
from scoring.actions import ACTIONS
from tests.support.browser import CHROMIUM, started

RUN = ROOT / "tests" / "fixtures" / "small_run"
IN_VIEW = "figure.getBoundingClientRect().top < innerHeight"
DRAWN = """(async () => {
    for (const { charts } of runs) {
        await Promise.all(charts.figures.filter((figure) => WHICH).map((figure) => charts.draw(figure)));
    }
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
})()"""
OUTCOMES = ["decline+leave", "permit+decline", "permit+permit"]


def measure(quick: bool) -> dict[str, float]:
    """Make the page and open it, in turns with an empty page."""
    n, rounds = (500, 1) if quick else (10_000, 9)
    with tempfile.TemporaryDirectory() as folder:
        full, empty = Path(folder, "full.html"), Path(folder, "empty.html")
        full.write_text(page(n), encoding="utf-8")
        empty.write_text(document("empty", []), encoding="utf-8")
        seconds = _opened([full, empty], rounds)
        return {
            "megabytes": full.stat().st_size / 1e6,
            "seconds_to_use": float(np.median(seconds[:, 0, 0])),
            "seconds_to_all": float(np.median(seconds[:, 0, 1])),
            "ratio_vs_empty_page": float(np.median(seconds[:, 0, 0] / seconds[:, 1, 0])),
        }


def page(n: int) -> str:
    """Return the page of a finished run, with n synthetic prompts in place of its own."""
    cells = GridRow.table(RUN / "probes.parquet")
    eta = ProjectionRows.read(RUN / "stages" / "trigger_projection.json").rows
    run = ReportedRun("bench", "", "", cells, eta, reads={})
    return document("bench", [article(run, RunResults.read(RUN / "results.json"), payload(n))])


def payload(n: int) -> dict[str, Any]:
    """Return synthetic data for the page's script."""
    rng = np.random.default_rng(0)
    words = np.array(["how", "do", "i", "fix", "the", "engine", "destroy", "it", "safely", "who", "was", "novak"])

    def texts(low: int, high: int) -> list[str]:
        drawn = words[rng.integers(len(words), size=(n, high // 4))]
        return [" ".join(row)[:length] for row, length in zip(drawn, rng.integers(low, high, n).tolist(), strict=True)]

    read = rng.random((2, n))
    stops = sorted(read[0, :50].tolist())
    label = rng.integers(3, size=n)
    prompts = {
        "id": [f"prompt-{i:05d}" for i in range(n)],
        "text": texts(100, 400),
        "label": label.tolist(),
        "category": rng.choice(["a", "b", "c"], n).tolist(),
        "trigger": rng.choice(["", "destroy"], n).tolist(),
        "part": rng.choice(["train", "test"], n).tolist(),
        "before": rng.integers(len(ACTIONS), size=n).tolist(),
        "said": texts(150, 200),
        "why": texts(40, 80),
        "after": rng.integers(len(ACTIONS), size=n).tolist(),
        "steered": texts(150, 200),
        "why_steered": texts(40, 80),
        "words": {},
        "tokens": _tokens(rng, n),
        "x": rng.normal(size=n).tolist(),
        "y": rng.normal(size=n).tolist(),
        "x_layer": 4,
        "y_layer": 4,
    }
    cells = [[k / 100, f"{k / 100:.1%} [10.0%, 20.0%]", "100"] for k in range(100)]
    at = rng.integers(len(cells), size=len(stops) ** 2).tolist()
    declines = np.searchsorted(stops, read, side="right")
    return {
        "actions": list(ACTIONS),
        "shapes": [shape_of(action) for action in ACTIONS],
        "behaviours": behaviours(),
        "labels": list(LABELS),
        "prompts": prompts,
        "inspect": inspect_logs(RUN),
        "dials": ["normative", "epistemic"],
        "band": 0.0,
        "gate": [{"declines": row, "leaves": row} for row in declines.tolist()],
        "outcome_of": {name: place for place, name in enumerate(OUTCOMES)},
        "read": read.tolist(),
        "done": rng.integers(len(ACTIONS), size=(3, n)).tolist(),
        "set": {"normative": stops[20], "epistemic": stops[20]},
        "stops": {"normative": stops, "epistemic": stops},
        "presets": [],
        "surface": {name: {"cells": cells, "at": at} for name in [*COUNTED, KNOWN_FACTS, "right_action"]},
        "commands": {"answer": "refusal generate"},
    }


def _tokens(rng: np.random.Generator, n: int) -> dict[str, list[Any]]:
    """Return readings of as many prompts as a run stores, each of 60 tokens of the user's and 5 of the template."""
    text = "".join(rng.choice(list("etaoins"), 400))

    def of_dial() -> list[Any]:
        return [encoded(rng.normal(0, 4, 65).tolist()), [64], 1]

    return {
        str(i): [[f" {text[4 * k : 4 * k + 4]}" for k in range(65)], 60, 0, [of_dial(), of_dial()]]
        for i in range(min(n, MOST_PROMPTS))
    }


def _opened(pages: list[Path], rounds: int) -> np.ndarray:
    """Return seconds until each page can be used and until all is drawn, (rounds, pages, 2), after a warm-up each."""
    if CHROMIUM is None:
        raise UserError("Chromium is not installed; run: apt install chromium")
    seconds = np.zeros((rounds + 1, len(pages), 2))
    with started() as browser:
        for turn in range(rounds + 1):
            for i, path in enumerate(pages):
                tab = browser.new_page()
                opened = time.perf_counter()
                tab.goto(path.as_uri())  # returns once the page's script has run
                for part, which in enumerate((IN_VIEW, "true")):
                    tab.evaluate(DRAWN.replace("WHICH", which))
                    seconds[turn, i, part] = time.perf_counter() - opened
                tab.close()
    return seconds[1:]


if __name__ == "__main__":
    main("page", measure)
