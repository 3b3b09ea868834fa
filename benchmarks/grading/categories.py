"""Verdicts on categories, graded on organisms that state the truth of each pair, and on shuffled category labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from experiments.categories.judge import judge_measured
from experiments.categories.measure import measure_set
from experiments.categories.results import CategoryResults
from experiments.pipeline.stages import run
from experiments.responses.loaded_run import LoadedRun
from experiments.run.config import RunConfig, load_config
from extract.model.loading_options import quiet_libraries
from extract.progress import Reporter
from organisms.listing import ZOO
from organisms.spec import Categories, OrganismSpec, load_spec

CLAIMS_OF_DIFFERENCE = ("distinct", "partly_shared")
QUICK = (
    "categories.least=20", "categories.folds=3", "dissociate.n_selection=4", "extract.positions=[post_last]",
    "extract.layers=[2,4]", "generate.max_new_tokens=8",
)  # fmt: skip
Pair = tuple[str, str]


@dataclass(frozen=True)
class GradedCategories:
    """The verdicts on one organism's categories of refusal, and what its specification says of them."""

    name: str
    verdict: str
    stated: Categories
    pairs: dict[Pair, tuple[str, str]]  # the verdict, and the true one
    rank: int | None
    planted_rank: int | None

    @property
    def right(self) -> int:
        """The number of pairs decided and right."""
        return sum(found == true for found, true in self.pairs.values())

    @property
    def wrong(self) -> int:
        """The number of pairs decided and wrong."""
        return sum(found not in (true, "inconclusive") for found, true in self.pairs.values())

    @property
    def false(self) -> bool:
        """Whether the verdict on all categories is forbidden."""
        return self.verdict in self.stated.forbidden


def category_organisms() -> list[Path]:
    """Return the organisms that state the truth of their categories."""
    return [path.parent for path in sorted(ZOO.glob("*/spec.yaml")) if load_spec(path).categories is not None]


def run_categories(organism: Path, folder: Path, quick: bool) -> GradedCategories:
    """Run `refusal categories` on an organism that states them, and grade it after its verdict is written."""
    quiet_libraries()
    directory = folder / f"{organism.name}, categories"
    run(_config(organism, quick), directory, until="categories", reporter=Reporter(quiet=True))
    found = CategoryResults.read(directory / "stages" / "categories.json").normative
    spec = load_spec(organism / "spec.yaml")
    if spec.categories is None:
        raise ValueError(f"{organism}: the specification states no categories")
    verdicts = {frozenset(pair.between): pair.verdict for pair in found.pairs}
    pairs = {
        one.between: (str(verdicts.get(frozenset(one.between), "not_applicable")), str(one.verdict))
        for one in spec.categories.pairs
    }
    return GradedCategories(organism.name, found.verdict, spec.categories, pairs, found.rank, _planted_rank(spec))


def run_shuffled(organism: Path, folder: Path, quick: bool, seeds: range) -> list[tuple[str, int]]:
    """Return, for each shuffle of the category labels, the verdict and the number of pairs called different.

    The model, its prompts and what it does with them stay; each group of prompts gets a category by lot, so that none
    differs from another. The run of `run_categories` must have finished.
    """
    quiet_libraries()
    directory, found = folder / f"{organism.name}, categories", []
    plain = LoadedRun(_config(organism, quick), directory, Reporter(quiet=True))
    for seed in seeds:
        shuffled = LoadedRun(plain.config, directory, Reporter(quiet=True))
        shuffled.__dict__["model"] = plain.model
        shuffled.__dict__["prompts"] = _shuffled(plain, seed)
        shuffled.__dict__["rendered"] = plain.rendered
        shuffled.__dict__["completer"] = replace(plain.completer, cache=None)
        verdict = judge_measured(shuffled, "normative", *measure_set(shuffled, "normative"))
        apart = sum(pair.verdict in CLAIMS_OF_DIFFERENCE for pair in verdict.pairs)
        found.append((str(verdict.verdict), apart))
    return found


def print_categories(graded: Sequence[GradedCategories]) -> None:
    """Print one line for each organism and one for each of its pairs."""
    for case in graded:
        grade = "FALSE" if case.false else "yes" if case.verdict in case.stated.allowed else "open"
        rank = f"rank {case.rank} (planted {case.planted_rank})"
        print(f"{case.name:<26} {case.verdict:<22} {'open' if case.verdict == 'inconclusive' else grade:<6} {rank}")
        for pair, (found, true) in case.pairs.items():
            mark = "yes" if found == true else "open" if found == "inconclusive" else "WRONG"
            print(f"{'':<4}{' and '.join(pair):<22} {found:<22} {mark}")


def category_figures(
    graded: Sequence[GradedCategories], shuffled: Mapping[str, Sequence[tuple[str, int]]]
) -> dict[str, float]:
    """Return the figures of the benchmark."""
    every = [one for several in shuffled.values() for one in several]
    return {
        "category_pairs_right": sum(case.right for case in graded),
        "category_pairs_wrong": sum(case.wrong for case in graded),
        "category_pairs": sum(len(case.pairs) for case in graded),
        "category_verdicts_forbidden": sum(case.false for case in graded),
        "category_ranks_right": sum(case.rank == case.planted_rank for case in graded),
        "category_organisms": len(graded),
        "category_shuffles": len(every),
        "category_shuffles_called_different": sum(
            verdict in CLAIMS_OF_DIFFERENCE or bool(apart) for verdict, apart in every
        ),
    }


def _config(organism: Path, quick: bool) -> RunConfig:
    settings = [f"model.name={organism}", f"prompts.path={organism / 'prompts.jsonl'}"]
    return load_config(Path("configs/quickstart.yaml"), [*settings, *(QUICK if quick else ())])


def _planted_rank(spec: OrganismSpec) -> int:
    """Return the number of coordinates that refuse harmful requests of its categories."""
    deciders = [spec.planted.variables[i] for i in spec.planted.deciders("refuse")]
    return sum(variable.intent != "benign" for variable in deciders)


def _shuffled(plain, seed: int) -> list:  # type: ignore[no-untyped-def]
    """Return the prompts with the categories of harmful and benign requests permuted among whole groups."""
    corpus, rng = plain.corpus, np.random.default_rng([seed, 28])
    asked = [row for row, prompt in enumerate(plain.prompts) if prompt.intent]
    groups = sorted({int(corpus.groups[row]) for row in asked})
    category = {int(corpus.groups[row]): plain.prompts[row].category for row in asked}
    moved = dict(zip(groups, rng.permutation(np.array([category[g] for g in groups], dtype=object)), strict=True))
    chosen = set(asked)
    return [
        replace(prompt, category=moved[int(corpus.groups[row])]) if row in chosen else prompt
        for row, prompt in enumerate(plain.prompts)
    ]
