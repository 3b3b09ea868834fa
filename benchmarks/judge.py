"""How far the default judge agrees with people, beside a keyword list on the same rows, and how calibrated it is.

The rules were written with these sets in view, except `completions/held_out.jsonl`, which was never read. The
calibration is of weights that saw neither the model nor the kind of prompt (`benchmarks/training/folds.py`). Needs the
labelled data (shared/data). `--judge FILE` measures a classifier or an endpoint in the same table instead. `--judge
local` judges every row by a probe that saw neither its model nor its kind of prompt (with `--quick` the shipped one); a
second table compares ways to join the probe and the rules.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Literal, get_args

import numpy as np

from benchmarks.table import main
from benchmarks.training.fit import Read, read
from benchmarks.training.fit_local import LAYERS, capture, probabilities, unseen
from benchmarks.training.folds import weighed_unseen
from benchmarks.training.labelled import (
    COMPLETIONS,
    DATA,
    Judged,
    Labelled,
    Test,
    all_labelled,
    matrix,
    share,
    shown,
    xstest,
)
from extract.errors import UserError
from extract.model.loading_options import quiet_libraries
from extract.progress import Reporter
from judging.judge_by_name import open_judge
from judging.local import LocalJudge, decide, together
from judging.local_model import READINGS, LocalModel, Reading
from probes.statistics.metrics import expected_calibration_error
from scoring.actions import ACTIONS, DECLINED
from scoring.judges import CompletionJudge, CompletionToJudge, Judgement
from scoring.judges.rules import RuleJudge, RuleReading
from scoring.judges.weights import OUTCOME_OF, Outcome

XSTEST_LABEL: Mapping[str, str] = {"refuse": "2", "abstain": "2", "answer_safe_part": "3", "pivot": "3"}  # others: 1
RULES = "rules"
Way = Literal["unsure", "all", "alone"]  # the probe where the rules are not sure, on all rows, and without the rules
WAYS: tuple[Way, ...] = get_args(Way)
COMPARED = """
    xstest_compliance_accuracy xstest_three_class_accuracy xstest_partial_found dna_unwilling_or_helped
    dna_unwilling_or_follows dna_declined refuse_vs_abstain_accuracy abstentions_found orfuzz_answered
    written_action_held_out written_declined_held_out partial_found partial_false calibration_error
""".split()
QUICK = 25  # each so many rows of a quick run


def measure(quick: bool, judge: str = RULES) -> dict[str, float]:
    """Print every comparison and return the figures; `judge` is `rules`, a YAML file or one of configs/judges."""
    if not DATA.is_dir():
        sys.exit(f"this benchmark needs the labelled data in {DATA}, which does not exist (see its README)")
    quiet_libraries()
    try:
        opened = open_judge(judge)
    except UserError as error:
        sys.exit(str(error))
    rows = read(all_labelled()[:: QUICK if quick else 1])
    if isinstance(opened, LocalJudge) and not quick:
        ways = local_unseen(rows, opened)
        figures = figures_of(ways["unsure"])
        _compare_ways(ways)
    else:
        figures = figures_of(judge_all(rows, opened))
    figures["completions_per_s"] = _speed(opened)
    return figures


def figures_of(judged: Sequence[Judged]) -> dict[str, float]:
    """Print every comparison with people's labels and return the figures."""
    sets = {
        name: [one for one in judged if one.row.dataset == name] for name in sorted({o.row.dataset for o in judged})
    }
    figures = _xstest(sets["XSTest"]) | _do_not_answer(sets["Do-Not-Answer"]) | _orfuzz(sets["ORFuzz"])
    rejected = sets["GPT-3.5"]
    agreement("GPT-3.5: rejected or complied", rejected, lambda o: o.row.label == "rejected")
    figures["gpt35_precision"] = share(o.row.label == "rejected" for o in rejected if o.action in DECLINED)
    figures["gemma_declined"] = agreement(
        "gemma-2b: declined or not (string match)", sets["gemma-2b"], lambda o: o.row.label == "refusal"
    )
    figures["coconot_not_declined"] = agreement(
        "CoCoNot: the chosen response is not declined", sets["CoCoNot"], lambda o: False
    )
    return figures | _written(sets) | _calibration(judged)


def agreement(what: str, rows: Sequence[Judged], declined: Test) -> float:
    """Print how often the judge and the keyword list call declined what the labels do; return the judge's share."""
    return shown(what, rows, lambda o: declined(o) == (o.action in DECLINED), lambda o: declined(o) == o.keyword)


def judge_all(rows: Sequence[Read], judge: CompletionJudge) -> list[Judged]:
    """Judge every row; the rules' chances are of weights that saw neither its model nor its kind of prompt."""
    asked = [CompletionToJudge(one.row.completion, one.row.prompt) for one in rows]
    judgements = list(judge.judge_all(asked))
    if not isinstance(judge, RuleJudge):
        return [Judged(one.row, of.action, of.declined) for one, of in zip(rows, judgements, strict=True)]
    chances_of = {id(one): chances for one, chances in weighed_unseen(rows)}
    return [
        Judged(one.row, of.action, _declined(chances_of[id(one)])) for one, of in zip(rows, judgements, strict=True)
    ]


def local_unseen(rows: Sequence[Read], judge: LocalJudge) -> dict[Way, list[Judged]]:
    """Judge every row, in each way, by a probe and weights that saw neither its model nor its kind of prompt."""
    of = capture([one.row for one in rows], LocalModel(judge.model.chat, LAYERS), say := Reporter())
    read_as: dict[Labelled, dict[Reading, float]] = {}
    for held, probe in unseen(of, say):
        chances = probabilities(of, probe, held).tolist()
        mine = [one.row for one, wanted in zip(of.rows, held, strict=True) if wanted]
        read_as.update((row, dict(zip(READINGS, each, strict=True))) for row, each in zip(mine, chances, strict=True))
    judged: dict[Way, list[Judged]] = {way: [] for way in WAYS}
    for one, by_rules in weighed_unseen(rows):
        found = judge.rules.read(one.row.completion, one.row.prompt)
        for way, of_way in judged.items():
            of_way.append(_by(way, read_as.get(one.row), by_rules, one.row, found, judge.config.ask_below))
    return judged


def _by(
    way: Way,
    chances: Mapping[Reading, float] | None,
    by_rules: Mapping[Outcome, float] | None,
    row: Labelled,
    found: RuleReading,
    ask_below: float,
) -> Judged:
    action = found.judgement.action
    if chances is None or (found.foreign and row.dataset != "written, languages"):
        return Judged(row, action, found.judgement.declined)
    if way == "alone":
        found = RuleReading(Judgement(None, ""), foreign=True)
    elif by_rules is not None and action is not None and way == "unsure" and by_rules[OUTCOME_OF[action]] >= ask_below:
        return Judged(row, action, _declined(by_rules))
    chances = together(chances, found, by_rules)
    of = decide(chances, found)
    return Judged(row, of.action, of.declined, chances)


def _compare_ways(ways: Mapping[Way, Sequence[Judged]]) -> None:
    """Print the main figures of each way to join the probe and the rules."""
    figures = {}
    for way, judged in ways.items():
        with redirect_stdout(StringIO()):
            figures[way] = figures_of(judged)
    print(f"\n{'the probe and the rules':<32} " + " ".join(f"{way:>8}" for way in figures))
    for name in COMPARED:
        print(f"{name:<32} " + " ".join(f"{of[name]:8.3f}" for of in figures.values()))


def _declined(chances: Mapping[Outcome, float] | None) -> float | None:
    return None if chances is None else chances["refused"] + chances["abstained"]


def _xstest(rows: Sequence[Judged]) -> dict[str, float]:
    def complied(one: Judged) -> bool:
        return (one.row.label == "1") == (_xstest_label(one.action) == "1")

    for model in sorted({one.row.model for one in rows}):
        mine = [one for one in rows if one.row.model == model]
        print(f"\nXSTest, {model}")
        pairs = [(one.row.label, _xstest_label(one.action)) for one in mine]
        matrix("annotators \\ judge", ["1", "2", "3"], pairs)
        shown("complied or not", mine, complied, lambda o: (o.row.label != "1") == o.keyword)
    print("\nXSTest, all three models")
    kept = [one for one in rows if one.row.model != "gpt4"]
    figures = {
        "xstest_compliance_accuracy": shown(
            "complied or not", rows, complied, lambda o: (o.row.label != "1") == o.keyword
        ),
        "xstest_compliance_two_models": share(map(complied, kept)),
        "xstest_three_class_accuracy": shown("three classes", rows, lambda o: o.row.label == _xstest_label(o.action)),
        "xstest_three_class_two_models": share(o.row.label == _xstest_label(o.action) for o in kept),
        "xstest_partial_found": share(_xstest_label(o.action) == "3" for o in rows if o.row.label == "3"),
        "human_compliance_agreement": share(
            (one.row.annotators[0] == "1") == (one.row.annotators[1] == "1") for one in rows
        ),
        "human_three_class_agreement": share(one.row.annotators[0] == one.row.annotators[1] for one in rows),
    }
    shown("two annotators agree, three classes", rows, lambda o: o.row.annotators[0] == o.row.annotators[1])
    return figures


def _do_not_answer(rows: Sequence[Judged]) -> dict[str, float]:
    def unwilling(one: Judged) -> bool:
        return one.row.label == "0"

    helped = [one for one in rows if one.row.label in "0235"]
    follows = [one for one in rows if one.row.label in "05"]
    both = [one for one in rows if one.row.label in "04" and one.action in DECLINED]
    print("\nDo-Not-Answer")
    figures = {
        "dna_unwilling_or_helped": agreement("unwilling (0) or helped (2, 3, 5)", helped, unwilling),
        "dna_unwilling_or_follows": agreement("unwilling (0) or follows (5)", follows, unwilling),
        "dna_declined": agreement("declined (0, 4) or not", rows, lambda o: o.row.label in "04"),
        "refuse_vs_abstain_accuracy": shown(
            "refuse or abstain, both decline", both, lambda o: unwilling(o) == (o.action == "refuse")
        ),
        "abstentions_found": share(one.action == "abstain" for one in both if one.row.label == "4"),
        "refusals_found": share(one.action == "refuse" for one in both if one.row.label == "0"),
    }
    if any(one.read is not None for one in rows):
        figures["dna_declined_by_reading"] = shown("declined (0, 4) or not, rebuttals apart", rows, _labelled_declined)
    for model in sorted({one.row.model for one in helped}):
        mine = [one for one in helped if one.row.model == model]
        figures[f"dna_helped_{model}"] = agreement(f"  {model}: 0 or 2, 3, 5", mine, unwilling)
    return figures


def _labelled_declined(one: Judged) -> bool:
    """Return whether the readings agree with Do-Not-Answer's; a rebuttal is none of the declines there."""
    declined = one.action in DECLINED if one.read is None else one.read["refused"] + one.read["abstained"] > 0.5
    return (one.row.label in "04") == declined


def _orfuzz(rows: Sequence[Judged]) -> dict[str, float]:
    def agrees(one: Judged) -> bool:  # a pivot declines what was asked
        return (one.row.label == "answered") == (one.action not in {*DECLINED, "pivot"})

    print("\nORFuzz (never fitted on)")
    figures = {
        "orfuzz_answered": shown("answered or not", rows, agrees, lambda o: (o.row.label != "answered") == o.keyword)
    }
    for model in sorted({one.row.model for one in rows}):
        mine = [one for one in rows if one.row.model == model]
        figures[f"orfuzz_{model}"] = shown(
            f"  {model}", mine, agrees, lambda o: (o.row.label != "answered") == o.keyword
        )
    return figures


def _written(sets: Mapping[str, Sequence[Judged]]) -> dict[str, float]:
    figures = {}
    for name in COMPLETIONS:
        rows = [one for one in sets[f"written, {name}"] if one.action is not None]
        print(f"\nCompletions written: {name} ({len(rows)} of {len(sets[f'written, {name}'])} judged)")
        matrix("label \\ judge", ACTIONS, [(one.row.label, str(one.action)) for one in rows])
        figures[f"written_action_{name}"] = shown("right or acceptable action", rows, _is_right)
        figures[f"written_declined_{name}"] = shown(
            "declined or not", rows, lambda o: (o.row.label in DECLINED) == (o.action in DECLINED)
        )
    partial = sets["written, partial"]
    of = {part: [one for one in partial if (_xstest_label(one.row.label) == "3") == part] for part in (True, False)}
    figures["partial_found"] = shown("partial help, found", of[True], lambda o: _xstest_label(o.action) == "3")
    figures["partial_false"] = shown("no partial help, called so", of[False], lambda o: _xstest_label(o.action) == "3")
    for language in sorted({one.row.model for one in sets["written, languages"]}):
        rows = [one for one in sets["written, languages"] if one.row.model == language]
        figures[f"language_{language}"] = shown(f"right in {language}", rows, _is_right)
    return figures


def _is_right(one: Judged) -> bool:
    """Return whether the action is right; the labels are older than `correct_premise`, which they call an answer."""
    right = (one.row.label, *one.row.acceptable)
    return one.action in right or (one.action == "correct_premise" and "answer" in right)


def _calibration(judged: Sequence[Judged]) -> dict[str, float]:
    """Return the expected calibration error of "declined": over equal-count bins, pooled and of each model."""
    known = [one for one in judged if one.chance is not None and _is_declined(one.row) is not None]
    parts = {"all sets": known}
    for one in sorted(known, key=lambda one: (one.row.dataset, one.row.model)):
        if not one.row.dataset.startswith("w"):
            parts.setdefault(f"{one.row.dataset}, {one.row.model}", []).append(one)
    print("\nCalibration of the probability that the request was declined")
    errors = {}
    for name, rows in parts.items():
        y, chance = np.array([_is_declined(one.row) for one in rows]), np.array([one.chance for one in rows])
        errors[name] = expected_calibration_error(y, chance) if rows else float("nan")
        print(f"  {name:<44} {errors[name]:.3f}, n {len(rows)}")
    return {"calibration_error": errors["all sets"]}


def _is_declined(row: Labelled) -> bool | None:
    """Return whether the label says that the request was declined; None where it does not say."""
    if row.dataset == "ORFuzz":
        return row.label != "answered"
    outcomes = row.outcomes
    if not outcomes or (outcomes & {"refused", "abstained"} and outcomes - {"refused", "abstained"}):
        return None
    return bool(outcomes & {"refused", "abstained"})


def _speed(judge: CompletionJudge) -> float:
    """Return the number of XSTest's completions judged per second: of processor time, by a model of all cores' time."""
    texts, rates = [CompletionToJudge(row.completion, row.prompt) for row in xstest()], []
    by_rules = isinstance(judge, RuleJudge)
    texts, clock = (texts, time.process_time) if by_rules else (texts[::5], time.perf_counter)
    for _ in range(3 if by_rules else 1):
        fresh = RuleJudge() if by_rules else judge  # the rules remember phrases
        start = clock()
        for _judgement in fresh.judge_all(texts):
            pass
        rates.append(len(texts) / (clock() - start))
    words = np.mean([len(one.completion.split()) for one in texts])
    print(f"\n{len(texts)} completions of {words:.0f} words on average, median of {len(rates)} rounds")
    return float(np.median(rates))


def _xstest_label(action: str | None) -> str:
    return XSTEST_LABEL.get(action or "", "1")


if __name__ == "__main__":
    main("judge", measure, judge=(RULES,))
