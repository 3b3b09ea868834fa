"""With a dead band a prompt has seven outcomes; on the shipped organism each agrees with the dials on the model."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments.dials.counterfactuals import Counterfactuals, OutcomeGenerator, outcome_name
from experiments.responses.completions import Completer
from extract.chat.render import render
from extract.progress import Reporter
from extract.prompts.prompt import load_prompts
from judging.judge_by_name import open_judge
from probes.grid.logistic import LinearProbe, Platt
from scoring.judges import CompletionToJudge
from steering.dial import Dial
from tests.conftest import ORGANISM
from tests.experiments.dials.test_counterfactuals import Verbatim, directly, tabulated
from tests.support.planted_dials import planted_dials

pytestmark = pytest.mark.slow

BAND, GRID = 0.15, (0.2, 0.5, 0.8)
EACH = 5  # prompts of every sort


@pytest.fixture(scope="module")
def completer(two_knobs) -> Completer:
    """Benign prompts that are refused for a word, other benign ones, harmful ones, strangers and people known."""
    sorts: dict[object, list] = {}
    for prompt in load_prompts(ORGANISM / "prompts.jsonl"):
        sorts.setdefault((prompt.label, prompt.trigger is None, prompt.answer is None), []).append(prompt)
    kept = [prompt for of in sorts.values() for prompt in of[:: max(1, len(of) // EACH)][:EACH]]
    assert {prompt.label for prompt in kept} == {"benign", "harmful", "uncertain"}
    return Completer(two_knobs, kept, [render(two_knobs.tokenizer, p) for p in kept], 24, 64, Verbatim())


@pytest.fixture(scope="module")
def dials() -> list[Dial]:
    """Write along the planted directions, and read a mixture of them that leaves some prompts unsure."""
    made, rng = [], np.random.default_rng(0)
    for dial in planted_dials():
        vector, on, off = dial.write.vector, dial.write.mean_positive, dial.write.mean_negative
        noise = rng.normal(size=len(vector))
        weight = vector.astype(np.float64) + 0.5 * noise / np.linalg.norm(noise)
        probe = LinearProbe(weight, -float(weight @ vector) * (on + off) / 2, 1.0)
        made.append(replace(dial, probe=probe, calibration=Platt(1.5 / (on - off), 0.0), band=BAND))
    return made


@pytest.fixture(scope="module")
def table(completer, dials) -> Counterfactuals:
    return tabulated(completer, dials, dead_band=True)


def test_every_pair_of_thresholds_is_a_look_up(completer, dials, table) -> None:
    met: set[int] = set()
    three = [table.outcomes.index(gates) for gates in ((1, 0), (-1, 1), (-1, -1))]
    wrong = 0
    for thresholds in product(GRID, repeat=2):
        said = directly(completer, dials, thresholds, BAND)
        assert table.actions_at(thresholds, BAND).tolist() == said
        met |= set(table.look_up(thresholds, BAND).tolist())
        without = table.look_up(thresholds)  # the control: as if there were no dead band
        assert set(without.tolist()) <= set(three)
        wrong += table.actions[np.arange(len(said)), without].tolist() != said
    assert len(table.outcomes) == len(met) == 7
    assert wrong > len(GRID) ** 2 / 2


def test_the_outcomes_are_what_their_gates_mean(completer, table) -> None:
    judge = open_judge("rules")
    column = {outcome_name(gates): table.actions[:, k].tolist() for k, gates in enumerate(table.outcomes)}

    def share(outcome: str, action: str, rows: np.ndarray) -> float:
        asked = zip(column[outcome], completer.prompts, strict=True)
        texts = [CompletionToJudge(text, prompt.text, prompt.messages) for text, prompt in asked]
        did = np.array([judgement.action for judgement in judge.judge_all(texts)], dtype=object)
        return float(np.mean(did[rows] == action))

    assert column["leave+leave"] == [c.completion for c in completer.complete(range(len(completer.prompts)))]
    everything = np.ones(len(completer.prompts), dtype=bool)
    harmful = np.array([prompt.label == "harmful" for prompt in completer.prompts])
    assert share("decline", "refuse", everything) > 0.9
    assert share("permit+decline", "abstain", everything) > 0.9
    assert share("permit+permit", "answer", everything) > 0.9
    assert share("leave+permit", "refuse", harmful) > 0.9  # an open epistemic gate leaves the normative one as it is
    assert share("permit+leave", "answer", harmful) > 0.9
    assert share("leave+leave", "refuse", everything) < 0.8  # the control


def test_outcomes_that_share_a_prefill_are_the_same_for_half_the_tokens(completer, dials, monkeypatch) -> None:
    """Under a long system line, as many models have; the control computes each outcome from the start."""
    system = {"role": "system", "content": "tell me who lives at home and how do i fix the door. " * 4}
    asked = [replace(prompt, messages=(system, *prompt.messages)) for prompt in completer.prompts]
    longer = replace(completer, rendered=[render(completer.model.tokenizer, prompt) for prompt in asked])
    computed = [0]

    def count(_module: object, _args: object, given: dict[str, Any]) -> None:
        computed[0] += given["input_ids"].numel()

    loaded = SimpleNamespace(
        prompts=longer.prompts, completer=longer, reporter=Reporter(quiet=True), thoughts_before_dials={}
    )
    loaded.completions = longer.complete(range(len(asked)))
    writers = [(dial.kind, dial.writer) for dial in dials]
    probability = [np.zeros(len(longer.prompts)) for _ in dials]
    found = []
    handle = completer.model.decoder.register_forward_pre_hook(count, with_kwargs=True)
    for shared in (True, False):
        if not shared:
            monkeypatch.setattr("experiments.responses.setting.try_cache_prompts", lambda *_: None)
        computed[0] = 0
        generator = OutcomeGenerator(loaded, writers, dead_band=True)
        empty = generator.start(probability)
        actions = generator.generate(empty, ~empty.known).actions
        found.append((actions.tolist(), computed[0]))
    handle.remove()
    assert found[0][0] == found[1][0]
    assert len(found[0][0][0]) == 7
    assert found[1][1] > 2 * found[0][1]
