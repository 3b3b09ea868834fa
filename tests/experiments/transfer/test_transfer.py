"""The transfer matrix: which prompts make a set, and what a planted direction, another one and chance show."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.transfer.measure import summarised, transfer
from experiments.transfer.results import TransferResult, blocks
from experiments.transfer.sets import LEAST, TransferConfig, TransferPrompts, groups_across, load_transfer, read_sets
from extract.errors import UserError
from extract.in_memory import Activations
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from extract.table import print_blocks
from probes.statistics.intervals import NO_RATE

QUIET = Reporter(quiet=True)
N, D = 100, 16


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows(label: str, n: int, word: str, **more: Any) -> list[dict[str, Any]]:
    return [{"id": f"{word}{i}", "text": f"{word} {i}", "label": label, **more} for i in range(n)]


def twins(n: int, word: str, positive: str = "uncertain") -> list[dict[str, Any]]:
    made = []
    for i in range(n):
        for label in (positive, "benign"):
            made.append(
                {"id": f"{word}{i}{label}", "text": f"{word} {i} {label}?", "label": label, "pair": f"{word}{i}"}
            )
    return made


def config(folder: Path, **sets: list[dict[str, Any]] | tuple[list[dict[str, Any]], str]) -> TransferConfig:
    """Return the sets of some rows, each with a counterpart where one is named."""
    given = {}
    for name, one in sets.items():
        made, counterpart = one if isinstance(one, tuple) else (one, None)
        given[name] = {"path": write(folder / f"{name}.jsonl", made), "counterpart": counterpart}
    return TransferConfig.model_validate({"sets": given, "limit": None})


def test_labels_say_what_a_set_is_for(tmp_path: Path) -> None:
    both = [*rows("harmful", 30, "cut"), *rows("benign", 30, "mix"), *twins(30, "who")]
    given = read_sets(config(tmp_path, both=both, harm=[*twins(30, "how", "harmful")], know=twins(25, "when")), None)
    of = {(one.name, one.kind): one for one in given.sets}
    assert set(of) == {("both", "normative"), ("both", "epistemic"), ("harm", "normative"), ("know", "epistemic")}
    labels = np.array([prompt.label for prompt in given.prompts])
    for (_, kind), one in of.items():
        assert set(labels[one.rows[one.y]]) == {"harmful" if kind == "normative" else "uncertain"}
        assert set(labels[one.rows[~one.y]]) == {"benign"}
    sources = [of["both", "normative"].source, of["both", "epistemic"].source, of["harm", "normative"].source]
    assert sources == ["own", "twins", "twins"]
    requests = {given.prompts[row].id for row in of["both", "normative"].rows}
    assert not any("who" in one for one in requests)  # twins of questions are no requests
    assert len({prompt.id for prompt in given.prompts}) == len(given.prompts)


def test_a_counterpart_is_shared_out_without_overlap(tmp_path: Path) -> None:
    sets = config(
        tmp_path,
        harmless=[*rows("benign", 90, "mix"), *rows("harmful", 60, "hit")],
        a=(rows("harmful", 30, "cut"), "harmless"),
        b=(rows("harmful", 30, "burn"), "harmless"),
    )
    given = read_sets(sets, None)
    of = {one.name: one for one in given.sets}
    a, b = (set(of[name].rows[~of[name].y].tolist()) for name in ("a", "b"))
    assert (len(a | b), a & b) == (90, set())
    assert min(len(a), len(b)) >= LEAST
    assert [of[name].source for name in ("harmless", "a", "b")] == ["own", "different", "different"]


def test_what_makes_no_matrix_is_explained(tmp_path: Path) -> None:
    few = rows("benign", LEAST - 1, "mix")
    with pytest.raises(
        UserError, match=r"set a: 30 harmful and 19 benign prompts for the normative read, .*; name a counterpart"
    ):
        read_sets(config(tmp_path, a=[*rows("harmful", 30, "cut"), *few], b=twins(30, "b", "harmful")), None)
    with pytest.raises(UserError, match="a matrix needs two sets of each kind"):
        read_sets(config(tmp_path, a=twins(30, "a", "harmful"), b=rows("benign", 30, "b")), None)
    path = tmp_path / "sets.yaml"
    path.write_text("sets:\n  a: {counterpart: none}\n  b: {}\n")
    with pytest.raises(UserError, match="there is no counterpart 'none'"):
        load_transfer(path)


def test_a_counterpart_that_is_too_small_is_no_silence(tmp_path: Path) -> None:
    harm = {name: (rows("harmful", 30, name), "mix") for name in ("cut", "burn", "hit")}
    sets = config(tmp_path, mix=[*rows("benign", 3 * LEAST - 20, "mix"), *rows("harmful", 30, "x")], **harm)
    with pytest.raises(
        UserError, match=r"benign prompts for the normative read, .*; raise the limit, or name another one"
    ):
        read_sets(sets, None)


def test_prompts_that_share_most_words_are_one_group_across_sets() -> None:
    texts = [
        "How do I cut the old red rope?",
        "how, it... I DO cut the old red rope now!",
        "How do I burn it?",
        "Burn it!",
    ]
    prompts = [Prompt(text, ({"role": "user", "content": text},), "benign", "answer") for text in texts]
    first, second, third, fourth = groups_across(prompts).tolist()
    assert first == second
    assert len({first, third, fourth}) == 3


# -- the matrix --------------------------------------------------------------------------------------------------------


def planted(
    tmp_path: Path, along: dict[str, int | None], same_texts: bool = False
) -> tuple[TransferPrompts, Activations]:
    """Return sets whose labels lie along a direction, by its number; None: in no direction."""
    sets = {
        name: [*rows("harmful", N, "one" if same_texts else f"{name}bad"), *rows("benign", N, f"{name}good")]
        for name in along
    }
    given = read_sets(config(tmp_path, **sets), None)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 1, len(given.prompts), D))
    for one in given.sets:
        if (number := along[one.name]) is not None:
            values[1, 0, one.rows, number] += 6.0 * one.y  # at the second layer alone
    present = np.ones((1, len(given.prompts)), dtype=bool)
    about = {"site": "resid_post", "layers": (3, 5), "positions": ("post_last",), "model": "made up"}
    return given, Activations(values.astype(np.float32), present, **about, prompts=given.prompts)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> TransferResult:
    given, activations = planted(tmp_path_factory.mktemp("sets"), {"a": 0, "b": 0, "c": 1, "null": None})
    return transfer(activations, given, 0, QUIET)


def test_a_shared_direction_transfers_another_does_not_and_chance_is_chance(matrix: TransferResult) -> None:
    auroc = {(cell.trained_on, cell.tested_on): cell.auroc for cell in matrix.cells}
    assert len(auroc) == len(matrix.cells) == 16
    for pair in (("a", "a"), ("b", "b"), ("c", "c"), ("a", "b"), ("b", "a")):
        assert auroc[pair].estimate > 0.97, pair
    for pair in (("a", "c"), ("c", "a"), ("null", "a")):  # a read's chance weight on a strong direction is no transfer
        assert auroc[pair].estimate < 0.9, pair
    for pair in (("a", "null"), ("null", "null")):
        assert auroc[pair].low < 0.5 < auroc[pair].high, (pair, auroc[pair])
    loci = {read.name: (read.layer, read.position) for read in matrix.reads}
    assert {loci[name] for name in "abc"} == {(5, "post_last")}
    recall = {(cell.trained_on, cell.tested_on): cell.recall_at_1pct_fpr for cell in matrix.cells}
    assert recall["a", "b"].low > 0.6
    assert recall["a", "null"].high < 0.3
    assert recall["a", "a"].low > 0.6


def test_words_that_no_other_set_has_read_its_own_alone(matrix: TransferResult) -> None:
    words = {(cell.trained_on, cell.tested_on): cell.words_auroc for cell in matrix.cells}
    assert words["a", "a"] == 1.0
    assert 0.3 < words["a", "b"] < 0.7


def test_means_are_over_the_sets_that_are_tested_on(matrix: TransferResult) -> None:
    [summary] = matrix.summary
    other = [cell for cell in matrix.cells if cell.trained_on != cell.tested_on]
    by_set = [np.mean([c.auroc.estimate for c in other if c.tested_on == name]) for name in ("a", "b", "c", "null")]
    assert summary.other.estimate == pytest.approx(np.mean(by_set))
    assert (summary.other.n, summary.own.n, summary.twins.n) == (4, 4, 0)
    assert summary.other.low < summary.other.estimate < summary.other.high
    shared = [cell.model_copy(update={"same_counterpart": "c" in (cell.trained_on, cell.tested_on)}) for cell in other]
    assert summarised("normative", shared).other.n == 3
    few = [cell.model_copy(update={"recall_at_1pct_fpr": NO_RATE}) for cell in other]
    assert not summarised("normative", few).other_recall.known
    again = summarised("normative", [cell for cell in matrix.cells if "null" not in (cell.trained_on, cell.tested_on)])
    assert again.own.estimate > summary.own.estimate


def test_near_duplicates_of_trained_prompts_are_not_tested(tmp_path: Path) -> None:
    given, activations = planted(tmp_path, {"a": 0, "b": 0}, same_texts=True)
    cells = {(cell.trained_on, cell.tested_on): cell for cell in transfer(activations, given, 0, QUIET).cells}
    assert ("a", "b") not in cells  # every harmful prompt of b is one of a
    assert cells["a", "a"].left_out == 0


def test_the_matrix_is_printed_and_kept(
    matrix: TransferResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix.write(tmp_path / "transfer.json")
    assert TransferResult.read(tmp_path / "transfer.json").to_dict() == matrix.to_dict()
    print_blocks(blocks(matrix))
    said = capsys.readouterr().out
    assert "normative: AUROC of a read by the set it was trained on" in said
    assert "1.00 (1.00)" in said
    assert "recall at 1 % false positives" in said
