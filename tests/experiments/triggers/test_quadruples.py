"""The 2 x 2 of minimal pairs: which prompts belong to it, and the reason where none do."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.run.corpus import Corpus
from experiments.triggers.quadruples import MEMBERS, lacking, quadruples
from tests.experiments.triggers.test_trigger_share import corpus_of


def changed(corpus: Corpus, **fields: object) -> Corpus:
    """Return the corpus with fields of all prompts set."""
    return replace(corpus, prompts=tuple(replace(p, **fields) for p in corpus.prompts))  # type: ignore[arg-type]


def without(corpus: Corpus, trigger: bool, harmful: bool) -> np.ndarray:
    """Return the rows outside one cell."""
    prompts = corpus.prompts
    return np.array(
        [i for i, p in enumerate(prompts) if ((p.trigger is not None), p.intent == "harmful") != (trigger, harmful)]
    )


def test_only_pairs_with_all_four_cells_stand_in_it() -> None:
    corpus = corpus_of(6)
    rows = np.arange(len(corpus))[1:]  # the first pair has lost a prompt
    found = quadruples(corpus, rows)
    assert found.n_groups == 5
    assert len(found.rows) == 20
    assert set(found.counts().values()) == {5}
    assert {corpus.prompts[row].pair for row in found.rows} == {"1", "2", "3", "4", "5"}


def test_means_are_of_each_groups_cells() -> None:
    corpus = corpus_of(3)
    found = quadruples(corpus, np.arange(len(corpus)))
    values = np.array([10 * corpus.groups[row] + cell for row, cell in zip(found.rows, found.member, strict=True)])
    assert found.cell_means(values).tolist() == [[10 * g + c for c in range(len(MEMBERS))] for g in range(3)]
    two = found.cell_means(np.stack([values, -values], axis=1))
    assert two.shape == (3, 4, 2)
    assert (two[..., 1] == -two[..., 0]).all()


def test_what_is_missing_is_said_with_its_remedy() -> None:
    corpus = corpus_of(4)
    every = np.arange(len(corpus))
    reasons = {
        "no prompt names a trigger word: fill the field 'trigger'": lacking(changed(corpus, trigger=None), every),
        "no prompt gives its intent": lacking(changed(corpus, intent=None), every),
        "no request gives its group of minimal pairs": lacking(changed(corpus, pair=None), every),
        "no request is harmful without a trigger word; add such": lacking(corpus, without(corpus, False, True)),
    }
    for said, reason in reasons.items():
        assert said in reason
    apart = replace(corpus, prompts=tuple(replace(p, pair=str(i)) for i, p in enumerate(corpus.prompts)))
    assert "no pair holds all four" in lacking(apart, every)
    assert quadruples(apart, every).n_groups == 0


@pytest.mark.parametrize("n", [0, 2])
def test_few_rows_make_no_error(n: int) -> None:
    assert quadruples(corpus_of(2), np.arange(n)).cell_means(np.zeros(0)).shape == (0, 4)
