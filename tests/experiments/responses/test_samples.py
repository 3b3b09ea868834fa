"""Samples are cached one by one: drawing more, or for other prompts, leaves earlier ones unchanged."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from experiments.responses.completions import Completer
from experiments.responses.response_cache import ResponseCache
from experiments.responses.setting import PromptBatch
from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.decoding import SampledResponse
from extract.prompts.prompt import Prompt
from scoring.judges.rules import RuleJudge

ALL = list(range(5))


def sampler(
    model: ChatModel, rows: list[Rendered], path: Path | None, seed: int = 0, **given: float
) -> Callable[..., Any]:
    prompts = [Prompt(str(i), ({"role": "user", "content": "?"},), "benign", "answer") for i in range(len(rows))]
    kept = None if path is None else ResponseCache(path, model)
    return partial(Completer(model, prompts, rows, 6, 3, RuleJudge(), kept).sample, seed=seed, **given)


def said(samples: list[tuple[SampledResponse, ...]]) -> list[list[tuple[int, ...]]]:
    """Only the tokens: in another batch log-probabilities differ by rounding."""
    return [[one.token_ids for one in of] for of in samples]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were drawn each time."""
    rows: list[int] = []
    samples = PromptBatch.samples

    def counted(self: PromptBatch, places: list[int], *more: object) -> object:
        rows.append(len(places))
        return samples(self, places, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(PromptBatch, "samples", counted)
    return rows


def test_responses_that_share_a_prefill_are_those_of_the_model_alone(
    tiny: ChatModel, tiny_rows: list[Rendered], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where rows end at different steps and leave the batch, and where the model cannot go on."""
    shared = sampler(tiny, tiny_rows, None, temperature=1.5, top_p=0.9)(ALL, 4)
    ends = shared[0][0].token_ids[1]  # made an end token, which some rows say early
    monkeypatch.setattr(ChatModel, "eos_ids", [ends])
    early = sampler(tiny, tiny_rows, None, temperature=1.5, top_p=0.9)(ALL, 4)
    monkeypatch.setattr("experiments.responses.setting.try_cache_prompts", lambda *_: None)
    alone = sampler(tiny, tiny_rows, None, temperature=1.5, top_p=0.9)(ALL, 4)
    assert said(early) == said(alone)
    assert any(one.ended for of in early for one in of)
    for a, b in zip([one for of in early for one in of], [one for of in alone for one in of], strict=True):
        assert a.ended == b.ended
        assert a.log_probs == pytest.approx(b.log_probs, abs=1e-4)


def test_more_samples_add_to_those_there_are(
    tiny: ChatModel, tiny_rows: list[Rendered], tmp_path: Path, drawn: list[int]
) -> None:
    path = tmp_path / "said.sqlite"
    two = sampler(tiny, tiny_rows, path)(ALL, 2)
    assert sum(drawn) == 10
    assert sampler(tiny, tiny_rows, path)(ALL, 2) == two
    assert sum(drawn) == 10
    steps: dict[bool, int] = {True: 0, False: 0}

    def advance(n: int, *, remembered: bool = False) -> None:
        steps[remembered] += n

    three = sampler(tiny, tiny_rows, path)(ALL, 3, advance=advance)
    assert sum(drawn) == 15
    assert steps == {True: 10, False: 5}
    assert [of[:2] for of in three] == two
    assert sampler(tiny, tiny_rows, None)(ALL, 3) == three
    assert said(sampler(tiny, tiny_rows, None)([3, 0], 3)) == said([three[3], three[0]])


def test_samples_of_one_prompt_differ_and_so_do_seeds(tiny: ChatModel, tiny_rows: list[Rendered]) -> None:
    first = sampler(tiny, tiny_rows, None)(ALL, 4)
    assert all(len({one.token_ids for one in of}) > 1 for of in first)
    assert sampler(tiny, tiny_rows, None, seed=1)(ALL, 4) != first


def test_samples_of_other_settings_are_never_taken_from_the_cache(
    tiny: ChatModel, tiny_rows: list[Rendered], tmp_path: Path, drawn: list[int]
) -> None:
    path = tmp_path / "said.sqlite"
    sampler(tiny, tiny_rows, path)(ALL, 1)
    sampler(tiny, tiny_rows, path, seed=1)(ALL, 1)
    sampler(tiny, tiny_rows, path, temperature=0.5)(ALL, 1)
    sampler(tiny, tiny_rows, path, top_p=0.5)(ALL, 1)
    assert sum(drawn) == 20
    greedy = ResponseCache(path, tiny).for_edits((), 6)
    assert greedy is not None
    assert greedy.find([row.token_ids for row in tiny_rows]) == [None] * 5
