"""Sets left out: no training on the tested family or its groups, balanced weights, planted reads and none, the page."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.transfer import leave_one_out, measure
from experiments.transfer.leave_one_out import REFERENCE, LeaveOut, reads_left_out
from experiments.transfer.measure import MEAN, RequestTokens, capture_sets, transfer
from experiments.transfer.page import write_transfer_page
from experiments.transfer.results import LeftOutRead, TransferResult, blocks, first_screen
from experiments.transfer.sets import ReadSet, TransferPrompts
from extract.capture_spec import CaptureSpec
from extract.in_memory import Activations, capture_in_memory
from extract.model.chat_model import ChatModel
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from extract.table import print_blocks
from tests.support.tiny_model import TEXTS, rendered

QUIET = Reporter(quiet=True)
NAMES = ("a", "b", "c", "d", "e")
N, D, LENGTH = 40, 8, 6
COUNTERPART = {"d": "other", "e": "other"}  # one family
DECISIVE = 6.0  # of one token of a prompt to be declined


def planted(strength: float) -> tuple[TransferPrompts, Activations, RequestTokens]:
    """Return five sets; one token of a prompt to be declined is moved along one direction, and every mean with it."""
    rng, n = np.random.default_rng(0), N * len(NAMES)
    y = np.arange(n) % 2 == 0
    tokens = rng.normal(size=(n, LENGTH, D)).astype(np.float32)
    tokens[np.arange(n), rng.integers(LENGTH - 1, size=n), 0] += strength * y  # never the last
    texts = [f"{NAMES[i // N]} {'bad' if y[i] else 'good'} {i}" for i in range(n)]
    prompts = tuple(
        Prompt(
            text, ({"role": "user", "content": text},), "harmful" if bad else "benign", "refuse" if bad else "answer"
        )
        for text, bad in zip(texts, y, strict=True)
    )
    sets = tuple(
        ReadSet(name, "normative", np.arange(k * N, (k + 1) * N), y[k * N : (k + 1) * N], "own", COUNTERPART.get(name))
        for k, name in enumerate(NAMES)
    )
    values = np.stack([tokens[:, -1], tokens[:, -1], tokens.mean(axis=1)])[None]
    about: dict[str, Any] = {"site": "resid_post", "layers": (3,), "positions": ("inst_last", "post_last", MEAN)}
    activations = Activations(values, np.ones((3, n), dtype=bool), **about, model="made up", prompts=prompts)
    return TransferPrompts(prompts, np.arange(n), sets), activations, {3: list(tokens)}


@pytest.fixture(autouse=True, scope="module")
def few_choices() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, values in {"CS": (1e-2,), "SHRINKAGES": (0.1,), "PENALTIES": (3e-3,)}.items():
            patch.setattr(leave_one_out, name, values)
        yield


@pytest.fixture(scope="module")
def reads() -> dict[str, LeftOutRead]:
    given, stored, tokens = planted(DECISIVE)
    return {read.name: read for read in reads_left_out(stored, tokens, given, QUIET)}


def test_a_shared_token_is_read_by_what_pools_and_by_the_last_token_by_chance(reads: dict[str, LeftOutRead]) -> None:
    assert reads["max over tokens"].mean > 0.97
    assert reads["multimax over tokens"].mean > 0.97
    assert 0.65 < reads["mean of tokens, balanced"].mean < reads["max over tokens"].mean
    for name, read in reads.items():
        if "last token" in name:
            assert 0.4 < read.mean < 0.6, name
    best = reads["max over tokens"]
    assert set(best.auroc) == set(NAMES)
    assert best.families == 4
    assert best.over_last_token.low > 0.3
    difference = best.mean - reads[REFERENCE].mean
    assert best.over_last_token.estimate == pytest.approx(difference)
    assert reads[REFERENCE].over_last_token.limits() == (0, 0, 0)


def test_labels_that_nothing_has_are_read_by_chance() -> None:
    given, stored, tokens = planted(0.0)
    for read in reads_left_out(stored, tokens, given, QUIET):
        assert 0.38 < read.mean < 0.62, read.name


def leaks(given: TransferPrompts, split: LeaveOut) -> list[str]:
    """Return what is trained on and should not be: a family that is left out, or a group of its prompts."""
    found = []
    for some, train in zip(split.out, split.train, strict=True):
        out = np.isin(np.array(split.families)[split.set_of], list(some))
        if (train & out).any():
            found.append("family")
        groups = given.groups[split.rows]
        if np.isin(groups[train], groups[out]).any():
            found.append("group")
    return found


def test_nothing_of_a_tested_family_is_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    given, stored, _ = planted(0.0)
    groups = given.groups.copy()
    groups[1], groups[N + 3] = groups[2 * N + 1], groups[4 * N]  # prompts of a and b that are in c and e, too
    given = replace(given, groups=groups)
    split = LeaveOut.of(given, "normative")
    assert len(split.out) == 4 + 6
    assert leaks(given, split) == []
    assert {names for some in split.out for names in some} == {"a", "b", "c", "other"}
    assert not split.own[[1, N + 3, 2 * N + 1, 4 * N]].any()
    assert split.own.sum() == len(split.own) - 4
    bare = np.stack(
        [~np.isin(np.array(split.families)[split.set_of], list(some)) for some in split.out]
    )  # groups forgotten
    assert "group" in leaks(given, replace(split, train=bare))
    assert "family" in leaks(given, replace(split, train=np.ones_like(split.train)))
    seen = []

    def fit(X: np.ndarray, train: np.ndarray, *more: Any, **named: Any) -> Any:
        seen.append(train)
        return real(X, train, *more, **named)

    real = leave_one_out.fit_logistic_batch
    monkeypatch.setattr(leave_one_out, "fit_logistic_batch", fit)
    reads_left_out(stored, {}, given, QUIET)
    assert seen
    assert all(np.array_equal(train, split.train) for train in seen)


def test_every_class_of_every_set_weighs_the_same() -> None:
    given = planted(0.0)[0]
    small = replace(given.sets[0], rows=given.sets[0].rows[:31], y=given.sets[0].y[:31])
    split = LeaveOut.of(replace(given, sets=(small, *given.sets[1:])), "normative")
    sums = [split.weights[(split.set_of == k) & (split.y == c)].sum() for k in range(5) for c in (True, False)]
    assert sums == pytest.approx([sums[0]] * 10)
    assert split.weights.mean() == pytest.approx(1.0)


def test_a_choice_is_made_on_the_other_families() -> None:
    split = LeaveOut.of(planted(0.0)[0], "normative")
    auroc = np.full((len(split.out), 2, 5), np.nan)
    for i, some in enumerate(split.out):
        for k, family in enumerate(split.families):
            if family in some:
                auroc[i, :, k] = (0.9, 0.6) if family != "a" else (0.1, 0.99)
    chosen = split.chosen(auroc)
    assert chosen[0] == 0.1  # the others say the first choice, whatever is best for the tested set
    assert chosen[1:].tolist() == [0.9] * 4 or chosen[1:].tolist() == [0.6] * 4


def test_a_midpoint_moves_all_of_a_set_alike_and_takes_no_prompt_of_another_family() -> None:
    given, stored, _ = planted(0.0)
    groups = given.groups.copy()
    groups[0] = groups[N]
    split = LeaveOut.of(replace(given, groups=groups), "normative")
    X = stored.values[0, 0]
    moved = split.centred(X) - X
    for k in range(5):
        mine = split.set_of == k
        assert np.ptp(moved[mine], axis=0) == pytest.approx(0, abs=1e-6)
    changed = X.copy()
    changed[0] += 100.0
    assert split.centred(changed)[1] == pytest.approx(split.centred(X)[1])


def test_fewer_than_three_families_are_not_compared() -> None:
    given, stored, tokens = planted(0.0)
    assert reads_left_out(stored, tokens, replace(given, sets=given.sets[:2]), QUIET) == ()
    assert (
        reads_left_out(stored, tokens, replace(given, sets=given.sets[2:]), QUIET) == ()
    )  # c, and d and e of one family


def test_every_token_of_requests_is_captured_in_parts(tiny: ChatModel, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = tuple(Prompt(text, ({"role": "user", "content": text},), "benign", "answer") for text in TEXTS)
    given = TransferPrompts(prompts, np.arange(len(prompts)), ())
    monkeypatch.setattr(measure, "AT_ONCE", 2)
    stored, tokens = capture_sets(tiny, given, QUIET)
    whole = capture_in_memory(tiny, prompts, rendered(tiny, TEXTS), CaptureSpec(positions=("inst_last", MEAN)))
    assert (stored.positions, stored.prompts) == (("inst_last", "post_last", MEAN), prompts)
    assert len(tokens) == 2
    for layer, streams in tokens.items():
        assert len({len(stream) for stream in streams}) > 2
        for i, stream in enumerate(streams):
            assert stream.mean(axis=0) == pytest.approx(stored.read(layer, MEAN)[i], abs=1e-5)
            assert stream[-1] == pytest.approx(stored.read(layer, "inst_last")[i], abs=1e-5)
    for layer, position in product(stored.layers, ("inst_last", MEAN)):
        assert stored.read(layer, position) == pytest.approx(whole.read(layer, position), abs=1e-4)
    bare, none = capture_sets(tiny, given, QUIET, every_token=False)
    assert none == {}
    assert bare.values == pytest.approx(stored.values, abs=1e-5)


def test_the_page_and_the_file_have_every_set_and_read(
    reads: dict[str, LeftOutRead], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, stored, _ = planted(DECISIVE)
    result = transfer(stored, given, 0, QUIET).model_copy(update={"left_out": tuple(reads.values())})
    result.write(tmp_path / "transfer.json")
    again = TransferResult.read(tmp_path / "transfer.json")
    assert again.to_dict() == result.to_dict()
    assert again.left_out == result.left_out
    assert {read.position for read in result.reads} <= {"inst_last", "post_last"}
    write_transfer_page(again, tmp_path / "transfer.html")
    page = (tmp_path / "transfer.html").read_text()
    assert 'data-chart="matrix-normative"' in page
    assert all(f'"row":"{name}"' in page.replace("\\u0022", '"') for name in NAMES)
    assert "words 1.00" in page
    print_blocks(blocks(again))
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert "recall at 1 % false positives" in lines[0]
    assert first_screen(again).columns[1::2] == [
        "matched twins",
        "not matched, different sources",
        "sets not trained on",
    ]
    for name in reads:
        assert name in page
