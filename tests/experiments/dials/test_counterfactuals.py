"""Look-ups in the table of outcomes agree with the dials on the model, token by token."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments.dials.counterfactuals import (
    Counterfactuals,
    OutcomeGenerator,
    outcome_name,
    reachable_outcomes,
    read_table,
    write_table,
)
from experiments.responses.completions import Completer
from experiments.responses.response_cache import ResponseCache
from experiments.responses.setting import PromptBatch
from extract.prompts.prompt import Prompt
from probes.direction import Direction, Locus
from probes.grid.logistic import LinearProbe, Platt
from scoring.judges import CompletionToJudge, Judgement, JudgeRecord
from steering.actuator import Addition, Affine, Clamp, OnsetBias
from steering.dial import Dial
from steering.writer import ConstantGateWriter, Writer
from tests.steering.conftest import unit
from tests.support.tiny_model import last_streams

pytestmark = pytest.mark.slow

READ = Locus("resid_post", 0, "post_last")
GRID = (0.0, 0.3, 0.5, 0.7, 1.0)
WAYS: dict[str, dict[str, Any]] = {
    "affine, half way": {"actuator": Affine(0.5)},
    "affine, prefill alone": {"steps": 1},
    "affine, two steps": {"steps": 2},
    "affine, later layers too": {"later": True},
    "addition": {"actuator": Addition(0.8)},
    "clamp": {"actuator": Clamp()},
    "onset bias": {"actuator": OnsetBias(((5,), (7, 9))), "write": None},
    "onset bias, one step": {"actuator": OnsetBias(((5, 11), (7, 9)), 30.0), "write": None, "steps": 1},
}
SLOW_WAYS = set(WAYS) - {"affine, later layers too", "clamp"}  # others like them are quick
AT_ONE_LAYER = "both at one layer"


class Verbatim:
    """A judge for which every text is an action of its own."""

    def judge_all(self, completions: Iterable[CompletionToJudge]) -> Iterator[Judgement]:
        for one in completions:
            yield Judgement(one.completion, "")

    def record(self) -> JudgeRecord:
        return JudgeRecord(judge="verbatim")


@pytest.fixture
def completer(tiny, tiny_rows) -> Completer:
    prompts = [Prompt(str(i), ({"role": "user", "content": "?"},), "benign", "answer") for i in range(len(tiny_rows))]
    return Completer(tiny, prompts, tiny_rows, 6, 3, Verbatim())


@pytest.fixture
def dials(tiny, tiny_rows) -> list[Dial]:
    """Oblique writes at two layers, and reads that tell the prompts apart."""
    streams, made = last_streams(tiny, tiny_rows, READ.layer), []
    for kind, seed, layer in (("normative", 1, 1), ("epistemic", 2, 2)):
        weight = unit(seed).astype(np.float64)
        score = streams @ weight
        probe = LinearProbe(weight, -float(np.median(score)), 0.1)
        later = {after: (9.0 + after, -7.0 - after) for after in range(layer + 1, 4)}
        locus = Locus("resid_post", layer, "post_last")
        write = Direction(f"{kind}_write", unit(seed + 10), locus, 9.0, -7.0, later_means=later)
        made.append(Dial(kind, READ, probe, Platt(1.0 / float(np.std(score)), 0.1), 0.5, 0.0, write))
    return made


def tabulated(completer: Completer, dials: list[Dial], *, dead_band: bool) -> Counterfactuals:
    rows = range(len(completer.prompts))
    outcomes = reachable_outcomes(len(dials), dead_band=dead_band)
    held = [
        [ConstantGateWriter(one.writer, gate) for one, gate in zip(dials, gates, strict=True)] for gates in outcomes
    ]
    said = [completer.complete(rows, held=each) for each in held]
    streams = last_streams(completer.model, completer.rendered, dials[0].read.layer)
    probability = np.stack([dial.probability(streams) for dial in dials])
    actions = np.array([[c.action for c in column] for column in said], dtype=object).T
    names = tuple(dial.kind for dial in dials)
    return Counterfactuals(names, outcomes, probability, actions, np.zeros(actions.shape, dtype=bool))


def directly(completer: Completer, dials: list[Dial], thresholds: tuple[float, ...], band: float) -> list[str | None]:
    under = [replace(dial, threshold=tau, band=band) for dial, tau in zip(dials, thresholds, strict=True)]
    return [c.action for c in completer.complete(range(len(completer.prompts)), dials=under)]


def test_a_prompt_has_at_most_seven_outcomes_and_a_dead_band_needs_them() -> None:
    names = [outcome_name(gates) for gates in reachable_outcomes(2, dead_band=False)]
    assert names == ["decline", "permit+decline", "permit+permit"]
    assert [len(reachable_outcomes(n, dead_band=True)) for n in range(3)] == [1, 3, 7]
    assert reachable_outcomes(1, dead_band=False) == ((1,), (-1,))
    table = made_up(dead_band=False)
    with pytest.raises(ValueError, match=r"prompts lie in a dead band of 0\.4, but the table was made without one"):
        table.look_up((0.5, 0.5), 0.4)


def test_a_look_up_is_what_two_dials_say_and_one_alone(completer, dials) -> None:
    table = tabulated(completer, dials, dead_band=False)  # with a dead band: below, and test_seven_outcomes.py
    seen = set()
    for thresholds in [*product(GRID, repeat=2)][::2]:
        assert table.actions_at(thresholds).tolist() == directly(completer, dials, thresholds, 0.0)
        seen |= set(table.look_up(thresholds).tolist())
    assert len(seen) == len(table.outcomes)  # the grid meets every outcome
    table = tabulated(completer, dials[:1], dead_band=False)
    for tau in GRID[::2]:
        assert table.actions_at([tau]).tolist() == directly(completer, dials[:1], (tau,), 0.0)


def test_permitting_by_an_onset_bias_is_the_plain_completion_unless_that_opens_so(completer, dials) -> None:
    plain = completer.complete(range(len(completer.prompts)))
    opening = plain[0].token_ids[:2]
    bias = Writer(None, OnsetBias((opening,)))
    loaded: Any = SimpleNamespace(prompts=completer.prompts, completions=plain, completer=completer)
    generator = OutcomeGenerator(loaded, [("normative", dials[0].writer), ("epistemic", bias)], dead_band=True)
    table = generator.start([np.zeros(len(plain))] * 2)
    of_gates = {gates: table.known[:, place] for place, gates in enumerate(table.outcomes)}
    permitted = completer.complete(range(len(plain)), held=[ConstantGateWriter(bias, -1)])
    same = [now.token_ids == before.token_ids for now, before in zip(permitted, plain, strict=True)]
    assert of_gates[0, -1].tolist() == same
    assert 0 < sum(same) < len(same)
    assert of_gates[0, 0].all()
    assert not any(known.any() for gates, known in of_gates.items() if gates[0] or gates[1] > 0)


def at_one_layer(dials: list[Dial], cosine: float = -0.5) -> list[Dial]:
    a, b = np.linalg.qr(np.stack([unit(11), unit(12)], axis=1))[0].T
    vectors = (a, cosine * a + np.sqrt(1 - cosine**2) * b)
    return [replace(dial, write=replace(dial.write, vector=vector.astype(np.float32), locus=dials[0].write.locus))
            for dial, vector in zip(dials, vectors, strict=True)]  # fmt: skip


@pytest.mark.parametrize(
    "way", [AT_ONE_LAYER, *(pytest.param(w, marks=[pytest.mark.slow] * (w in SLOW_WAYS)) for w in WAYS)]
)
def test_so_it_is_for_every_actuator_and_scope(completer, dials, way) -> None:
    near = [replace(d, write=replace(d.write, mean_positive=0.5, mean_negative=-0.5)) for d in dials]
    usual = near if way == "clamp" else dials  # a clamp to means that lie far out is the affine write
    under = at_one_layer(dials) if way == AT_ONE_LAYER else [replace(dial, **WAYS[way]) for dial in usual]
    table, default = (tabulated(completer, each, dead_band=True) for each in (under, usual))
    wrong = False
    for thresholds in product(GRID[::2], repeat=2):
        said = directly(completer, under, thresholds, 0.15)
        assert table.actions_at(thresholds, 0.15).tolist() == said
        wrong |= default.actions_at(thresholds, 0.15).tolist() != said
    assert wrong  # the control: the table of another way of writing


def test_what_is_said_is_remembered_by_all_that_is_held(completer, dials, tmp_path, monkeypatch) -> None:
    """Each differs from another in one thing; were two taken for one, the second would say what the first did."""
    writers = [dials[0].writer, *(replace(dials[0], **way).writer for way in WAYS.values())]
    writers += [replace(dials[0], actuator=OnsetBias(((5,), (7, 8))), write=None).writer, dials[1].writer]
    cases = [[ConstantGateWriter(writer, gate)] for writer in writers for gate in (-1, 0, 1)]
    remembering = replace(completer, cache=ResponseCache(tmp_path / "generations.sqlite", completer.model))
    rows = range(len(completer.prompts))
    fresh = [[c.token_ids for c in completer.complete(rows, held=held)] for held in cases]
    assert [[c.token_ids for c in remembering.complete(rows, held=held)] for held in cases] == fresh
    monkeypatch.setattr(PromptBatch, "responses", None)
    assert [[c.token_ids for c in remembering.complete(rows, held=held)] for held in cases] == fresh
    assert len({str(said) for said in fresh}) > len(cases) / 2  # the cases are not all alike


def made_up(*, dead_band: bool) -> Counterfactuals:
    outcomes, probability = reachable_outcomes(2, dead_band=dead_band), np.array([[0.2, 0.5, 0.9], [0.1, 0.6, 0.7]])
    actions = np.array([[f"{row}/{outcome_name(gates)}" for gates in outcomes] for row in range(3)], dtype=object)
    return Counterfactuals(("normative", "epistemic"), outcomes, probability, actions, np.eye(3, len(outcomes)) > 0)


@pytest.mark.parametrize("dead_band", [False, True])
def test_the_file_holds_the_table(tmp_path, dead_band) -> None:
    table = made_up(dead_band=dead_band)
    there = np.arange(table.actions.size).reshape(table.actions.shape) % 3 != 1  # some are not generated
    actions = np.where(there, table.actions, None)
    table = replace(table, actions=actions, right=table.right & there, generated=there)
    write_table(table, ["a", "b", "c"], ["test"] * 3, tmp_path / "table.jsonl")
    again = read_table(tmp_path / "table.jsonl")
    assert (again.dials, again.outcomes) == (table.dials, table.outcomes)
    with pytest.raises(ValueError, match=r"\d prompts have no outcome at these thresholds"):
        again.actions_at((1.0, 0.0))
    for name in ("probability", "actions", "right", "known"):
        np.testing.assert_array_equal(getattr(again, name), getattr(table, name))
