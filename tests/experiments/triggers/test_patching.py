"""Activation patching between prompts that differ in the trigger word."""

import json

import numpy as np
import pytest
import torch

from experiments.responses.onset import Onsets, learn_onsets
from experiments.triggers.patching import AlignedPair, _log_odds, _patches, align, patching_share
from extract.chat.render import Rendered, render
from extract.prompts.prompt import load_prompts
from tests.conftest import ORGANISM

A, B, LONGER = [1, 2, 9, 3, 4], [1, 2, 8, 3, 4], [1, 2, 8, 7, 3, 4]


@pytest.mark.parametrize(
    ("with_word", "without", "trigger", "spans"),
    [
        (A, B, [2], (range(2, 3), range(2, 3))),
        (A, LONGER, [2], (range(2, 3), range(2, 4))),
        (LONGER, A, [2, 3], (range(2, 4), range(2, 3))),
        ([1, 5, 6, 4], [1, 5, 7, 4], [1, 2], (range(1, 3), range(1, 3))),  # a piece that both words share is the word's
        ([1, 6, 5, 4], [1, 7, 5, 4], [1, 2], (range(1, 3), range(1, 3))),
        (A, [1, 2, 8, 7, 6], [2], None),  # another word after it
        (A, [0, 2, 8, 3, 4], [2], None),  # another before it
        (A, [1, 2, 3, 4], [2], None),  # nothing in its place
        (A, A, [2], None),  # nothing differs
    ],
)
def test_spans_are_what_differs_in_the_word_alone(with_word, without, trigger, spans) -> None:
    assert align(with_word, without, trigger) == spans


@pytest.mark.parametrize(
    ("word", "without", "into_with", "into_without"),
    [
        ((5, 6, 7), (5,), ((5, 6, 7), (5, 5, 5)), ((5,), (7,))),
        ((5, 6), (3, 4, 5), ((5, 6), (4, 5)), ((3, 4, 5), (5, 5, 6))),
    ],
)
def test_unequal_spans_are_aligned_at_their_ends(word, without, into_with, into_without) -> None:
    pair = AlignedPair(0, 1, word, without)
    assert (pair.places(into_with=True), pair.places(into_with=False)) == (into_with, into_without)


@pytest.fixture(scope="module")
def flipped(two_knobs) -> tuple[list[Rendered], list[AlignedPair], Onsets]:
    """Requests refused for a word, each followed by the one without it; where these differ; and the onsets of both."""
    over = set(json.loads((ORGANISM / "truth.json").read_text())["over_refused_triggers"])
    benign = [p for p in load_prompts(ORGANISM / "prompts.jsonl") if p.intent == "benign" and p.category != "order"]
    by_pair = {p.pair: p for p in benign if p.trigger is None}
    twins = [(p, by_pair[p.pair]) for p in benign if p.trigger in over and p.pair in by_pair][:12]
    rendered = [render(two_knobs.tokenizer, prompt) for pair in twins for prompt in pair]
    spans = (align(a.token_ids, b.token_ids, a.trigger) for a, b in zip(rendered[::2], rendered[1::2], strict=True))
    pairs = [AlignedPair(2 * i, 2 * i + 1, *map(tuple, both)) for i, both in enumerate(spans) if both]
    said = [tuple(s) for s in two_knobs.generate(two_knobs.batch(rendered), 12)]
    return rendered, pairs, learn_onsets(said, ["refuse", "answer"] * len(twins))


def test_the_word_carries_everything_at_first_and_nothing_in_the_end(two_knobs, flipped) -> None:
    rendered, pairs, onsets = flipped
    assert len(pairs) >= 8
    before = {name: tensor.clone() for name, tensor in two_knobs.model.state_dict().items()}
    first, last = patching_share(two_knobs, rendered, pairs, np.arange(len(pairs)), onsets, [0, two_knobs.n_layers - 1])
    assert first.raised.estimate == pytest.approx(1, abs=0.05)
    assert first.lowered.estimate > 0.7
    for share in (last.raised, last.lowered):  # no layer follows that could move it to the last token
        assert share.estimate == pytest.approx(0, abs=1e-4)
    assert all(torch.equal(tensor, before[name]) for name, tensor in two_knobs.model.state_dict().items())
    assert two_knobs.edits == ()


def test_copying_from_the_same_prompt_changes_nothing(two_knobs, flipped) -> None:
    """The control: what is copied matters, not that something is."""
    rendered, pairs, onsets = flipped
    idle = [rendered[p.with_word] for p in pairs]
    (edit,) = _patches(two_knobs, idle, idle, [(p.span_with, p.span_with) for p in pairs], [0])
    assert _log_odds(two_knobs, idle, onsets, [edit]) == pytest.approx(_log_odds(two_knobs, idle, onsets), abs=1e-4)


def test_padding_moves_no_patch(two_knobs, flipped) -> None:
    rendered, pairs, onsets = flipped
    short = min(pairs, key=lambda p: len(rendered[p.with_word].token_ids))

    def patched(some: list[AlignedPair]) -> np.ndarray:
        sources, targets = ([rendered[getattr(p, side)] for p in some] for side in ("with_word", "without"))
        _, edit = _patches(two_knobs, sources, targets, [p.places(False) for p in some], [0, 1])
        return _log_odds(two_knobs, targets, onsets, [edit])

    assert patched(pairs)[pairs.index(short)] == pytest.approx(patched([short])[0], abs=1e-3)
