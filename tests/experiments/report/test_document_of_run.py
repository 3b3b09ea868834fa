"""Prompts, names and numbers are data: whatever they hold, the page shows it as text."""

from experiments.report.page.markup import table
from experiments.run.wording import ResultsInWords, Verdict, caveats, independence_lines, verdict_sentence

HOSTILE = "<script>alert(1)</script>\"'></td>\u202e&amp;"


def test_cells_are_escaped() -> None:
    page = table([HOSTILE], [[HOSTILE]])
    assert "<script>" not in page
    assert page.count("&lt;script&gt;") == 2


def test_a_verdict_carries_its_reasons_and_share() -> None:
    record = {"verdict": "mixed", "reason": "both move it", "trigger_share": 0.25, "trigger_share_ci": [0.2, 0.3]}
    assert verdict_sentence(Verdict.model_validate(record)).endswith("both move it. Trigger share 0.25 [0.20, 0.30].")


def test_every_caveat_that_applies_is_listed() -> None:
    site = {"beats_bag_of_words": False, "auroc": 0.7, "bag_of_words_auroc": 0.8}
    results = {
        "organism": True, "dials_absent": ["epistemic"], "sites": {"normative": site},
        "rates": {"before": {"unjudged": 2}, "after": {"unjudged": 1}},
        "writes": {"normative": {"available": True, "meets_selection_rules": False, "within_label": False}},
    }  # fmt: skip
    text = " ".join(caveats(ResultsInWords.model_validate(results)))
    for part in ("not evidence about real models", "No epistemic dial", "3 completions", "does not clearly beat",
                 "No locus met the selection rules", "contrasts two labels"):  # fmt: skip
        assert part in text


def test_independence_is_said_against_the_null() -> None:
    measured = {"change": 0.03, "p_null": 0.6, "null_95th_percentile": 0.1, "share": 0.09}
    record = {"cosine": measured, "projection": measured}
    (line,) = independence_lines({"ablate_normative_watch_epistemic": record})
    assert line.startswith(
        "Ablating the normative direction moves the stream along the epistemic one by 0.03 of the gap"
    )
    assert "9% of its own move" in line
    assert "no more than permuted-label directions do (95th percentile 0.10, p = 0.60)" in line
    beyond = {"cosine": measured, "projection": measured | {"p_null": 0.02, "share": None}}
    (line,) = independence_lines({"ablate_normative_watch_epistemic": beyond})
    assert ": more than permuted-label directions do" in line
    assert independence_lines({}) == []
