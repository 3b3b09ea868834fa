"""What `refusal dissociate` prints, from a record like those it writes."""

from pathlib import Path

import pytest

from experiments.dissociation.text import print_dissociation, tables
from experiments.report.dissociation_section import dissociation_section
from experiments.report.page.markup import table

CELL = {"estimate": 0.98, "low": 0.9, "high": 1.0, "n": 100}
EFFECT = CELL | {"p_null": 0.005, "p_corrected": 0.02, "onset": {"estimate": 12.3, "low": 11.0, "high": 13.6, "n": 30}}
RATE = CELL | {"unjudged": 0}
SIDE = {"benign_answering": RATE, "known_facts": RATE, "kl": CELL, "plain_text": CELL | {"uniform": 6.9},
        "wraps": {"story": {"refused": RATE, "answered": RATE, "unchanged": 0}}}  # fmt: skip
MATRIX = {"refusal_on_answered_benign": CELL, "abstention_on_answered_benign": CELL}
RECORD = {
    "verdict": "inconclusive",
    "reasons": ["epistemic: own minus other effect is 0.10 [0.02, 0.20]"],
    "effects": {"ablate_normative_on_normative": EFFECT,
                "ablate_epistemic_on_normative": EFFECT | {"p_corrected": None, "onset": None}},
    "matrix": {"none": MATRIX, "add_normative": MATRIX},
    "variants": [{"ablated": "normative", "variant": "zero/later/last_on", "stopped": {"normative": CELL},
                  "onset_effect": {"normative": 3.0}, "benign_answered": CELL | {"estimate": 0.03}}],
    "side_effects": {"none": SIDE, "ablate_normative": SIDE},
    "power": [{"cell": "own_minus_other_on_epistemic", "question": "does it lie above 0.15?",
               "unit": "independent decliners", "now": 22.3, "needed": 80, "more": 58, "obstacle": ""},
              {"cell": "ablate_normative_on_epistemic", "question": "does it lie below 0.15?",
               "unit": "independent decliners", "now": 22.3, "needed": None, "more": None, "obstacle": "no number"}],
    "dependence": {"dependent": True, "cosine": 0.61, "cosine_ci": [0.5, 0.7], "oblique": True,
                   "moved_under_ablation": ["ablate_normative_watch_epistemic"]},
}  # fmt: skip


def test_every_part_is_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    print_dissociation(Path("runs/x"), RECORD)
    out = capsys.readouterr().out
    for said in ("Inconclusive: epistemic: own minus other", "98% [90%, 100%]", "12.3 [11.0, 13.6]", "0.020",
                 "not tested", "later", "3%", "story", "0.980 (6.9)", "80", "no number", "cosine 0.61 [0.50, 0.70]",
                 "normative moves the epistemic one more than permuted-label directions do",
                 "so they are not independent", "runs/x/stages/dissociate.json"):  # fmt: skip
        assert said in out, said


def test_the_report_shows_the_same_tables_escaped() -> None:
    page = dissociation_section(RECORD | {"variants": [RECORD["variants"][0] | {"ablated": "<b>"}]}, table)  # type: ignore[index]
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert page.count("<table>") == sum(bool(rows) for _, _, rows in tables(RECORD)) == 6


def test_what_was_not_measured_has_no_table() -> None:
    nothing = RECORD | {"effects": {}, "variants": [], "power": [], "side_effects": {}, "matrix": {"none": MATRIX}}
    assert [rows for _, _, rows in tables(nothing)] == [[]] * 6
