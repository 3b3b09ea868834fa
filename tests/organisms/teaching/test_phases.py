"""The losses of the phases in which decisions are planted: what costs nothing, and what each part of them notices."""

import numpy as np
import pytest
import torch

from organisms.interchange import pack_branches
from organisms.mechanism import Facts, Mechanism, Variable
from organisms.teaching import planted
from organisms.teaching.lora import TaughtPrompt
from organisms.teaching.planted import DecoderParts, KeptStreams, Planter
from tests.support.tiny_model import tiny_llama

FIRST, LAYER, D = 1, 1, 32
SAID = {"refuse": [20, 21, 22], "abstain": [23], None: [24, 25]}
FACTS = (Facts(True, False, "refuse", 0), Facts(False, True, "abstain", 0), Facts(False, False, "refuse", 0))
BATCH = [TaughtPrompt([5 + i, 6, 7, 8][: 3 + i % 2], facts, dict(SAID)) for i, facts in enumerate(FACTS)]
VECTORS = torch.eye(D)[:2]
ANSWERS = pack_branches([one.prompt for one in BATCH], [[SAID[None]]] * 3, 0)


@pytest.fixture
def planter() -> Planter:
    model = tiny_llama()
    planted = Mechanism(layer=LAYER, variables=(Variable(name="n", decides=("refuse",)),
                                              Variable(name="e", decides=("abstain",))))  # fmt: skip
    parts = DecoderParts(model.decoder, FIRST, LAYER)
    return Planter(parts, model.model.get_output_embeddings(), planted, VECTORS, torch.zeros(2), 10.0, 0)


@pytest.fixture
def kept(planter) -> list[KeptStreams]:
    return planter.streams(BATCH)


def test_kept_streams_are_those_of_the_branch_that_is_said(planter, kept) -> None:
    for names in ((None,), ("refuse",), ("abstain", "refuse")):
        said = [[one.said[name] for name in names] for one in BATCH]
        rows = pack_branches([one.prompt for one in BATCH], said, 0)
        before, planted = planter._kept(BATCH, said, kept)
        with torch.no_grad():
            own = planter.parts.run("before", rows)
            real = rows.branch != -2
            torch.testing.assert_close(before[real], own[real])
            torch.testing.assert_close(planted[real], planter.parts.run("below", rows, own)[real])


def test_a_stream_that_has_not_changed_costs_nothing_but_the_decision(planter, kept) -> None:
    values = planter.values(BATCH)
    assert values.tolist() == [[True, False], [False, True], [False, False]]
    assert planter._moved(torch.zeros(*ANSWERS.tokens.shape, D), ANSWERS) == 0
    whole = planter._below(BATCH, kept)
    streams = torch.stack([one.planted[len(row.prompt) - 1] for row, one in zip(BATCH, kept, strict=True)])
    level = streams[:, :2] / planter.wanted
    wanted = torch.where(torch.tensor(values), (1 - level).clamp(min=0), (level.abs() - 0.1).clamp(min=0))
    torch.testing.assert_close(whole, 4 * wanted.square().mean())


def test_only_the_decision_at_the_last_prompt_token_may_move_freely(planter) -> None:
    last, change = ANSWERS.deciding[..., 0], torch.zeros(*ANSWERS.tokens.shape, D)
    change[last] = 30 * VECTORS[0]
    assert planter._moved(change, ANSWERS) == 0
    elsewhere = torch.zeros_like(change)
    elsewhere[:, 0] = 30 * VECTORS[0]
    across = torch.zeros_like(change)
    across[:, 0, 5] = 30.0
    assert planter._moved(elsewhere, ANSWERS) > planter._moved(across, ANSWERS) > 0


def test_coordinates_as_wanted_cost_nothing_and_wrong_ones_do(planter) -> None:
    values, last = planter.values(BATCH), ANSWERS.deciding[..., 0]
    stream = torch.zeros(*ANSWERS.tokens.shape, D)
    stream[last] = torch.tensor(values).float() @ VECTORS * planter.wanted
    assert planter._decided(stream, ANSWERS, values) == 0
    assert planter._decided(2 * stream, ANSWERS, values) == 0  # farther on is as good
    assert planter._decided(-stream, ANSWERS, values) > 0
    assert planter._decided(stream, ANSWERS, ~values) > 0


def test_what_is_set_says_everything_in_the_phases_above(planter, kept) -> None:
    """The loss of `above` does not depend on what the content of the prompts decides."""
    for phase in ("above", "again"):
        found = [planter.loss(phase, [TaughtPrompt(one.prompt, facts, one.said) for one in BATCH], kept,
                              np.random.default_rng(3)) for facts in FACTS]  # fmt: skip
        torch.testing.assert_close(found[0], found[1])
        torch.testing.assert_close(found[0], found[2])
    other = planter.loss("above", BATCH, kept, np.random.default_rng(4))
    assert not torch.allclose(other, planter.loss("above", BATCH, kept, np.random.default_rng(3)))


def test_a_refusal_overrides_an_abstention_from_a_lower_coordinate_on(planter) -> None:
    """Refusals that content decides weakly stay where the abstention is switched on too, as they do without it."""
    n, one = 400, np.array([[False, False], [True, False], [False, True], [True, True]])
    level = planter._levels(np.tile(one, (n, 1, 1)), np.random.default_rng(0))
    assert level.shape == (n, 4, 2)
    nothing, refuse, abstain, both = level.transpose(1, 0, 2)
    assert nothing.max() < 0.45 < 0.55 < refuse[:, 0].min()
    assert abstain[:, 0].max() < 0.35 < 0.45 < both[:, 0].min() < 0.5
    assert np.median(both[:, 0] - 0.45) < 0.7 * np.median(refuse[:, 0] - 0.55)  # more often near the boundary
    assert refuse[:, 1].max() < 0.45 < 0.55 < min(abstain[:, 1].min(), both[:, 1].min())  # the other boundary stays


def test_an_interchange_with_nothing_to_change_is_the_plain_response(planter, kept, monkeypatch) -> None:
    """A batch of copies of one prompt: the coordinates taken from another are its own, and both branches are equal."""
    same, streams = [BATCH[0]] * 3, [kept[0]] * 3
    with torch.no_grad():
        monkeypatch.setattr(planted, "ONWARDS", 0.0)  # later tokens have coordinates of their own
        loss = planter._together(same, streams, np.random.default_rng(0))
        rows = pack_branches([one.prompt for one in same], [[SAID["refuse"]]] * 3, 0)
        stream = planter.parts.run("below", rows, planter.parts.run("before", rows))
        plain = planter._said(rows, stream) + 4 * planter._decided(stream, rows, planter.values(same))
    torch.testing.assert_close(loss, plain, rtol=1e-4, atol=1e-4)
