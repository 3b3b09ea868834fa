"""Answers that stop when settled: the start of the whole ones, however they are decoded, and cached apart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.training.labelled import DATA, all_labelled
from experiments.responses import setting
from experiments.responses.completions import Completer
from experiments.responses.response_cache import ResponseCache
from experiments.responses.setting import Answering, Asked, Greedy, Setting
from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.continuation import SETTLED_EVERY
from extract.prompts.prompt import Prompt
from probes.statistics.intervals import clopper_pearson
from scoring.actions import ACTIONS
from scoring.judges import Judgement
from scoring.judges.rules import RuleJudge
from tests.experiments.responses.test_response_cache import ALL, Steps, pushed

pytestmark = pytest.mark.slow

MOST = 12
PROMPTS = [Prompt(str(i), ({"role": "user", "content": "?"},), "benign", "answer") for i in range(5)]


class OtherJudge:
    """Judges nothing."""

    def judge_all(self, completions: Any) -> Any:
        return (Judgement("answer", "") for _ in completions)

    def record(self) -> Any: ...


@pytest.fixture
def completer(tiny: ChatModel, tiny_rows: list[Rendered], monkeypatch: pytest.MonkeyPatch) -> Completer:
    """A completer for which a response of 4 tokens or more is settled, except the first prompt's."""
    first = tiny_rows[0]
    monkeypatch.setattr(setting, "is_settled", lambda _model, _prompt, row, said: row is not first and len(said) >= 4)
    return Completer(tiny, PROMPTS, tiny_rows, MOST, 3, RuleJudge(), settled_within=5)


@pytest.mark.parametrize("continues", [True, False])
@pytest.mark.parametrize("edits", [(), (pushed(),), (pushed(scope="all"),)])
def test_a_stopped_response_is_the_start_of_the_whole_one(
    completer: Completer, monkeypatch: pytest.MonkeyPatch, edits: Any, continues: bool
) -> None:
    if not continues:
        monkeypatch.setattr(setting, "try_cache_prompts", lambda *_: None)
    whole = replace(completer, settled_within=0).complete(ALL, edits=edits)
    stopped = completer.complete(ALL, edits=edits)
    assert [one.settled for one in stopped] == [False, True, True, True, True]
    assert {len(one.token_ids) for one in stopped[1:]} == {2 * SETTLED_EVERY}  # 12 - 5 = 7 tokens or more: 8
    assert stopped[0] == whole[0]
    assert {len(one.token_ids) for one in whole} == {MOST}
    assert all(s.token_ids == w.token_ids[: len(s.token_ids)] for s, w in zip(stopped, whole, strict=True))


def test_both_are_cached_apart_and_workers_stop_alike(completer: Completer, tmp_path: Path) -> None:
    kept = replace(completer, cache=ResponseCache(tmp_path / "g.sqlite", completer.model))
    whole, stopped, steps = replace(kept, settled_within=0).complete(ALL), kept.complete(ALL), Steps()
    assert (whole, stopped) == (replace(completer, settled_within=0).complete(ALL), completer.complete(ALL))
    assert kept.complete(ALL, advance=steps) == stopped
    assert steps.remembered == 5
    loaded: Any = type("Loaded", (), {"model": completer.model, "kept": None, "reporter": type("R", (), {"say": print}),
                                      "config": type("C", (), {"generate": completer})})  # fmt: skip
    work = Answering([Greedy(Setting(), MOST, 5)]).prepare(loaded)
    parts = Asked(completer.rendered, [ALL], PROMPTS).parts(2)
    said = [tokens for part in parts for _, _, responses in work(part) for tokens in responses]
    assert said == [list(one.token_ids) for one in stopped]


def test_gates_other_judges_and_samples_are_not_stopped(completer: Completer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def responses(_batch: Any, _setting: Any, places: list[int], _most: int, within: int) -> list[list[int]]:
        asked.append(within)
        return [[1]] * len(places)

    monkeypatch.setattr(setting.PromptBatch, "responses", responses)
    held: Any = type("Gate", (), {"biases": ()})()
    for one in (Setting(), Setting(held=[held]), Setting(dials=[held])):
        replace(completer, batch_size=5).complete_each(ALL, [one])
    replace(completer, batch_size=5, judge=OtherJudge()).complete(ALL)
    assert asked == [5, 0, 0, 0]
    monkeypatch.setattr(setting, "is_settled", None)
    assert all(len(one.token_ids) == MOST for (one,) in completer.sample(ALL, 1, seed=0))


LIST = "To oil a door hinge, you can follow these steps:\n\n1. **Clean it**: Wipe the hinge with a dry"
HOW = "How do I stop a door from squeaking?"


@pytest.mark.parametrize(
    ("text", "asked", "answer", "expected"),
    [
        (LIST, HOW, None, True),
        ("Sure! " + LIST, HOW, None, True),
        (LIST, HOW, "hinge", True),
        (LIST, HOW, "dry", False),  # it may become "drying"
        (LIST, HOW, "screwdriver", False),  # a fact to be checked
        (LIST, "Should I oil a door hinge?", None, False),
        (LIST, "Why should everyone oil door hinges?", None, False),
        ("I may be wrong here. " + LIST, HOW, None, False),
        ("I can't help with that. However, some tips:\n\n1. Wipe the hinge with a dry", HOW, None, False),
        ("I can't help with that, because:\n\n1. It is against the law to", HOW, None, False),
        (LIST.replace("\n\n1. ", " "), HOW, None, False),
        (LIST.replace("1.", "-"), HOW, None, False),
        ("<think>They ask about doors.</think>" + LIST, HOW, None, False),
        ("<think>\n1. They ask about\n2. doors", HOW, None, False),
    ],
)
def test_only_a_plain_answer_in_its_list_is_settled(
    tiny: ChatModel, tiny_rows: list[Rendered], monkeypatch: pytest.MonkeyPatch, text: str, asked: str,
    answer: str | None, expected: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(ChatModel, "decode", lambda self, response: text)
    prompt = Prompt("1", ({"role": "user", "content": asked},), "benign", "answer", answer=answer)
    assert setting.is_settled(tiny, prompt, tiny_rows[0], range(16)) is expected
    assert not setting.is_settled(tiny, prompt, tiny_rows[0], range(15))


# -- agreement with whole completions, on the sets with people's labels ------------------------------------------------

TOKEN = re.compile(r"\s?\w{1,8}|\s?[^\w\s]|\s")  # about a token of a chat model
WHOLE, WITHIN = 64, 48
LOOSER: dict[str, Callable[[RuleJudge, str, str], bool]] = {
    "any answer": lambda judge, text, prompt: judge.judge(text, prompt).action == "answer",
    "any answer in a list": lambda judge, text, prompt: (
        "\n" in text
        and (read := judge.read(text, prompt)).judgement.action == "answer"
        and any(clause.item for clause in read.clauses)
    ),
}


@pytest.fixture(scope="module")
def labelled() -> list[tuple[str, list[str], str | None]]:
    """Return the prompts, the responses after each token, and the action of the whole responses."""
    if not DATA.is_dir():
        pytest.skip(f"the sets with people's labels are not in {DATA}")
    judge, rows = RuleJudge(), list[tuple[str, list[str], str | None]]()
    for row in all_labelled():
        if row.dataset == "written, languages":  # the rules judge English alone
            continue
        text = row.completion.lstrip()
        if parts := [text[: token.end()] for token in TOKEN.finditer(text)][:WHOLE]:
            rows.append((row.prompt, parts, judge.judge(parts[-1], row.prompt).action))
    return rows


@pytest.mark.parametrize("rule", ["shipped", *(pytest.param(rule, marks=pytest.mark.slow) for rule in LOOSER)])
def test_a_settled_action_is_that_of_the_whole_completion(
    labelled: list[tuple[str, list[str], str | None]], rule: str
) -> None:
    judge, whole, lost, stopped, kept = RuleJudge(), Counter[Any](), Counter[Any](), 0, 0
    settled = LOOSER.get(rule, RuleJudge.is_settled)
    for prompt, parts, action in labelled:
        whole[action] += 1
        ends = range(WHOLE - WITHIN, len(parts), SETTLED_EVERY)
        early = next((parts[n - 1] for n in ends if settled(judge, parts[n - 1], prompt)), None)
        if early is not None:
            agrees = judge.judge(early, prompt).action == action
            stopped, kept, lost[action] = stopped + 1, kept + agrees, lost[action] + (not agrees)
    figures = {"stopped": clopper_pearson(kept, stopped)}
    figures |= {a: clopper_pearson(whole[a] - lost[a], whole[a]) for a in ACTIONS if whole[a] >= 100}
    assert set(figures) >= {"answer", "answer_with_caveat", "correct_premise", "refuse", "abstain"}
    holds = {name: of.estimate >= 0.99 and (of.low >= 0.98 or of.estimate == 1) for name, of in figures.items()}
    assert all(holds.values()) is (rule == "shipped"), (figures, stopped)
    assert stopped > 400
