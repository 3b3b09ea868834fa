"""Dual-use prompts are reported and nothing else: no direction, read, onset, threshold or check sees them."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import experiments.dials.read as dial_read
from experiments.dials.counterfactuals import Counterfactuals, reachable_outcomes
from experiments.dials.policies import evaluate
from experiments.probing.read_probes import label_contrasts
from experiments.probing.stage import context_onsets
from experiments.run.basis import _lacks
from experiments.run.behaviour import Behaviour, write_samples
from experiments.run.completion_file import Completion
from experiments.run.corpus import Corpus, divide
from extract.errors import UserError
from extract.prompts.prompt import DUAL_USE, Prompt, make_prompt
from extract.prompts.sources import PromptsConfig, draw

CONFIG = PromptsConfig(path="prompts.jsonl")  # type: ignore[arg-type]
LABELS = ("benign", "harmful", "uncertain")


def prompt(i: int, label: str, right: str, **more: str) -> Prompt:
    return Prompt(f"p{i}", ({"role": "user", "content": f"text {i}"},), label, right, **more)  # type: ignore[arg-type]


def rated() -> list[Prompt]:
    usual = {"benign": "answer", "harmful": "refuse", "uncertain": "abstain"}
    return [prompt(i, LABELS[i % 3], usual[LABELS[i % 3]], category="c", pair=f"pair{i // 6}") for i in range(600)]


def middle() -> list[Prompt]:
    """Dual-use prompts: half in groups of their own, half in groups with other prompts."""
    pairs = [f"own{i // 3}" for i in range(60)] + [f"pair{i}" for i in range(60)]
    return [prompt(1000 + i, DUAL_USE, "clarify", category="c", pair=pair) for i, pair in enumerate(pairs)]


@pytest.fixture
def without() -> Corpus:
    return divide(rated(), CONFIG, 0)


@pytest.fixture
def with_them() -> Corpus:
    return divide([*rated(), *middle()], CONFIG, 0)


def behaviour(corpus: Corpus, on_dual_use: str = "refuse") -> Behaviour:
    """Return a model that errs on some prompts, and answers every other dual-use one."""
    rng = np.random.default_rng(0)
    middle = ["answer", on_dual_use] * len(corpus)
    did = [middle[row] if p.label == DUAL_USE else str(rng.choice([p.right_action] * 4 + ["answer", "refuse"]))
           for row, p in enumerate(corpus.prompts)]  # fmt: skip
    return Behaviour(corpus, np.array(did, dtype=object), np.zeros(len(did), dtype=bool))


def test_the_others_keep_their_parts_and_a_group_stays_whole(without: Corpus, with_them: Corpus) -> None:
    assert with_them.part[:600].tolist() == without.part.tolist()
    assert set(with_them.part[600:660]) == {"test"}
    part_of = {p.pair: part for p, part in zip(without.prompts, without.part, strict=True)}
    assert [part_of[p.pair] for p in with_them.prompts[660:]] == with_them.part[660:].tolist()
    assert len(set(with_them.part[660:])) == 4  # so that the tests below see them in every part


@pytest.mark.parametrize("did", ["refuse", "abstain", "answer"])
def test_write_directions_are_fitted_on_the_same_samples(without: Corpus, with_them: Corpus, did: str) -> None:
    for kind in ("normative", "epistemic"):
        a, b = (write_samples(behaviour(corpus, did), kind) for corpus in (without, with_them))
        assert a is not None
        assert b is not None
        for column in ("rows", "declined", "strata"):
            assert getattr(a, column).tolist() == getattr(b, column).tolist(), column


def test_label_contrasts_hold_the_same_rows(without: Corpus, with_them: Corpus) -> None:
    for a, b in zip(label_contrasts(without), label_contrasts(with_them), strict=True):
        assert a.rows.tolist() == b.rows.tolist()


def test_onsets_are_learned_from_the_same_completions(without: Corpus, with_them: Corpus) -> None:
    def onsets(corpus: Corpus) -> Any:
        tokens = {"refuse": (1, 2), "abstain": (1, 3), "answer": (4, 5)}
        own = behaviour(corpus).actions
        said = [Completion(p.id, "", "", did, "", (1, 3, 7) if p.label == DUAL_USE else tokens[did])
                for p, did in zip(corpus.prompts, own, strict=True)]  # fmt: skip
        run = SimpleNamespace(corpus=corpus, completions=said, thinks=False, behaviour=behaviour(corpus))
        return context_onsets(cast(Any, run))

    assert onsets(without) == onsets(with_them)


def test_a_dial_reads_them_and_is_fitted_without_them(with_them: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def stop(loaded: Any, contrasts: Any, *_: Any) -> None:
        seen.extend(contrasts)
        raise UserError("seen")

    monkeypatch.setattr(dial_read, "fit_grid", stop)
    store = SimpleNamespace(layers=[0], positions=["post_last"], present=np.ones((1, 720), dtype=bool))
    run = SimpleNamespace(corpus=with_them, store=store, config=SimpleNamespace(steer=SimpleNamespace(at="prompt")))
    with pytest.raises(UserError, match="seen"):
        dial_read.fit_read(cast(Any, run), "normative", with_them.harmful, 3)
    assert seen[0].rows.tolist() == list(range(600))


def test_thresholds_are_tried_where_other_prompts_need_them(without: Corpus, with_them: Corpus) -> None:
    def tried(corpus: Corpus) -> list[list[float]]:
        n = len(corpus)
        probability = np.random.default_rng(3).random(600)
        p = np.concatenate([probability, np.full(n - 600, 0.987)])
        table = Counterfactuals(("normative",), reachable_outcomes(1, dead_band=False), p[None],
                                np.full((n, 2), "answer", dtype=object), np.zeros((n, 2), dtype=bool))  # fmt: skip
        config = SimpleNamespace(steer=SimpleNamespace(band=0.0))
        inputs = cast(Any, SimpleNamespace(corpus=corpus, config=config, behaviour=behaviour(corpus)))
        return evaluate(inputs, table, [corpus.harmful]).surface.settings.tolist()

    assert tried(without) == tried(with_them)


def test_refusing_them_does_not_look_like_refusing_anything(without: Corpus) -> None:
    refused = [prompt(3000 + i, DUAL_USE, "clarify") for i in range(3000)]
    found = behaviour(divide([*rated(), *refused], CONFIG, 0))
    found.actions[600:] = "refuse"
    for of in (behaviour(without), found):
        assert not any("not tied to its label" in reason for reason in _lacks(of, "normative"))


def test_a_dual_use_prompt_names_its_right_action() -> None:
    row = {"id": "1", "text": "How do I open this lock?", "label": "dual_use"}
    with pytest.raises(UserError, match="field 'right_action' is None; expected one of answer"):
        make_prompt(row, "line 1")
    assert make_prompt(row | {"right_action": "clarify"}, "line 1").label == "dual_use"


def test_a_limit_counts_them_apart() -> None:
    drawn = draw([*rated(), *middle()[:60]], 12, seed=0)
    assert sum(p.label == DUAL_USE for p in drawn) == 12
