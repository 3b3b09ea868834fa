"""Size of the report page for 10,000 prompts, and its time until use in headless Chromium.

Keys: `megabytes`, `seconds_to_use` (median time until prompts, scatter and rates under the dials are drawn),
`ratio_vs_empty_page` (the same divided by an empty page, opened in turns). Prompts are synthetic, 100 to 400 characters
with answers of 200; the other parts of a run's page (tables, two figures) add about 0.3 MB.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import main
from experiments.dials.results import SteerResult
from experiments.dials.surface import COUNTED
from experiments.report.markup import json_script
from experiments.report.page.article import PROMPTS, scatter, section
from experiments.report.page.document import document
from experiments.report.page.sliders import Controls, sliders
from extract.errors import UserError
from extract.prompts.prompt import LABELS
from scoring.actions import ACTIONS
from scoring.rates import RATES, RatesRecord

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
OUTCOMES = ["decline", "permit+decline", "permit+permit"]


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
            "seconds_to_use": float(np.median(seconds[:, 0])),
            "ratio_vs_empty_page": float(np.median(seconds[:, 0] / seconds[:, 1])),
        }


def page(n: int) -> str:
    """Return a page of n prompts with both sliders, the scatter and the tables."""
    given = payload(n)
    rates: dict[str, Any] = {name: 0.5 for name in RATES}
    rates |= {f"{name}_n": n // 3 for name in RATES} | {f"{name}_ci": [0.4, 0.6] for name in RATES}
    controls, joint = Controls.model_validate(given), RatesRecord.model_validate(rates)
    body = section("dials", "Choose thresholds", sliders(controls, SteerResult(), joint, joint)) + scatter(given)
    body += section("prompts", "The prompts", PROMPTS)
    return document("bench", [f'<article class="run"><h1>bench</h1>{body}{json_script("payload", given)}</article>'])


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
        "known": "".join(rng.choice(["0", "1"], n)),
        "stated": "".join(rng.choice(["0", "1"], n)),
        "before": rng.integers(len(ACTIONS), size=n).tolist(),
        "said": texts(150, 200),
        "after": rng.integers(len(ACTIONS), size=n).tolist(),
        "steered": texts(150, 200),
        "x": rng.normal(size=n).tolist(),
        "y": rng.normal(size=n).tolist(),
        "x_layer": 4,
        "y_layer": 4,
    }
    kinds = {name: {"label": LABELS.index(label), "counts": [0], "intervals": [[0.1, 0.2]] * (n + 1)}
             for name, (label, _) in COUNTED.items()}  # fmt: skip
    return {
        "actions": list(ACTIONS),
        "labels": list(LABELS),
        "prompts": prompts,
        "dials": ["normative", "epistemic"],
        "band": 0.0,
        "outcomes": OUTCOMES,
        "read": read.tolist(),
        "done": rng.integers(len(ACTIONS), size=(3, n)).tolist(),
        "stated": ["".join(rng.choice(["0", "1"], n)) for _ in OUTCOMES],
        "set": {"normative": stops[20], "epistemic": stops[20]},
        "stops": {"normative": stops, "epistemic": stops},
        "presets": [],
        "rates": kinds,
        "credit": None,
        "commands": {"answer": "refusal generate"},
    }


def _opened(pages: list[Path], rounds: int) -> np.ndarray:
    """Return the seconds until each page can be used, (rounds, pages); the first opening of each is a warm-up."""
    from playwright.sync_api import sync_playwright

    found = next((place for name in CHROMIUM if (place := shutil.which(name))), None)
    if found is None:
        raise UserError("Chromium is not installed; run: apt install chromium")
    seconds = np.zeros((rounds + 1, len(pages)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        for turn in range(rounds + 1):
            for i, path in enumerate(pages):
                tab = browser.new_page()
                started = time.perf_counter()
                tab.goto(path.as_uri())  # returns once the page's script has run
                tab.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")  # drawn
                seconds[turn, i] = time.perf_counter() - started
                tab.close()
        browser.close()
    return seconds[1:]


if __name__ == "__main__":
    main("page", measure)
