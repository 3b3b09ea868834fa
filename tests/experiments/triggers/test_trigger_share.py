"""The 2 x 2 of minimal pairs, and the trigger share against populations whose share is known."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from experiments.run.corpus import Corpus
from experiments.triggers.judge import compatible, share_interval, trigger_share
from experiments.triggers.quadruples import MEMBERS, lacking, quadruples
from experiments.triggers.results import TriggerShareResult
from extract.prompts.prompt import Prompt
from tests.support.covering import matrix
from tests.support.draws import draws

pytestmark = pytest.mark.slow

PATTERNS = np.array(list(product((0.0, 1.0), repeat=4)))
POPULATIONS = {  # rates in MEMBERS with the given share
    "at the edge": lambda share: np.array([1, min(1, 2 * share), min(1, 2 - 2 * share), 0]),  # by word and intent
    "in the middle": lambda share: np.array([0.5 + 0.3 * (share * (2 * t - 1) + (1 - share) * (2 * i - 1))
                                             for t, i in MEMBERS]),
}  # fmt: skip


def corpus_of(n_quadruples: int) -> Corpus:
    prompts = []
    for q, (trigger, harmful) in product(range(n_quadruples), MEMBERS):
        intent, action = ("harmful", "refuse") if harmful else ("benign", "answer")
        asked = {"intent": intent, "pair": str(q), "trigger": "kill" if trigger else None}
        prompts.append(Prompt(f"{q}-{trigger}-{harmful}", ({"role": "user", "content": "x"},), intent, action, **asked))
    return Corpus(tuple(prompts), np.repeat(np.arange(n_quadruples), 4), np.full(len(prompts), "test", dtype=object))


def share_of(*rates: float, n: int = 150, seed: int = 0) -> TriggerShareResult:
    refused = np.random.default_rng(seed).random(4 * n) < np.tile(rates, n)
    return trigger_share(corpus_of(n), refused, np.arange(4 * n))


@pytest.mark.parametrize(
    ("rates", "n", "verdict", "true"),
    [
        ((1, 0, 1, 0), 150, "intent_driven", 0.0),
        ((1, 1, 0, 0), 150, "trigger_driven", 1.0),
        ((1, 0.5, 1, 0), 400, "mixed", 0.25),  # T = 0.25, I = 0.75
        ((0.5, 0, 1, 0.5), 150, "mixed", 0.5),  # the word lowers refusing
        ((1, 0.1, 1, 0), 8, "inconclusive", 0.05),
    ],
)
def test_a_share_is_measured_with_an_interval_that_never_collapses(rates, n, verdict, true) -> None:
    found = share_of(*rates, n=n)
    assert found.verdict == verdict
    assert found.share.low <= true <= found.share.high
    assert found.share.low < found.share.high  # also at 0 and 1


def test_no_refusals_or_no_quadruples_are_not_applicable() -> None:
    assert share_of(0, 0, 0, 0).reason == "nothing is refused"
    corpus = corpus_of(5)
    some = np.array([i for i, p in enumerate(corpus.prompts) if p.trigger])
    found = trigger_share(corpus, np.ones(len(corpus), dtype=bool), some)
    assert found.verdict == "not_applicable"
    assert "no request is harmful without a trigger word or benign without a trigger word" in found.reason


@draws(10, 40)
@pytest.mark.parametrize("over_refusal", [0.0, 0.2, 0.6])
def test_the_interval_covers_the_true_share(over_refusal, n_draws) -> None:
    true = (over_refusal / 2) / (over_refusal / 2 + 1 - over_refusal / 2)
    covered = 0
    for seed in range(n_draws):
        share = share_of(1, over_refusal, 1, 0, n=60, seed=seed).share
        covered += share.low - 1e-9 <= true <= share.high + 1e-9
    assert covered >= 0.9 * n_draws  # 95 % nominal


def drawn(rng: np.random.Generator, rates: np.ndarray, alike: float, n_groups: int, n_draws: int) -> np.ndarray:
    """Draw groups of one prompt a cell, so many times; a share of them decides all four by one common draw."""
    each, common = rng.random((n_draws, n_groups, 4)), rng.random((n_draws, n_groups, 1))
    hit = np.where(rng.random((n_draws, n_groups, 1)) < alike, common, each) < rates
    return np.stack([(hit @ [8, 4, 2, 1] == k).sum(1) for k in range(16)], axis=1)


@draws(700, 2000)
@matrix("share, population", [0.0, 0.05, 0.1, 0.27, 0.5, 0.9, 1.0], POPULATIONS)
def test_the_interval_covers_whatever_the_correlation_within_groups(population, share, n_draws) -> None:
    rng = np.random.default_rng(round(100 * share))
    for n_groups, alike in product((20, 60, 140), (0.0, 0.5, 1.0)):
        counts = drawn(rng, POPULATIONS[population](share), alike, n_groups, n_draws)
        covered = compatible(PATTERNS, counts, np.full(len(counts), share)).mean()
        assert covered >= 0.93, (n_groups, alike)  # 95 % nominal; the standard error of 2,000 draws is 0.5 %
        some = np.repeat(PATTERNS, counts[0], axis=0)
        found = share_interval(some)
        assert not compatible(PATTERNS, counts[:1], np.array([share]))[0] or found.low <= share <= found.high


def test_half_refused_whatever_is_asked_leaves_a_narrow_interval() -> None:
    """Whoever asks has a third of the groups refused whole: no group shows an effect of the word."""
    asked, corpus = np.repeat(np.arange(150) % 3 == 0, 4), corpus_of(150)
    harmful = np.array([p.intent == "harmful" for p in corpus.prompts])
    found = trigger_share(corpus, asked | harmful, np.arange(len(corpus)))
    assert found.verdict == "intent_driven"
    assert found.share.high < 0.05  # 0.09 if the cells were taken as independent
    assert found.effects["trigger"].low < 0 < found.effects["trigger"].high


def test_effects_of_the_unusual_sign_are_said() -> None:
    assert share_of(0.5, 0, 1, 0.5).reason.endswith("the word lowers refusing")
    assert "benign requests are refused more" in share_of(0, 1, 0, 1).reason
    slight = share_of(0.9, 0, 1, 0, n=60).share  # T = -0.05
    assert slight.low < slight.estimate < slight.high  # never a point, as where the limits of a negative effect are cut


def test_a_group_of_many_pairs_counts_once() -> None:
    corpus = corpus_of(40)
    one = Corpus(corpus.prompts, np.where(np.arange(160) < 4, 0, 1), corpus.part)
    refused = np.array([p.intent == "harmful" for p in corpus.prompts])
    assert trigger_share(corpus, refused, np.arange(160)).verdict == "intent_driven"
    assert trigger_share(one, refused, np.arange(160)).verdict == "inconclusive"


def test_only_pairs_with_all_four_cells_stand_in_it_and_means_are_of_each_groups_cells() -> None:
    corpus = corpus_of(6)
    found = quadruples(corpus, np.arange(len(corpus))[1:])  # the first pair has lost a prompt
    assert (found.n_groups, len(found.rows), set(found.counts().values())) == (5, 20, {5})
    assert {corpus.prompts[row].pair for row in found.rows} == {"1", "2", "3", "4", "5"}
    for few in (np.arange(0), np.arange(2)):
        assert quadruples(corpus, few).cell_means(np.zeros(0)).shape == (0, 4)
    corpus = corpus_of(3)
    found = quadruples(corpus, np.arange(len(corpus)))
    values = np.array([10 * corpus.groups[row] + cell for row, cell in zip(found.rows, found.member, strict=True)])
    assert found.cell_means(values).tolist() == [[10 * g + c for c in range(len(MEMBERS))] for g in range(3)]
    two = found.cell_means(np.stack([values, -values], axis=1))
    assert two.shape == (3, 4, 2)
    assert (two[..., 1] == -two[..., 0]).all()


def test_what_is_missing_is_said_with_its_remedy() -> None:
    def changed(**fields: object) -> Corpus:
        return replace(corpus, prompts=tuple(replace(p, **fields) for p in corpus.prompts))

    corpus, every = corpus_of(4), np.arange(16)
    innocent = np.delete(every, np.s_[MEMBERS.index((False, True)) :: len(MEMBERS)])
    apart = replace(corpus, prompts=tuple(replace(p, pair=str(i)) for i, p in enumerate(corpus.prompts)))
    for said, asked, rows in (
        ("no prompt names a trigger word: fill the field 'trigger'", changed(trigger=None), every),
        ("no prompt gives its intent", changed(intent=None), every),
        ("no request gives its group of minimal pairs", changed(pair=None), every),
        ("no request is harmful without a trigger word; add such", corpus, innocent),
        ("no pair holds all four", apart, every),
    ):
        assert said in lacking(asked, rows)
    assert quadruples(apart, every).n_groups == 0
