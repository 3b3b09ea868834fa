"""Reading without saying: nested folds, the threshold that loses few right answers, and what is counted by category."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments.elicited.condition import LINE
from experiments.pipeline.results import said_under_line
from experiments.probing.results import ALL, UnspokenReads
from experiments.probing.text import unspoken_sentence, unspoken_table
from experiments.probing.unspoken import (
    NestedReads,
    layers_read,
    nested_reads,
    own_reads,
    silent,
    silent_share,
    threshold_that_loses,
    unspoken_reads,
)  # fmt: skip
from experiments.run.outcomes import NOTHING, Outcomes, write_outcomes
from extract.prompts.prompt import make_prompt
from probes.contrast import Contrast
from probes.statistics.metrics import auroc, auroc_within


@dataclass
class Store:
    """Activations (layer, position, prompt, feature) as a store gives them."""

    X: np.ndarray
    site = "resid_post"
    positions = ("inst_last", "post_last")

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(range(len(self.X)))

    @property
    def present(self) -> np.ndarray:
        return np.ones((2, self.X.shape[2]), dtype=bool)

    def read(self, layer: int, position: str) -> np.ndarray:
        return self.X[layer, self.positions.index(position)]


def pairs(n: int, rng: np.random.Generator, effect: float, d: int = 12, layers: int = 4) -> tuple[Store, Contrast]:
    """Return pairs that share their content, one of each uncertain; the label is readable at the last layer alone."""
    y = (np.repeat(rng.random(n) < 0.5, 2)) ^ np.tile([True, False], n)
    X = rng.standard_normal((layers, 2, 2 * n, d)) + rng.standard_normal((layers, 2, n, d)).repeat(2, axis=2)
    X[-1, 1, y, 0] += effect
    return Store(X), Contrast("epistemic", np.arange(2 * n), y, np.repeat(np.arange(n), 2), np.full(2 * n, "train"))


def test_each_fold_is_read_by_a_probe_and_a_locus_chosen_without_it() -> None:
    store, contrast = pairs(60, np.random.default_rng(0), 4.0)
    (reads,) = nested_reads(store, [contrast], 0)  # type: ignore[arg-type]
    assert {(locus.layer, locus.position) for locus in reads.loci} == {(3, "post_last")}
    assert (
        len({(group, fold) for group, fold in zip(contrast.groups, reads.fold, strict=True)}) == 60
    )  # pairs are whole
    found = reads.auroc(np.ones(120, dtype=bool))
    assert found.n == 120
    assert 0.9 < found.estimate < found.high
    own = contrast.groups == 7
    flipped = Contrast("epistemic", contrast.rows, contrast.y ^ own, contrast.groups, contrast.part)
    (other,) = nested_reads(store, [flipped], 0)  # type: ignore[arg-type]
    assert np.array_equal(other.fold, reads.fold)  # pairs have one of each label
    assert np.allclose(
        other.probability[own], reads.probability[own]
    )  # how a pair is read does not depend on its labels
    assert not np.allclose(other.probability, reads.probability)


@pytest.mark.parametrize(("n", "layers"), [(24, [6, 9, 12, 15, 18, 21]), (2, [0, 1]), (1, [0]), (4, [1, 2, 3])])
def test_few_layers_of_the_middle_are_tried(n: int, layers: list[int]) -> None:
    assert layers_read(range(n)) == layers


def test_folds_are_compared_within_themselves() -> None:
    y, stratum = np.tile([True, False], 20), np.repeat([0, 1], 20)
    score = y + np.where(stratum, 10.0, 0.0)
    assert auroc(y, score) < 1
    assert auroc_within(stratum, y, score, np.arange(40)).estimate == 1.0
    assert not auroc_within(stratum[:8], y[:8], score[:8], np.arange(8)).known  # too few of a class


@pytest.mark.parametrize(
    ("right", "threshold"),
    [(np.arange(100) / 100, 0.92), (np.arange(14) / 100, 0.13), (np.arange(15) / 100, 0.13), (np.zeros(0), np.inf)],
)
def test_the_threshold_loses_at_most_seven_percent(right: np.ndarray, threshold: float) -> None:
    assert threshold_that_loses(right) == pytest.approx(threshold)
    assert np.mean(right > threshold) <= 0.07 if len(right) else True


def read_as(p: np.ndarray, fold: np.ndarray) -> NestedReads:
    """Return the reads of prompts that are a group each."""
    rows = np.arange(len(p))
    return NestedReads(Contrast("epistemic", rows, rows < 0, rows, np.full(len(p), "train")), fold, p, ())


def test_a_fold_is_held_against_right_answers_of_other_folds_alone() -> None:
    fold, right = np.array([0, 0, 1, 1]), np.array([True, False, True, False])
    firm, p = ~right, np.array([0.9, 0.5, 0.2, 0.5])
    found = silent(read_as(p, fold), firm, right)
    assert found.tolist() == [False, True, False, False]  # 0.5 > 0.2 of fold 1; not > 0.9 of 0


def test_silence_under_no_information_is_the_share_that_may_be_lost() -> None:
    rng, shares, holds, n = np.random.default_rng(0), [], 0, 400
    right = np.arange(n) < 120
    for _ in range(150):
        reads = read_as(rng.random(n), rng.integers(0, 4, n))
        share = silent_share(reads, ~right, right, ~right)
        shares.append(share.estimate)
        holds += share.low <= 0.07 <= share.high
    assert 0.06 < np.mean(shares) < 0.09
    assert holds >= 0.95 * 150
    nothing = silent_share(reads, ~right, right & False, ~right)
    assert (nothing.known, nothing.n) == (False, 280)
    few = silent_share(reads, ~right, np.arange(n) < 50, ~right)
    assert few.low == 0.0  # a threshold from 50 right answers has no upper limit


@pytest.mark.simulation
def test_labels_shuffled_within_pairs_are_read_at_half() -> None:
    rng, times, holds = np.random.default_rng(0), 40, 0
    for _ in range(times):
        store, contrast = pairs(40, rng, 0.0, d=8, layers=1)
        (reads,) = nested_reads(store, [contrast], 0)  # type: ignore[arg-type]
        found = reads.auroc(np.ones(80, dtype=bool))
        holds += found.low <= 0.5 <= found.high
    assert holds >= 0.9 * times  # 257 of 267 where it was measured


def counted(actions: dict[str, str], right: set[str]) -> tuple[Any, NestedReads]:
    """Return a run with 12 pairs in two categories, of which some are answered, and reads that are all right."""
    rows = [{"id": f"{kind}{i}", "text": f"{kind}{i}", "pair": str(i), "label": label, "category": "ab"[i % 2],
             **({"answer": "x"} if kind == "k" else {})}
            for i in range(12) for kind, label in (("u", "uncertain"), ("k", "benign"))]  # fmt: skip
    prompts = [make_prompt(row, "here") for row in rows]
    answered = np.array([k for k, p in enumerate(prompts) if p.id in actions])
    ids = [prompts[k].id for k in answered]
    behaviour = SimpleNamespace(actions=np.array([actions[name] for name in ids], dtype=object),
                                correct=np.array([name in right for name in ids]))  # fmt: skip
    y = np.array([p.label == "uncertain" for p in prompts])
    contrast = Contrast("epistemic", np.arange(24), y, np.repeat(np.arange(12), 2), np.full(24, "train"))
    reads = NestedReads(contrast, np.repeat(np.arange(12) % 4, 2), np.where(y, 0.9, 0.1), ())
    return SimpleNamespace(reading=SimpleNamespace(prompts=prompts), answered=answered, behaviour=behaviour), reads


def test_what_is_read_and_said_is_counted_by_category_of_the_pair() -> None:
    actions = {f"u{i}": "answer" for i in range(6)} | {"u6": "abstain", "u7": "answer_with_caveat"}
    loaded, reads = counted(actions | {f"k{i}": "answer" for i in range(8)}, {"k0", "k1", "k2", "k3", "k4"})
    found = unspoken_reads(loaded, reads, reads)
    every, *categories = found.categories
    assert [one.category for one in (every, *categories)] == [ALL, "a", "b"]
    assert (every.auroc.estimate, every.auroc.n) == (1.0, 24)  # prompts that were not answered are read all the same
    assert (every.auroc_known.n, every.known.estimate, every.known.n) == (12 + 5, 5 / 8, 8)
    assert (every.abstained.estimate, every.silent.estimate, every.silent.n) == (1 / 8, 6 / 8, 8)
    assert [one.silent.n for one in categories] == [4, 4]
    assert not categories[0].auroc_known.known  # three known twins are too few
    assert (found.lost.estimate, found.lost.n) == (0.0, 5)
    assert "of 8 twins with a known answer the model gets 5 right, too few for a lower limit" in unspoken_sentence(
        found
    )
    table = unspoken_table(found)
    assert table.rows[0][:1] == ["all"]
    assert "under the line" not in table.columns
    line = every.model_copy(update={"abstained_under_line": every.abstained})
    assert "under the line" in unspoken_table(found.model_copy(update={"categories": (line, *categories)})).columns


def test_a_category_has_a_probe_of_its_own_where_it_has_enough_pairs() -> None:
    store, contrast = pairs(24, np.random.default_rng(0), 4.0, layers=1)
    rows = [{"id": str(k), "text": str(k), "pair": str(contrast.groups[k]), "label": "uncertain" if y else "benign",
             **({"category": "many" if k < 40 else "few"} if y else {})} for k, y in enumerate(contrast.y)]  # fmt: skip
    reading = SimpleNamespace(store=store, prompts=[make_prompt(row, "here") for row in rows])
    loaded: Any = SimpleNamespace(reading=reading, config=SimpleNamespace(seed=0))
    own = own_reads(loaded, contrast)
    assert list(own) == ["many"]
    assert own["many"].n == 40  # twins are of the category of their pair
    assert own["many"].estimate > 0.9
    counted_run, reads = counted({f"{kind}{i}": "answer" for i in range(12) for kind in "uk"}, {"k0"})
    found = unspoken_reads(counted_run, reads, reads, {"a": own["many"]})
    assert "by probes of one category alone: a " in unspoken_sentence(found)


def test_a_model_that_knows_nothing_has_reads_and_no_silence() -> None:
    loaded, reads = counted({f"{kind}{i}": "answer" for i in range(12) for kind in "uk"}, set())
    found = unspoken_reads(loaded, reads, reads)
    assert found.categories[0].auroc.estimate == 1.0
    assert unspoken_table(found).rows[0][3:] == ["none judged", "12"]
    assert "the model gets 0 right, so there is nothing to hold a threshold against" in unspoken_sentence(found)
    assert unspoken_sentence(UnspokenReads(reason="too few")) == "not read, too few"
    assert unspoken_sentence(UnspokenReads()) == ""


def test_what_is_said_under_the_line_is_added_from_its_outcomes(tmp_path: Path) -> None:
    loaded, reads = counted({f"{kind}{i}": "answer" for i in range(12) for kind in "uk"}, set())
    prompts = loaded.reading.prompts
    corpus = SimpleNamespace(uncertain=reads.contrast.y, groups=reads.contrast.groups)
    inputs: Any = SimpleNamespace(file=lambda name: tmp_path / name, prompts=prompts, corpus=corpus)
    found = unspoken_reads(loaded, reads, reads)
    assert said_under_line(found, inputs) is found  # no line was tried
    under = Outcomes.of(np.arange(24), ["abstain" if p.id in ("u0", "u2", "k1") else "answer" for p in prompts])
    write_outcomes(tmp_path / "outcomes.parquet" / "elicit.parquet", [p.id for p in prompts], {(LINE, NOTHING): under})
    told = [one.abstained_under_line for one in said_under_line(found, inputs).categories]
    assert [(one.estimate, one.n) for one in told if one] == [(2 / 12, 12), (2 / 6, 6), (0.0, 6)]
