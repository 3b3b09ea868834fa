"""What `refusal dissociate` prints, from a record like those it writes."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from experiments.dissociation.results import Dissociation, OpenedGates
from experiments.dissociation.text import (
    dissociation_blocks,
    gate_sentence,
    print_dissociation,
    rank_lines,
    rank_rows,
    strength_sentence,
    tables,
)
from experiments.rank.results import RankEstimate, Ranks
from experiments.run.behaviour import Basis
from experiments.run.wording import VERDICTS, verdict_sentence
from probes.statistics.intervals import Estimate
from tests.support.report_page import blocks_html

SHARE = {"estimate": 0.98, "low": 0.9, "high": 1.0, "n": 100}
EFFECT = SHARE | {"p_null": 0.005, "p_corrected": 0.02, "onset": {"estimate": 12.3, "low": 11.0, "high": 13.6, "n": 30}}
RATE = SHARE | {"unjudged": 0}
SIDE = {"benign_answering": RATE, "known_facts": RATE, "kl": SHARE, "plain_text": SHARE | {"uniform": 6.9},
        "wraps": {"story": {"refused": RATE, "answered": RATE, "unchanged": 0}}}  # fmt: skip
MATRIX = {"refusal_on_answered_benign": SHARE, "abstention_on_answered_benign": SHARE}
RECORD: dict[str, Any] = {
    "verdict": "inconclusive", "margin": 0.15, "alpha": 0.05, "variant": "affine/selected/last_on",
    "contrasts": {"normative": {"estimate": 0.9, "low": 0.8, "high": 1.0},
                  "epistemic": {"estimate": None, "low": None, "high": None}},
    "additions": None,
    "reasons": ["epistemic: own minus other effect is 0.10 [0.02, 0.20]"],
    "effects": [EFFECT | {"ablated": "normative", "behaviour": "normative"},
                SHARE | {"p_null": 0.005, "ablated": "epistemic", "behaviour": "normative"}],
    "matrix": {"none": MATRIX, "add_normative": MATRIX},
    "variants": [{"ablated": "normative", "variant": "zero/later/last_on", "stopped": {"normative": SHARE},
                  "onset_effect": {"normative": 3.0}, "benign_answered": SHARE | {"estimate": 0.03}}],
    "side_effects": {"none": SIDE, "ablate_normative": SIDE},
    "power": [{"cell": "own_minus_other_on_epistemic", "question": "does it lie above 0.15?",
               "unit": "independent decliners", "now": 22.3, "needed": 80, "more": 58, "obstacle": ""},
              {"cell": "ablate_normative_on_epistemic", "question": "does it lie below 0.15?",
               "unit": "independent decliners", "now": 22.3, "needed": None, "more": None, "obstacle": "no number"}],
    "dependence": {"dependent": True, "cosine": 0.61, "cosine_ci": [0.5, 0.7],
                   "locus": {"site": "resid_post", "layer": 4, "position": "post_last"}, "oblique": True,
                   "moved_under_ablation": ["ablate_normative_watch_epistemic"]},
}  # fmt: skip
FOUND = Dissociation.model_validate(RECORD)


def test_every_part_is_printed_shown_in_the_report_and_written_as_it_was_read(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    print_dissociation(Path("runs/x"), FOUND)
    out = capsys.readouterr().out
    for text in ("Inconclusive: epistemic: own minus other", "98% [90%, 100%]", "12.3 [11.0, 13.6]", "0.020",
                 "not tested", "later", "3%", "story", "0.980 (6.9)", "80", "no number", "cosine 0.61 [0.50, 0.70]",
                 "the normative one changes the stream along the epistemic one more than permuted-label directions do",
                 "so they are not independent", "runs/x/stages/dissociate.json"):  # fmt: skip
        assert text in out, text
    page = blocks_html(dissociation_blocks(FOUND))
    assert page.count("<table>") == len(tables(FOUND)) + 1 == 7  # and the numbers of the chart
    assert json.loads(json.dumps(FOUND.to_dict(), allow_nan=False)) == RECORD


def acted(condition: str, label: str, action: str) -> dict[str, Any]:
    return SHARE | {"condition": condition, "label": label, "action": action}


ACTED = [acted("line", label, did) for label in ("uncertain", "twin", "harmful") for did in ("abstain", "refuse")]
ELICITATION = {"line": "Say so.", "line_tokens": 3, "control": "Be kind.", "control_tokens": 3, "tried": [
    {"line": "Say so.", "tokens": 3, "uncertain": SHARE, "twins": SHARE, "difference": SHARE}],
    "shares": ACTED, "above_control": SHARE}  # fmt: skip
ELICITED: dict[str, Any] = {
    "elicitation": ELICITATION, "verdict": "double_dissociation", "reasons": ["of line"],
    "effects": [EFFECT | {"ablated": "epistemic", "behaviour": "normative", "condition": c} for c in ("plain", "line")],
    "turned": {"normative": SHARE},
    "transfer": [SHARE | {"action": "decline", "uncertain": 0.3, "twins": 0.1, "p_null": 0.05, "n_null": 19}],
}  # fmt: skip


@pytest.mark.parametrize("basis", get_args(Basis))
def test_what_a_line_elicits_is_said_once_with_its_cells_and_its_transfer(basis: Basis) -> None:
    page = blocks_html(
        dissociation_blocks(Dissociation.model_validate(RECORD | {"basis": basis, "elicited": ELICITED}))
    )
    said = (
        "Under “Say so.” (3 tokens; its control, “Be kind.”, has 3) the model abstains from 98% [90%, 100%] of tested"
    )
    for text in (said, "plain refusals", "refusals under the line", "harmful, abstained from under the line",
                 "98 [90, 100] points more of uncertain prompts than of twins declined in whatever words (gained 30%",
                 "98 [90, 100] points more of the uncertain ones"):  # fmt: skip
        assert text in page, text
    assert ("elicited by a system line: of line" in page) == (basis != "elicited")  # else it is the verdict's sentence


def test_what_is_not_elicited_is_one_sentence_or_none() -> None:
    for needed, line in ((True, "Elicited behaviour: no verdict, too few."), (False, "Elicited")):
        nothing = {"elicitation": {"reason": "too few", "needed": needed}, "reasons": ["too few"]}
        page = blocks_html(dissociation_blocks(Dissociation.model_validate(RECORD | {"elicited": nothing})))
        assert (line in page) == needed
        assert "under the line" not in page


def test_what_was_not_measured_is_not_said() -> None:
    own = "Ablating its own direction stops 90 points more of the refusals [80, 100] than ablating the other."
    assert strength_sentence(FOUND) == own
    nothing = {"effects": [], "variants": [], "power": [], "side_effects": {}, "matrix": {"none": MATRIX}}
    empty = Dissociation.model_validate(RECORD | nothing | {"contrasts": {}})
    assert (strength_sentence(empty), tables(empty)) == ("", [])


def estimate(value: float) -> Estimate:
    return Estimate(estimate=value, low=value - 0.1, high=value + 0.1, n=80)


def ranked(rank: int | None, *stopped: float, settled: bool = True, reason: str = "of x") -> RankEstimate:
    effects = [{"k": k, "stopped": estimate(x), "more": estimate(stopped[-1] - x)} for k, x in enumerate(stopped)]
    given = {"rank": rank, "settled": settled, "reason": reason, "margin": 0.15, "alpha": 0.05, "variant": "v"}
    given |= {"best": len(stopped) - 1 if stopped else None, "effects": effects, "write_direction": estimate(0.3)}
    return RankEstimate.model_validate(given)


TWO = Ranks(normative=ranked(2, 0.0, 0.36, 0.95), epistemic=ranked(1, 0.0, 0.99))


def test_a_line_says_what_one_and_what_more_directions_stop_and_no_more_than_is_shown() -> None:
    assert rank_lines(TWO) == [
        "Rank of the refusals: 2; one direction stops 36% (the verdict's 30%), 2 directions stop 95%. "
        "The search stopped because of x.",
        "Rank of the abstentions: 1; one direction stops 99%. The search stopped because of x.",
    ]
    lines = rank_lines(Ranks(normative=ranked(1, 0.0, 0.5, settled=False), epistemic=ranked(0, 0.0, 0.02)))
    assert "at least 1 (that more directions add less than 15% is not shown)" in lines[0]
    assert "0, no direction at this layer is shown to stop more than 15%; one direction stops 2%" in lines[1]
    (line, _) = rank_lines(Ranks(normative=ranked(None, reason="too few"), epistemic=ranked(1, 0.0, 0.99)))
    assert line == "Rank of the refusals: not tested, too few."
    rows = rank_rows(TWO)  # where several were tried
    assert rows == [["refusals", "1", "36% [26%, 46%]", "80", "59 [49, 69]"],
                    ["refusals", "2", "95% [85%, 105%]", "80", "0 [-10, 10]"]]  # fmt: skip
    one_each = Ranks(normative=TWO.epistemic, epistemic=TWO.epistemic)
    assert rank_lines(None) == rank_rows(None) == rank_rows(one_each) == []


def share(estimate: float | None, n: int) -> dict[str, Any]:
    return {"estimate": estimate, "low": 0.0, "high": 1.0, "n": n}


def gate(answered: dict[str, Any], other: dict[str, Any] | None, right: dict[str, Any]) -> dict[str, Any]:
    nothing = {"answered": share(None, 0), "answered_other_gate_open": None, "right": share(None, 0)}
    here = {"answered": answered, "answered_other_gate_open": other, "right": right}
    return {"applicable": True, "reason": "", "labels": {"benign": here, "uncertain": nothing}}


def test_the_sentence_gives_shares_or_the_reason_why_there_are_none() -> None:
    record = {"normative": gate(share(0.75, 8), share(0.25, 8), share(0.5, 2)),
              "epistemic": {"applicable": False, "reason": "no epistemic write direction: too few"}}  # fmt: skip
    assert gate_sentence(OpenedGates.model_validate(record), "wording") == (
        "Refused prompts, with the normative direction ablated: 75% [0%, 100%] of 8 benign prompts are answered "
        "(25% with the other ablated), 50% [0%, 100%] of the 2 with a known answer correctly. "
        "Prompts abstained from: not applicable, no epistemic write direction: too few."
    )
    alone = record | {"normative": gate(share(0.5, 4), None, share(None, 0))}
    assert "of 4 benign prompts are answered. Prompts" in gate_sentence(OpenedGates.model_validate(alone), "wording")


@pytest.mark.slow
def test_an_open_gate_lets_declined_prompts_through_and_the_other_gate_does_not(quickstart) -> None:
    results = json.loads((quickstart / "results.json").read_text())
    found = results["could_have_answered"]
    assert found == json.loads((quickstart / "stages/gate_open.json").read_text())
    for kind, label in (("normative", "benign"), ("epistemic", "uncertain")):
        here = found[kind]["labels"][label]
        assert here["answered"]["n"] >= 20
        assert here["answered"]["low"] > 0.8
        assert here["answered_other_gate_open"]["high"] < 0.2  # the control
        assert here["answered"]["change"]["low"] > 0.6
        assert here["right"]["n"] == 0  # the organism's requests have no right answer, nor have unknown people
    assert "Could it have answered?" in (quickstart / "stdout.txt").read_text()
    assert "uncertainty" not in results  # only where the configuration asks for it


def test_a_basis_that_is_not_wording_is_named_with_the_verdict() -> None:
    sentences = [verdict_sentence("no_effect", ["why"], basis=basis) for basis in get_args(Basis)]
    assert sentences[0] == f"{VERDICTS['no_effect']}: why."
    assert [", kinds by reason: " in sentences[1], ", elicited by a system line: " in sentences[2]] == [True, True]
