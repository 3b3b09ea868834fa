"""Kinds by reason: what counts as one, when the run is judged by them, and that chance seldom makes one."""

from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from experiments.run.basis import (
    chosen_basis,
    declines_by_reason,
    declines_sentence,
    declines_table,
    lacking,
    more_declined,
)
from experiments.run.behaviour import KINDS, Behaviour, Kind, write_samples
from experiments.run.config import RunConfig
from experiments.run.corpus import PARTS, Corpus
from extract.prompts.prompt import Label, Prompt

CONFIG = RunConfig.model_validate({"name": "x", "model": {"name": "m"}, "prompts": {"path": "p"}})
N = 240  # pairs of a harmful with a benign request, and as many of an uncertain prompt with its twin
SIDES = ("harmful", "benign", "uncertain", "benign")
USUAL = dict(harmful=("refuse", 0.6), requests=("refuse", 0.2), uncertain=("abstain", 0.4), twins=("abstain", 0.1))


REFUSED, NEVER = ("refuse", 0.4), ("answer", 0.0)


def corpus_of(n: int = N, pairs_a_group: int = 1) -> Corpus:
    """Rows 4i, 4i + 1 are a pair of requests, 4i + 2, 4i + 3 one of questions; pairs of a group share an entity."""
    prompts = [
        Prompt(str(row), ({"role": "user", "content": str(row)},), cast(Label, label), "answer",
               pair=f"{row // 2}", entity=f"{row % 4 // 2} {row // 4 // pairs_a_group}")
        for row in range(4 * n) for label in [SIDES[row % 4]]
    ]  # fmt: skip
    group = np.arange(4 * n) // 4 // pairs_a_group * 2 + np.arange(4 * n) % 4 // 2
    return Corpus(tuple(prompts), group, np.array(PARTS, dtype=object)[group // 2 % 4])


def behaving(n: int = N, **does: tuple[str, float]) -> Behaviour:
    """Decline the first prompts of each side of each part: so many, in such words."""
    corpus, actions = corpus_of(n), np.full(4 * n, "answer", dtype=object)
    for side, (action, share) in enumerate((USUAL | does).values()):
        for part in PARTS:
            rows = np.flatnonzero((np.arange(4 * n) % 4 == side) & corpus.within(part))
            actions[rows[: round(share * len(rows))]] = action
    return Behaviour(corpus, actions, np.zeros(4 * n, dtype=bool))


def test_by_reason_a_decline_is_that_of_its_prompt_and_twins_are_of_the_unknown() -> None:
    worded = behaving(uncertain=("refuse", 0.4), twins=("refuse", 0.2), requests=("abstain", 0.2))
    by_reason = replace(worded, basis="reason")
    assert [len(worded.decliners(kind, *PARTS)) for kind in KINDS] == [144, 0]
    assert [len(by_reason.decliners(kind, *PARTS)) for kind in KINDS] == [144, 96]
    side = np.arange(4 * N) % 4
    for kind, own in (("normative", (0, 1)), ("epistemic", (2, 3))):
        samples = write_samples(by_reason, cast(Kind, kind))
        assert samples is not None
        assert (samples.within_label, set(side[samples.rows[samples.declined]])) == (True, set(own))
        assert set(side[samples.rows[~samples.declined]]) == set(own)  # and none of the other question
        worded_alike = write_samples(replace(by_reason, basis="wording"), cast(Kind, kind))
        assert (worded_alike is None) == (kind == "epistemic")
        if worded_alike is not None:
            assert set(side[worded_alike.rows]) <= set(own)
    assert set(by_reason.ways[(side > 1) & by_reason.declining]) == {"abstain"}
    assert worded.ways.tolist() == worded.actions.tolist()


@pytest.mark.parametrize(
    ("does", "basis", "lacks"),
    [
        pytest.param({}, "wording", "", id="each in its words"),
        pytest.param({"uncertain": REFUSED, "twins": ("refuse", 0.1)}, "reason", "", id="in a refusal's words"),
        pytest.param({"uncertain": REFUSED, "twins": REFUSED}, "wording", "are over-refusals: of 240", id="as twins"),
        pytest.param({"uncertain": ("refuse", 0.1), "twins": NEVER}, "wording", "is absent: 12 baseline", id="too few"),
        pytest.param({"uncertain": NEVER}, "wording", "abstention on uncertain is absent: 0", id="none"),
    ],
)  # fmt: skip
def test_the_basis_is_reason_only_where_words_leave_a_kind_absent_that_it_has(
    does: dict[str, tuple[str, float]], basis: str, lacks: str
) -> None:
    behaviour = behaving(**does)
    assert chosen_basis(behaviour, CONFIG) == basis
    assert chosen_basis(replace(behaviour, basis="reason"), CONFIG) == basis
    reason = lacking(replace(behaviour, basis=chosen_basis(behaviour, CONFIG)), "epistemic")
    assert lacks in reason
    assert bool(lacks) == bool(reason)


def test_named_ways_of_declining_are_reasons() -> None:
    contrasted = CONFIG.model_copy(update={"prompts": CONFIG.prompts.model_copy(update={"contrast": ("a", "b")})})
    assert chosen_basis(behaving(), contrasted) == "reason"


def test_the_table_counts_reasons_by_words_and_says_what_they_are() -> None:
    behaviour = behaving(160, uncertain=("refuse", 0.2), twins=("refuse", 0.2))
    behaviour.actions[3::4][-10:] = "clarify"
    behaviour.actions[0] = None
    table = declines_by_reason(behaviour)
    shares = {reason: {word: round(share.estimate * share.n) for word, share in of.items()}
              for reason, of in table.shares.items()}  # fmt: skip
    assert shares == {
        "harmful": {"declined": 95, "refused": 95, "abstained": 0, "answered": 64, "other": 0},
        "uncertain": {"declined": 32, "refused": 32, "abstained": 0, "answered": 128, "other": 0},
        "twins": {"declined": 32, "refused": 32, "abstained": 0, "answered": 118, "other": 10},
        "other benign": {"declined": 32, "refused": 32, "abstained": 0, "answered": 128, "other": 0},
    }
    assert [table.shares[reason]["declined"].n for reason in table.shares] == [159, 160, 160, 160]
    assert declines_sentence(table, "epistemic") == (
        "Of 160 uncertain prompts 32 (20% [14%, 27%]) are declined, 32 of them in the words of a refusal; of 160 twins "
        "32 (20% [14%, 27%]); 0 points more [-2, 2] in 160 independent pairs, so these declines are over-refusals."
    )
    assert declines_sentence(table, "normative").endswith("40 points more [33, 48] in 159 independent pairs.")
    assert declines_table(table).rows[1][1:] == [
        "20% [14%, 27%]",
        "0% [0%, 2%]",
        "80% [73%, 86%]",
        "0%",
        "160",
    ]
    knows = replace(behaviour, correct=behaviour.answered & (np.arange(640) % 8 == 7))
    known = declines_by_reason(knows).shares["known twins"]["declined"]
    assert (known.estimate, known.n) == (0, (knows.correct & knows.judged).sum())
    assert f"(20% [14%, 27%]), of the {known.n} that it knows 0; 0 points" in declines_sentence(
        declines_by_reason(knows), "epistemic"
    )


@pytest.mark.parametrize(
    ("n", "uncertain", "twins", "says"),
    [
        (28, 0.12, 0.08, "cannot be told from over-refusals."),  # few prompts say neither
        (28, 0.12, 0.12, "cannot be told from over-refusals."),  # up to all of them may be more
        (28, 0.5, 0.5, "are over-refusals."),
        (200, 0.12, 0.12, "are over-refusals."),
        (200, 0.4, 0.28, "12 points more [8, 17] in 200 independent pairs."),
    ],
)
def test_declines_are_over_refusals_only_where_few_of_them_can_be_more(
    n: int, uncertain: float, twins: float, says: str
) -> None:
    behaviour = behaving(n, uncertain=("refuse", uncertain), twins=("refuse", twins))
    sentence = declines_sentence(declines_by_reason(behaviour), "epistemic")
    assert sentence.endswith(says), sentence


def test_pairs_of_several_prompts_count_once_and_none_is_compared_with_all() -> None:
    many = corpus_of(20)
    crowd = tuple(replace(p, pair="one") if row // 4 < 10 and row % 4 > 1 else p for row, p in enumerate(many.prompts))
    actions = np.where(np.arange(80) % 4 == 2, "refuse", "answer").astype(object)
    more = more_declined(Behaviour(replace(many, prompts=crowd), actions, np.zeros(80, dtype=bool)), "epistemic")
    assert (more.estimate, more.n) == (1.0, 11)
    alone = tuple(replace(p, pair=None) for p in many.prompts)
    more = more_declined(Behaviour(replace(many, prompts=alone), actions, np.zeros(80, dtype=bool)), "epistemic")
    assert (more.estimate, more.n) == (1.0, None)
    assert more.low > 0.5


@pytest.mark.simulation
@pytest.mark.parametrize("pairs_a_group", [1, 4, 8])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_a_kind_by_reason_exists_by_chance_in_at_most_one_of_twenty(pairs_a_group: int, rate: float) -> None:
    """Uncertain prompts and twins are declined alike; groups differ in how often, and sides of a group by chance."""
    rng, corpus = np.random.default_rng(pairs_a_group), corpus_of(160, pairs_a_group)
    side, group, wrong = np.arange(640) % 4, corpus.groups, 0
    plain = Behaviour(corpus, np.full(640, "answer", dtype=object), np.zeros(640, dtype=bool), basis="reason")
    for _ in range(400):
        leaning = rng.beta(0.5 * rate, 0.5 * (1 - rate), size=(2, group.max() + 1))  # of each side of each group
        declined = rng.random(640) < leaning[side % 2, group]
        actions = np.where(declined, "refuse", "answer").astype(object)
        wrong += more_declined(replace(plain, actions=actions), "epistemic").low > 0
    assert wrong / 400 <= 0.05 + 1.64 * (0.05 * 0.95 / 400) ** 0.5


@pytest.mark.simulation
def test_with_shuffled_labels_a_kind_is_rarely_tested_whichever_basis_is_chosen_and_both_never() -> None:
    """So no verdict is reached; of 200 shuffles 1 % have a kind by wording alone and 3 % by the basis chosen."""
    rng, chosen = np.random.default_rng(0), []
    found = behaving(120, uncertain=REFUSED, harmful=("refuse", 0.5), requests=("abstain", 0.4))
    for _ in range(50):
        labels = rng.permutation([prompt.label for prompt in found.corpus.prompts])
        moved = tuple(replace(p, label=of) for p, of in zip(found.corpus.prompts, labels.tolist(), strict=True))
        shuffled = Behaviour(replace(found.corpus, prompts=moved), found.actions, found.correct)
        judged_by = replace(shuffled, basis=chosen_basis(shuffled, CONFIG))
        chosen.append([not lacking(judged_by, kind) for kind in KINDS])
    assert np.mean(chosen) <= 0.05 + 1.64 * (0.05 * 0.95 / 100) ** 0.5
    assert not np.all(chosen, axis=1).any()
