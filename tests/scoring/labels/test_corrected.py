"""`refusal score --labels`: rates corrected by people's labels, from files to the scorecard."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from probes.statistics.intervals import Estimate
from scoring.labels.corrected import ACCURACY, LEAST, Corrected, corrected_rates, error_bands
from scoring.labels.draw import draw_rows
from scoring.labels.label_file import Label
from scoring.ledger import Ledger, workspace
from scoring.rates import RATES, JointRates
from scoring.score_file import score_file
from scoring.scorecard import Scorecard
from scoring.scored_file import load_scored
from scoring.wording import card_lines, corrected_lines
from tests.support.completion_files import jsonl
from tests.support.labelled_completions import COMPLETIONS, LABEL, TRUTH, write_completions
from tests.support.one_line import mistake

TRUE_RATES = {
    name: float(np.mean([action in actions for i, action in enumerate(TRUTH) if LABEL[i % 3] == label]))
    for name, (label, actions) in RATES.items()
}


def scored(folder: Path, n: int = 600, **options: Any) -> Scorecard:
    return score_file(write_completions(folder / "completions.jsonl", n), folder / "scores", **options)


def corrected(folder: Path, *rows: dict[str, Any]) -> tuple[Scorecard, Corrected, JointRates]:
    card = scored(folder, labels=jsonl(folder / "labels.jsonl", *rows))
    return card, card.corrected, card.rates


def problem(folder: Path, *rows: dict[str, Any]) -> str:
    scored(folder, 120)
    before = {path.name: path.read_bytes() for path in (folder / "scores").iterdir()}
    said = mistake(scored, folder, 120, labels=jsonl(folder / "labels.jsonl", *rows))
    assert {path.name: path.read_bytes() for path in (folder / "scores").iterdir()} == before
    return said


def by_hand(n: int = 200, **also: Any) -> list[dict[str, Any]]:
    """Right labels of the first n completions, which are in random order."""
    return [{"id": f"p{i}", "action": TRUTH[i], **also} for i in range(n)]


def test_right_labels_of_all_give_the_true_rates(tmp_path: Path) -> None:
    """The judge's mistakes are gone: the estimates are the true rates, and the judged ones are not."""
    _, of_labels, judged = corrected(tmp_path, *by_hand(600))
    for name, true in TRUE_RATES.items():
        found = of_labels.rates[name]
        assert found.rate.estimate == pytest.approx(true, abs=1e-12)
        assert found.rate.n == found.labels == 200
        assert found.rate.low <= true <= found.rate.high  # type: ignore[operator]
        assert found.labels_to_halve is None  # there are no more completions to label
        assert (found.judged_wrongly > 0) == (judged.of(name).estimate != true)
    assert judged.of("missed_harm").estimate != of_labels.rates["missed_harm"].rate.estimate


@pytest.mark.slow
@pytest.mark.parametrize(("stratify", "against"), [(False, False), (True, False), (False, True)])
def test_the_correction_is_unbiased_over_draws(tmp_path: Path, stratify: bool, against: bool) -> None:
    """Also where rare actions, or disagreement, are drawn more often; without their weights it would be wrong."""
    scored(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "scores" / "scored.jsonl").open()]
    another = [row | {"action": TRUTH[int(row["id"][1:])]} for row in rows]  # a judge that never errs
    (tmp_path / "another.jsonl").write_text("".join(json.dumps(row) + "\n" for row in another))
    other = tmp_path / "another.jsonl" if against else None
    found: dict[str, list[float]] = {name: [] for name in RATES}
    covered = dict.fromkeys(RATES, 0)
    with workspace() as connection:
        ledger = Ledger(connection)
        load_scored(tmp_path / "scores", ledger)
        for seed in range(40):
            labels = [
                Label(id=row.id, action=TRUTH[int(row.id[1:])], inclusion=row.inclusion)
                for row in draw_rows(tmp_path / "scores", 150, seed, stratify=stratify, against=other).rows
            ]
            for name, rate in corrected_rates(ledger, labels).rates.items():
                assert rate.rate.known
                found[name].append(rate.rate.estimate)
                covered[name] += rate.rate.low <= TRUE_RATES[name] <= rate.rate.high  # type: ignore[operator]
    for name, true in TRUE_RATES.items():
        error = np.std(found[name]) / np.sqrt(len(found[name]))
        assert abs(np.mean(found[name]) - true) < 3 * error + 0.003, name
        assert covered[name] >= 38, name


def test_a_label_weighs_one_over_its_inclusion_probability(tmp_path: Path) -> None:
    """Of the benign completions that the judge counts as answered, 30 labels weigh 1 and 10 labels weigh 3."""
    scored(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "scores" / "scored.jsonl").open()]
    benign = [row for row in rows if row["label"] == "benign"]
    declined = [row["id"] for row in benign if row["action"] in ("refuse", "abstain")]
    answered = [row["id"] for row in benign if row["id"] not in declined]
    labels = [{"id": i, "action": "refuse", "inclusion": 1} for i in declined]
    labels += [{"id": i, "action": "answer", "inclusion": 0.9} for i in answered[:30]]
    labels += [{"id": i, "action": "refuse", "inclusion": 0.3} for i in answered[30:40]]
    _, of_labels, _ = corrected(tmp_path, *labels)
    judged = len(declined) / len(benign)
    expected = judged * 1 + (1 - judged) * 10 * 3 / (30 + 10 * 3)
    assert of_labels.rates["over_refusal"].rate.estimate == pytest.approx(expected)


def test_two_annotators_have_an_agreement_and_each_half_of_what_they_disagree_on(tmp_path: Path) -> None:
    first = by_hand(90, annotator="ann")
    second = [row | {"annotator": "bob"} for row in first[:60]]
    benign = [i for i in range(0, 60, 3) if TRUTH[i] == "answer"][:4]
    for i in benign:
        second[i] = second[i] | {"action": "refuse"}
    card, of_both, _ = corrected(tmp_path, *first, *second)
    _, of_one, _ = corrected(tmp_path, *first)
    assert of_both.annotators == {"ann": 90, "bob": 60}
    (pair,) = of_both.agreement
    assert pair.annotators == ("ann", "bob")
    assert pair.agreement.n == 60
    assert pair.agreement.estimate == pytest.approx(56 / 60)
    assert 0.5 < pair.kappa.estimate < 1  # type: ignore[operator]
    assert of_one.agreement == ()
    one, both = (found.rates["over_refusal"].rate.estimate for found in (of_one, of_both))
    assert one < both < one + 4 / 30
    assert any("ann and bob: same action 93.3%" in line for line in card_lines(card))


def test_a_rate_with_too_few_labels_is_null_and_never_guessed(tmp_path: Path) -> None:
    rows = [row for row in by_hand(180) if int(row["id"][1:]) % 3 == 0]
    card, of_labels, judged = corrected(tmp_path, *rows)
    assert of_labels.rates["over_refusal"].rate.known
    assert not of_labels.rates["missed_harm"].rate.known
    assert of_labels.rates["missed_harm"].labels == 0
    lines = list(corrected_lines(of_labels, judged))
    assert sum("not enough labels (0; at least 20 are needed)" in line for line in lines) == 3
    assert set(card.judge_error_band) == {"missed_harm"}  # what labels do not correct keeps its band


def test_labels_that_are_no_random_draw_give_no_rate(tmp_path: Path) -> None:
    """Only completions that the judge counts as answers were labelled: nothing is known of the others."""
    answers = ("Use a screwdriver", "What a lovely day", "She was a painter")
    rows = [row for row in by_hand(600) if COMPLETIONS[int(row["id"][1:])].startswith(answers)]
    _, of_labels, judged = corrected(tmp_path, *rows)
    assert not of_labels.rates["missed_harm"].rate.known
    assert any("no random draw" in line for line in corrected_lines(of_labels, judged))


def test_a_csv_of_id_and_action_is_read(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("id,action\n" + "".join(f"{r['id']},{r['action']}\n" for r in by_hand(100)))
    _, of_labels, _ = corrected(tmp_path, *by_hand(100))
    assert scored(tmp_path, labels=tmp_path / "labels.csv").corrected == of_labels


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "nobody", "action": "answer"}, "the labels have id 'nobody', but no completion has it"),
        ({"id": "p50", "sample": "7", "action": "answer"}, "the labels have id 'p50', sample '7'"),
        ({"id": "p0", "action": "answer"}, "line 41: id 'p0' is already labelled by unnamed on line 1"),
        ({"id": "p50", "action": "obey"}, "line 41: field 'action' is 'obey'; expected one of answer, "),
        ({"id": "p50"}, "line 41: field 'action' is None"),
        ({"action": "answer"}, "line 41: field 'id' is None"),
        ({"id": "p50", "action": "answer", "inclusion": 0.5}, "line 41: field 'inclusion' must be in all rows or in"),
        ({"id": "p50", "action": "answer", "inclusion": 2}, "line 41: field 'inclusion' is 2; expected a probability"),
        ({"id": "p50", "action": "answer", "inclusion": "x"}, "line 41: field 'inclusion' is 'x'; expected"),
        ({"id": "p50", "action": "answer", "seed": "x"}, "line 41: field 'seed' is 'x'; expected a whole number"),
    ],
)
def test_a_wrong_label_is_one_line(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    assert said in problem(tmp_path, *by_hand(40), row)


def test_too_few_labels_and_labels_without_rates_are_one_line(tmp_path: Path, cli: Any) -> None:
    said = f"19 labelled completions count towards a rate; at least {LEAST} are needed"
    assert said in problem(tmp_path, *by_hand(19))
    plain = tmp_path / "plain.jsonl"
    plain.write_text('{"id": "p0", "text": "a?", "completion": "Sure."}\n')
    code, _, err = cli("score", str(plain), "--labels", str(tmp_path / "labels.jsonl"), "--out", str(tmp_path / "no"))
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert "rates need labelled prompts: --prompts FILE" in err
    assert not (tmp_path / "no").exists()


def test_labels_of_unjudged_completions_are_counted_as_unused(tmp_path: Path) -> None:
    path = write_completions(tmp_path / "completions.jsonl", 300)
    with path.open("a") as file:
        file.write(json.dumps({"id": "empty", "text": "a?", "label": "benign", "completion": None}) + "\n")
    rows = [*by_hand(120), {"id": "empty", "action": "other"}]
    card = score_file(path, tmp_path / "scores", labels=jsonl(tmp_path / "labels.jsonl", *rows))
    assert (card.corrected.labels, card.corrected.unused) == (120, 1)


def test_without_labels_the_band_is_around_the_judged_rate_and_not_called_a_correction(tmp_path: Path) -> None:
    card = scored(tmp_path)
    assert card.corrected is None
    for name, band in card.judge_error_band.items():
        value, (low, high) = card.rates.of(name).estimate, band.accuracy
        assert band.at_lowest_accuracy == (max(0, value - (1 - low)), min(1, value + (1 - low)))  # type: ignore[operator]
        assert band.at_highest_accuracy[1] == pytest.approx(value + (1 - high))  # type: ignore[operator]
    lines = [line for line in card_lines(card) if "judge-error band, not a correction" in line]
    assert len(lines) == len(card.judge_error_band) == len(ACCURACY["rules"])
    assert not any("corrected" in line for line in card_lines(card))


def test_a_judge_without_measured_error_and_a_rate_without_rows_have_no_band() -> None:
    rates = JointRates(over_refusal=Estimate(0.1, 0.0, 0.3, n=10))
    assert set(error_bands(rates, "rules")) == {"over_refusal"}
    assert error_bands(rates, "endpoint") == {}
