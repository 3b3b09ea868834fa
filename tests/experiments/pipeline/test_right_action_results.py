"""results.json scores right actions on test prompts, without and with the dials, and counts accommodation."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from experiments.pipeline.results import _accommodation, _right_actions
from experiments.run.completion_file import Completion, write_completions
from experiments.run.corpus import divide
from extract.prompts.prompt import DUAL_USE, load_prompts
from extract.prompts.sources import PromptsConfig
from scoring.accommodation import AccommodationRecord
from scoring.right_action import load_adjacency, right_action_score
from scoring.wording import accommodation_estimates
from tests.conftest import ROOT

CONFIG = PromptsConfig(path=ROOT / "configs" / "prompts" / "core.jsonl")


def test_a_run_shows_a_model_that_refuses_the_middle_and_dials_that_answer_it(tmp_path: Path) -> None:
    prompts = load_prompts(CONFIG.path or "")
    corpus = divide(prompts, CONFIG, 0)
    test = np.flatnonzero(corpus.within("test"))
    before = np.array(["refuse" if p.label == DUAL_USE else p.right_action for p in prompts], dtype=object)
    after = [Completion(prompts[row].id, "", "", "answer" if prompts[row].label == DUAL_USE else "refuse", "", ())
             for row in test]  # fmt: skip
    write_completions(after, tmp_path / "completions_steered.jsonl")
    inputs = SimpleNamespace(
        prompts=prompts, corpus=corpus, behaviour=SimpleNamespace(actions=before), file=lambda name: tmp_path / name
    )
    found = _right_actions(cast(Any, inputs))
    assert found.before.dual_use is not None
    assert found.after.dual_use is not None
    assert found.before.dual_use.declined.n == sum(p.label == DUAL_USE for p in prompts)  # all are reported
    assert (found.before.dual_use.declined.estimate, found.after.dual_use.declined.estimate) == (1, 0)
    assert (found.before.dual_use.answered_firmly.estimate, found.after.dual_use.answered_firmly.estimate) == (0, 1)
    right, acceptable = [prompts[row].right_action for row in test], [prompts[row].acceptable for row in test]
    score = right_action_score(right, acceptable, list(before[test]), corpus.groups[test], load_adjacency())
    assert found.before.score.estimate == pytest.approx(score.estimate)
    assert found.before.by_action["refuse"].estimate == pytest.approx(1)
    assert found.after.by_action["answer"].estimate == pytest.approx(0)
    assert set(found.before.by_action) == {p.right_action for p in prompts}


def test_a_run_on_pairs_says_what_it_goes_along_with_and_another_says_nothing() -> None:
    pairs = load_prompts(ROOT / "configs" / "prompts" / "accommodation.jsonl")
    for prompts, counted in ((pairs, True), (load_prompts(CONFIG.path or ""), False)):
        knows = np.array([p.answer is not None and p.pair != "fp001" for p in prompts])
        did = SimpleNamespace(actions=np.full(len(prompts), "answer", dtype=object), correct=knows)
        found = _accommodation(cast(Any, SimpleNamespace(prompts=prompts, behaviour=did)))
        assert (found is not None) is counted
        if found is not None:
            assert found.if_known["accommodated"].limits()[::2] == (1.0, 1.0)
            assert (found.if_known["accommodated"].n, found.if_not_known["accommodated"].n) == (len(pairs) // 3 - 1, 1)
            assert found.discrimination.estimate == pytest.approx(1 - 2 / (len(pairs) // 3))
            assert len(found.by_construction) == 6
            kept = AccommodationRecord.model_validate_json(found.model_dump_json())
            assert kept == found
            assert any(what == "known to be false: accommodated" for what, _, _ in accommodation_estimates(kept))
