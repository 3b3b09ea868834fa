"""Validity of the verdicts: graded against ground truth on the zoo, small variants and two nulls, and false positives.

Each case runs the stages of `refusal dissociate` in its own process, two at a time on a CPU; truth.json is read
afterwards. False positives are verdicts on shuffled labels; with --real the mechanisms planted in SmolLM2 are added.
Runs are kept in runs/validity; delete it to measure again, for example after a change of the code.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.grading.cases import (
    POSITIVE,
    Case,
    GradedCase,
    by_cosine,
    by_estimates,
    cases,
    elicits,
    false_verdicts,
    found_ranks,
    thinks,
    trigger_truth,
    truth,
)
from benchmarks.grading.categories import (
    category_figures,
    category_organisms,
    print_categories,
    run_categories,
    run_shuffled,
)
from benchmarks.grading.elicited import elicited_verdicts
from benchmarks.grading.english import english_cases, english_figures, print_english, run_english
from benchmarks.grading.shuffles import open_run, passes_with_shuffled_prompt_labels
from benchmarks.table import main
from experiments.pipeline.results import grade_planted
from experiments.pipeline.stages import run
from experiments.run.behaviour import KINDS
from experiments.run.config import load_config
from experiments.run.inputs import RunInputs
from extract.model.loading_options import quiet_libraries
from extract.progress import Reporter
from probes.statistics.intervals import clopper_pearson

RUNS = Path("runs/validity")  # finished cases are run again only if their inputs have changed
SHUFFLED = ("two-knobs", "shared-knob")  # the models whose behaviour labels are shuffled
N_SHUFFLES = 125  # per model, of single prompts, and as many of whole groups
N_ELICITED = 75  # per organism with elicited abstentions, of single prompts, and as many of whole groups
N_THINKING = 50  # per organism that thinks, likewise
N_CATEGORY_SHUFFLES = 75  # per organism
SETTINGS = ("dissociate.variants=false", "dissociate.n_side_effects=8", "dissociate.n_null_generation=0")
THINKING = ("extract.thought_tokens=14", "generate.max_new_tokens=40")  # of an organism that thinks
QUICK = (
    "dissociate.n_null_onset=79",
    "dissociate.n_onset=8",
    "dissociate.n_selection=8",
    "dissociate.positions=[post_last]",
    "extract.positions=[post_last]",
)


def measure(quick: bool, real: bool = False, categories: bool = False) -> dict[str, float]:
    """Print the tables and return the figures, of a pretrained model too (`real`), or of categories alone."""
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # for the worker processes
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if quick else RUNS
        if categories:
            return _of_categories(folder, quick)
        return _measured(folder, quick) | (_in_english(folder, quick) if real else {})


def _measured(folder: Path, quick: bool) -> dict[str, float]:
    folder.mkdir(parents=True, exist_ok=True)
    listed = cases(folder, quick)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        graded = list(pool.map(run_case, listed, [folder] * len(listed), [quick] * len(listed)))
        print_cases(graded)
        print_simpler_readings(graded)
        names = [case.name for case in listed[:1]] if quick else list(SHUFFLED)
        n = 2 if quick else N_SHUFFLES
        halves = [(folder / name, clustered, range(n)) for name in names for clustered in (False, True)]
        verdicts = [v for found in pool.map(run_shuffles, *zip(*halves, strict=True)) for v in found]
        asked = [] if quick else [case.name for case in listed if case.layers is None and elicits(case)]
        thinking = [] if quick else [case.name for case in listed if case.layers is None and thinks(case)]
        thirds = [(folder / name, clustered, range(N_THINKING)) for name in thinking for clustered in (False, True)]
        of_thinking = (
            [v for found in pool.map(run_shuffles, *zip(*thirds, strict=True)) for v in found] if thirds else []
        )
        quarters = [(folder / name, clustered, range(N_ELICITED)) for name in asked for clustered in (False, True)]
        elicited = (
            [v for found in pool.map(elicited_verdicts, *zip(*quarters, strict=True)) for v in found]
            if quarters
            else []
        )
        passed = sum(
            pool.map(passes_with_shuffled_prompt_labels, [folder / name for name in names], [range(n)] * len(names))
        )
    positive = sum(verdict in POSITIVE for verdict in verdicts)
    rate = clopper_pearson(positive, len(verdicts))
    print(
        f"shuffled behaviour, half of them with one label a group: {positive} of {len(verdicts)} positive, "
        f"95 % [{rate.low:.3f}, {rate.high:.3f}]; "
        f"shuffled prompt labels: {passed} of {n * len(names)} tested at all"
    )
    wrong = sum(verdict in POSITIVE for verdict in elicited)
    print(f"shuffled behaviour under a line that elicits: {wrong} of {len(elicited)} positive")
    false = sum(verdict in POSITIVE for verdict in of_thinking)
    print(f"shuffled behaviour of models that think: {false} of {len(of_thinking)} positive")
    subspaces = [case.subspace_cosine for case in graded if case.subspace_cosine is not None]
    least = [cosine for case in graded for cosine in case.cosines.values() if cosine is not None]
    return {
        "verdicts_right": sum(case.decided for case in graded),
        "verdicts_allowed": sum(case.verdict in case.right for case in graded),
        "verdicts_forbidden": sum(case.verdict in case.forbidden for case in graded),
        "verdicts_total": len(graded),
        "forbidden_by_point_estimates": sum(case.by_estimates in case.forbidden for case in graded),
        "false_positive_rate": rate.estimate,
        "false_positive_rate_low": rate.low,
        "false_positive_rate_high": rate.high,
        "shuffles": len(verdicts),
        "elicited_positive": wrong,
        "elicited_shuffles": len(elicited),
        "thinking_positive": false,
        "thinking_shuffles": len(of_thinking),
        "prompt_label_shuffles_tested": passed,
        "least_planted_cosine": min(least),
        "ranks_right": sum(found == planted for case in graded for found, planted in case.ranks.values()),
        "ranks_stated": sum(len(case.ranks) for case in graded),
        "least_subspace_cosine": min(subspaces) if subspaces else float("nan"),
        "trigger_verdicts_right": sum(case.triggers == case.right_triggers for case in graded),
        "trigger_verdicts_inconclusive": sum(case.triggers == "inconclusive" for case in graded),
        "trigger_shares_covered": sum(case.covers for case in graded if case.share is not None),
        "trigger_shares_planted": sum(case.share is not None for case in graded),
    }


def _in_english(folder: Path, quick: bool) -> dict[str, float]:
    listed = english_cases()[-1:] if quick else english_cases()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        graded = list(pool.map(run_english, listed, [folder] * len(listed), [quick] * len(listed)))
    print_english(graded)
    return english_figures(graded)


def _of_categories(folder: Path, quick: bool) -> dict[str, float]:
    listed = category_organisms()[:1] if quick else category_organisms()
    n = 2 if quick else N_CATEGORY_SHUFFLES
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        graded = list(pool.map(run_categories, listed, [folder] * len(listed), [quick] * len(listed)))
        print_categories(graded)
        shuffled = dict(
            zip(
                [path.name for path in listed],
                pool.map(run_shuffled, listed, [folder] * len(listed), [quick] * len(listed), [range(n)] * len(listed)),
                strict=True,
            )
        )
    for name, found in shuffled.items():
        verdicts = Counter(verdict for verdict, _ in found)
        apart = sum(bool(pairs) for _, pairs in found)
        print(
            f"{name:<26} categories shuffled {len(found)} times: {dict(verdicts)}; some pair called different {apart}"
        )
    return category_figures(graded, shuffled)


def print_cases(graded: list[GradedCase]) -> None:
    """Print one line per case."""
    print(
        f"{'case':<27} {'verdict':<29} {'right':<6} {'|cos| N, E':<13} {'word or intent':<15} {'right':<6} "
        "trigger share, planted"
    )
    for case in graded:
        cosines = ", ".join("-" if c is None else f"{c:.3f}" for c in case.cosines.values())
        share = "-" if case.share is None else f"[{case.share_ci[0]:.3f}, {case.share_ci[1]:.3f}], {case.share:.3f}"
        print(
            f"{case.name:<27} {case.verdict:<29} {case.grade:<6} {cosines:<13} "
            f"{case.triggers:<15} {_trigger_grade(case):<6} {share}"
            f"{'' if case.covers else ' MISSED'}"
        )
        if case.ranks:
            ranks = ", ".join(f"{kind} {found} (planted {planted})" for kind, (found, planted) in case.ranks.items())
            print(f"{'':<27} rank: {ranks}; mean cosine with the planted span {case.subspace_cosine:.3f}")
        if case.verdict not in case.right or case.verdict in ("not_applicable", "inconclusive"):
            print(f"{'':<27} {case.reason}")


def print_simpler_readings(graded: list[GradedCase]) -> None:
    """Print what the cosine of the two directions and point estimates without a null say of the same runs."""
    print(f"{'case':<27} {'by the cosine':<14} {'by point estimates':<30} {'this verdict'}")
    for case in graded:
        if case.by_estimates != case.verdict:
            false = " FALSE" if case.by_estimates in case.forbidden else ""
            print(f"{case.name:<27} {case.by_cosine:<14} {case.by_estimates + false:<30} {case.verdict}")


def _right(is_right: bool) -> str:
    return "yes" if is_right else "NO"


def _trigger_grade(case: GradedCase) -> str:
    return "open" if case.triggers == "inconclusive" else _right(case.triggers == case.right_triggers)


def run_case(case: Case, folder: Path, quick: bool) -> GradedCase:
    """Run one case as the command does, and grade it after its verdict is written."""
    quiet_libraries()
    settings = [*SETTINGS, *(QUICK if quick else ()), f"model.name={case.model}", f"prompts.path={case.prompts}"]
    if thinks(case):
        settings += THINKING
    if case.layers is not None:
        settings.append(f"extract.layers={list(case.layers)}")
    config, directory = load_config(Path("configs/quickstart.yaml"), settings), folder / case.name
    for verdict in ("triggers", "dissociate"):
        run(config, directory, until=verdict, reporter=Reporter(quiet=True))
    record, triggers = (
        json.loads((directory / "stages" / name).read_text(encoding="utf-8"))
        for name in ("dissociate.json", "triggers.json")
    )
    graded = grade_planted(RunInputs(config, directory)) if case.expected is None else None
    cosines: dict[str, float | None] = {
        str(kind): None if graded is None else getattr(graded, f"{kind}_cosine") for kind in KINDS
    }
    reason = "; ".join(record["reasons"])
    low, high = triggers["trigger_share_ci"]
    ranks, subspace = found_ranks(case, config, directory)
    return GradedCase(
        case.name,
        record["verdict"],
        truth(case),
        false_verdicts(case),
        cosines,
        reason,
        ranks,
        subspace,
        by_cosine(record),
        by_estimates(record),
        triggers["verdict"],
        *trigger_truth(case),
        (low, high),
    )


def run_shuffles(directory: Path, clustered: bool, seeds: range) -> list[str]:
    """Return the verdict under each shuffle of the behaviour labels."""
    shuffler = open_run(directory, clustered=clustered)
    return [shuffler.verdict(seed) for seed in seeds]


if __name__ == "__main__":
    main("validity", measure, real=(), categories=())
