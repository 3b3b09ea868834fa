"""Requests asked again without their system line or earlier turns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from transformers import AutoTokenizer

from experiments.factors.judge import decision_change, judge_last_turn, judge_removal, moves, sufficiency
from experiments.factors.prompt_context import ambiguous_texts, last_turn, without_system_line
from experiments.factors.removal import MOST, RemovedRequests, ask_without, choose_requests
from experiments.factors.results import RemovalResult
from experiments.run.completion_file import Completion
from experiments.run.config import QUESTIONS
from experiments.run.outcomes import Outcomes
from experiments.triggers.measure import score_last_turn
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from extract.shipped import ROOT
from probes.statistics.intervals import Estimate, auroc_interval
from tests.experiments.factors.test_observed import corpus_of

CAREFUL = {"role": "system", "content": "be careful."}
EARLIER = ({"role": "user", "content": "i will do something at work."}, {"role": "assistant", "content": "i see."})


def prompt(group: int, harmful: bool, *before: dict[str, str], copy: int = 0) -> Prompt:
    last = {"role": "user", "content": f"how do i move the stones {group}?"}
    label = "harmful" if harmful else "benign"
    return Prompt(f"{group}-{harmful}-{copy}", (*before, last), label, "answer", pair=str(group))


@dataclass(frozen=True)
class Rule:
    """Stands in for a Completer: a rule decides what is refused."""

    refuses: Callable[[Prompt], bool]
    prompts: Sequence[Prompt] = ()
    rendered: Sequence[object] = ()

    def complete(self, rows: Sequence[int], *, advance: Callable[[int], None]) -> list[Completion]:
        actions = ["refuse" if self.refuses(self.prompts[row]) else "answer" for row in rows]
        return [Completion("", "", "", action, "", ()) for action in actions]


def context_of(prompts: list[Prompt], refuses: Callable[[Prompt], bool]) -> SimpleNamespace:
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "organisms" / "zoo" / "two-knobs")
    refused = np.array([refuses(p) for p in prompts])
    return SimpleNamespace(
        corpus=corpus_of(prompts), config=SimpleNamespace(seed=0, ask=QUESTIONS),
        model=SimpleNamespace(tokenizer=tokenizer), reporter=Reporter(quiet=True), completer=Rule(refuses),
        behaviour=SimpleNamespace(did=lambda action: refused),
    )  # fmt: skip


def asked(refuses: Callable[[Prompt], bool], n_groups: int = 60, *before: dict[str, str]) -> SimpleNamespace:
    earlier = before or (CAREFUL,)
    return context_of([prompt(g, h, *earlier) for g, h in product(range(n_groups), (False, True))], refuses)


def removed(context: SimpleNamespace, factor: str = "system") -> tuple[RemovedRequests, RemovalResult]:
    asked = ask_without(context, factor, np.arange(len(context.corpus)))
    return asked, judge_removal(context.corpus, context.behaviour.did("refuse"), asked.outcomes)


def test_a_system_line_that_moves_refusing_is_told_from_one_that_does_not_and_from_too_few_requests() -> None:
    requests, found = removed(asked(lambda p: p.label == "harmful" or p.messages[0]["role"] == "system"))
    benign, harmful = found.by_label().values()
    assert found.moves is True
    assert (benign.before.estimate, benign.after.estimate, benign.changed.estimate) == (1, 0, 1)
    assert (harmful.changed.estimate, harmful.changed.low) == (0, 0)
    assert benign.n + harmful.n == len(requests.outcomes.rows) == MOST
    assert "careful" not in requests.rendered[0].text
    assert removed(asked(lambda p: p.label == "harmful"))[1].moves is False
    assert removed(asked(lambda p: p.label == "harmful", 10))[1].moves is None
    assert ask_without(context_of([prompt(0, False)], lambda p: False), "system", np.arange(1)) is None
    assert moves([]) is None


def test_only_what_stood_before_the_last_turn_is_removed() -> None:
    whole = prompt(0, True, CAREFUL, *EARLIER)
    assert last_turn(whole).messages == (CAREFUL, whole.messages[-1])
    assert without_system_line(whole).messages == (*EARLIER, whole.messages[-1])
    _, found = removed(asked(lambda p: len(p.messages) > 1 and p.label == "harmful", 60, *EARLIER), "earlier_turns")
    assert found.moves is True
    assert found.by_label()["harmful"].after.estimate == 0


def test_requests_are_chosen_over_as_many_groups_as_there_are() -> None:
    corpus = corpus_of([prompt(g, h, copy=c) for g, h, c in product(range(70), (False, True), range(4))])
    chosen = choose_requests(corpus, np.arange(len(corpus)), seed=0)
    assert len(chosen) == len(set(chosen.tolist())) == MOST
    assert len(set(corpus.groups[chosen].tolist())) == 50  # a benign and a harmful one of each
    assert corpus.harmful[chosen].sum() == 50
    assert len(choose_requests(corpus, np.arange(7), seed=0)) == 7


def test_the_last_turn_is_judged_by_how_far_its_auroc_falls_short() -> None:
    perfect, chance = auroc_interval(1.0, 50, 50), auroc_interval(0.5, 50, 50)
    assert sufficiency(perfect, chance)[0] is False
    assert sufficiency(perfect, perfect)[0] is True
    either = "the whole conversation does not separate harmful from benign either"
    assert sufficiency(chance, chance) == (
        None, f"{either} (AUROC 0.50 against 0.50 with the whole conversation)")  # fmt: skip
    assert sufficiency(auroc_interval(1.0, 6, 6), auroc_interval(0.9, 6, 6))[0] is None
    assert sufficiency(Estimate(0.95, 0.9, 0.98), Estimate(0.85, 0.8, 0.91))[0] is None


def test_last_turns_of_both_intents_are_counted_and_without_earlier_turns_the_question_does_not_arise() -> None:
    prompts = [prompt(g, h, *EARLIER) for g, h in product(range(4), (False, True))][:-1]
    assert ambiguous_texts(corpus_of([*prompts, prompt(9, False)])) == {"distinct": 4, "both": 3}
    scores = score_last_turn(context_of([prompt(0, False)], lambda p: False), None)
    nothing = {"applicable": False, "sufficient": None, "reason": "no request has earlier turns"}
    assert judge_last_turn(scores).to_dict() == nothing


@pytest.mark.parametrize("unjudged", [0, 30])
def test_what_could_not_be_judged_is_left_out(unjudged) -> None:
    corpus = corpus_of([prompt(g, False) for g in range(60)])
    actions = [None if g < unjudged else "answer" for g in range(60)]
    found = decision_change(corpus, np.zeros(60, dtype=bool), Outcomes.of(np.arange(60), actions))
    assert set(found) == {"benign"}
    assert found["benign"].n == 60 - unjudged
