"""The trigger share against populations whose share is known."""

from itertools import product

import numpy as np
import pytest

from experiments.corpus import Corpus
from experiments.triggers import TriggerShare, trigger_share
from extract.prompts import Prompt


def corpus_of(n_quadruples: int) -> Corpus:
    prompts = []
    for q, (trigger, harmful) in product(range(n_quadruples), product((True, False), repeat=2)):
        intent = "harmful" if harmful else "benign"
        prompts.append(
            Prompt(
                id=f"{q}-{trigger}-{harmful}", messages=({"role": "user", "content": "x"},), label=intent,
                right_action="refuse" if harmful else "answer", trigger="kill" if trigger else None, intent=intent,
                pair=str(q),
            )
        )  # fmt: skip
    groups = np.repeat(np.arange(n_quadruples), 4)
    return Corpus(tuple(prompts), groups, np.full(len(prompts), "test", dtype=object))


def share_of(refuses: dict[tuple[bool, bool], float], n: int = 150, seed: int = 0) -> TriggerShare:
    """Draw refusals with the given probability per (trigger, harmful) cell and measure."""
    corpus, rng = corpus_of(n), np.random.default_rng(seed)
    cells = [(p.trigger is not None, p.intent == "harmful") for p in corpus.prompts]
    refused = np.array([rng.random() < refuses[cell] for cell in cells])
    return trigger_share(corpus, refused, np.arange(len(corpus)))


TT, TF, FT, FF = (True, True), (True, False), (False, True), (False, False)


def test_intent_alone_is_intent_driven() -> None:
    found = share_of({TT: 1, TF: 0, FT: 1, FF: 0})
    assert found.verdict == "intent_driven"
    assert found.share.estimate == 0
    assert 0 < found.share.high <= 0.1  # the interval does not collapse at the boundary


def test_trigger_alone_is_trigger_driven() -> None:
    found = share_of({TT: 1, TF: 1, FT: 0, FF: 0})
    assert found.verdict == "trigger_driven"
    assert 0.9 <= found.share.low < 1


def test_both_are_mixed_and_the_share_is_right() -> None:
    found = share_of({TT: 1, TF: 0.5, FT: 1, FF: 0}, n=400)  # T = 0.25, I = 0.75
    assert found.verdict == "mixed"
    assert found.share.low <= 0.25 <= found.share.high


def test_few_pairs_are_inconclusive() -> None:
    assert share_of({TT: 1, TF: 0.1, FT: 1, FF: 0}, n=8).verdict == "inconclusive"


def test_no_refusals_or_no_quadruples_are_not_applicable() -> None:
    assert share_of({TT: 0, TF: 0, FT: 0, FF: 0}).reason == "nothing is refused"
    corpus = corpus_of(5)
    some = np.array([i for i, p in enumerate(corpus.prompts) if p.trigger])
    found = trigger_share(corpus, np.ones(len(corpus), dtype=bool), some)
    assert found.verdict == "not_applicable"
    assert "no group of minimal pairs" in found.reason


@pytest.mark.parametrize("over_refusal", [0.0, 0.2, 0.6])
def test_the_interval_covers_the_true_share(over_refusal: float) -> None:
    true = (over_refusal / 2) / (over_refusal / 2 + 1 - over_refusal / 2)
    covered = 0
    for seed in range(40):
        share = share_of({TT: 1, TF: over_refusal, FT: 1, FF: 0}, n=60, seed=seed).share
        covered += share.low - 1e-9 <= true <= share.high + 1e-9
    assert covered >= 36  # 95 % nominal
