"""Prompts, names and numbers are data: whatever they hold, the page shows it as text."""

from experiments.probing.geometry_results import Independence, StreamChange
from experiments.probing.results import SiteRecord, WriteRecord
from experiments.probing.text import independence_lines
from experiments.report.blocks import Table
from experiments.report.caveats import caveats
from experiments.report.page.document import blocks_html
from experiments.report.results import ModelRecord, Rates, RunResults
from experiments.run.wording import verdict_sentence
from probes.direction import Locus
from probes.statistics.intervals import Estimate
from scoring.rates import JointRates

HOSTILE = "<script>alert(1)</script>\"'></td>\u202e&amp;"


def test_cells_are_escaped() -> None:
    page = blocks_html([Table([HOSTILE], [[HOSTILE]])])
    assert "<script>" not in page
    assert page.count("&lt;script&gt;") == 3  # its name for screen readers, too


def test_a_verdict_carries_its_reasons_and_share() -> None:
    share = Estimate(0.25, 0.2, 0.3)
    assert verdict_sentence("mixed", ["both move it"], share).endswith("both move it. Trigger share 0.25 [0.20, 0.30].")


def test_every_caveat_that_applies_is_listed() -> None:
    site = SiteRecord.model_construct(
        beats_bag_of_words=False, auroc=0.7, auroc_ci=(0.6, 0.8), n_positive=9, n_negative=9, bag_of_words_auroc=0.8
    )
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
    assert line.startswith(
        "Ablating the normative direction moves the stream along the epistemic one by 0.03 of the gap"
    )
    assert "9% of its own move" in line
    assert "no more than permuted-label directions do (95th percentile 0.10, p = 0.60)" in line
    moved = change.model_copy(update={"p_null": 0.02, "share": None})
    beyond = found.model_copy(update={"projection": moved})
    (line,) = independence_lines({"ablate_normative_watch_epistemic": beyond})
    assert ": more than permuted-label directions do" in line
    assert independence_lines({}) == []
