"""Packed branches compute what separate rows do; what a branch takes from another row; planted coordinates."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from organisms.grammar import Grammar
from organisms.interchange import Branches, PlantedLayers, Swaps, coordinates, draw_swaps, draw_vectors, set_coordinates
from organisms.spec import OrganismSpec
from organisms.training import Packer, build_model, grammar_tokenizer

N, E = {"name": "normative", "decides": ["refuse"]}, {"name": "epistemic", "decides": ["abstain"]}
ROWS = 6
MODEL = {"n_layers": 4, "d_model": 32, "n_heads": 2, "d_mlp": 32}
OBLIQUE = {"layer": 1, "variables": [N, E], "cosines": [{"between": ["normative", "epistemic"], "value": 0.6}]}
ALL, EVERY = torch.ones(ROWS, dtype=torch.bool), torch.arange(ROWS)
OTHER = EVERY.roll(1)


@dataclass
class Packed:
    """A random model far from its nearly linear start, so that what a token sees matters, and a packed batch."""

    spec: OrganismSpec
    tokenizer: PreTrainedTokenizerFast
    flipped: bool  # the branches say the opposite of what the content decides

    def __post_init__(self) -> None:
        grammar, rng = Grammar(self.spec), np.random.default_rng(0)
        self.examples = [grammar.training_example(rng) for _ in range(ROWS)]
        values = np.array([example.values for example in self.examples])
        mixed = ~values if self.flipped else values
        self.packer = Packer(self.tokenizer, self.spec.model.architecture)
        self.rows = self.packer.pack(grammar, self.examples, mixed)
        said = [grammar.respond(e, tuple(map(bool, row))) for e, row in zip(self.examples, mixed, strict=True)]
        self.texts = [grammar.respond(e, e.values) for e in self.examples], said
        self.model: PreTrainedModel = build_model(self.spec, self.tokenizer).eval()
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.mul_(4.0 if parameter.ndim > 1 else 1.0)
        self.axes = draw_vectors(self.spec.planted, self.spec.seed, self.spec.model.d_model)
        self.last, self.start = self.rows.deciding.int().argmax(dim=1).unbind(dim=1)

    def run(self, rows: Branches | None = None, **changes: Any) -> tuple[float, float, Tensor]:
        """Return both losses and the planted coordinates, with changes of swaps that do nothing."""
        no, k = ~ALL, len(self.axes)
        nothing = {"sources": OTHER, "variables": torch.zeros(ROWS, k, dtype=torch.bool), "onwards": no, "alone": no,
                   "strangers": OTHER, "replaced": no, "blank": None}  # fmt: skip
        planter = PlantedLayers(self.model.model, self.model.lm_head, self.spec.planted, self.axes)
        with torch.no_grad():
            (plain, branch), seen = planter.forward(rows or self.rows, Swaps(**(nothing | changes)))
        return float(plain), float(branch), planter.read(seen)[..., 0]

    def streams(self, **changes: Any) -> dict[int, Tensor]:
        seen: dict[int, Tensor] = {}
        layers = self.model.model.layers
        handles = [layers[i + 1].register_forward_pre_hook(lambda _m, args, i=i: seen.__setitem__(i, args[0].clone()))
                   for i in range(len(layers) - 1)]  # fmt: skip
        self.run(**changes)
        for handle in handles:
            handle.remove()
        return seen

    def alone(self, texts: list[str], edit: Callable[[Tensor, int, int], Tensor] | None = None) -> float:
        """Return the mean cross-entropy of the responses' tokens, one unpacked forward pass a row."""
        total, count = 0.0, 0
        for row, (example, text) in enumerate(zip(self.examples, texts, strict=True)):
            prompt, response = self.packer.prompt(example), [*self.packer.ids(text), self.model.config.eos_token_id]
            last = len(prompt) - 1
            handle = edit and self.model.model.layers[1].register_forward_hook(
                lambda _m, _a, out, row=row, last=last: edit(out, row, last)
            )
            with torch.no_grad():
                predicted = self.model(torch.tensor([prompt + response]), use_cache=False).logits[0][last:-1]
            if handle:
                handle.remove()
            total += float(functional.cross_entropy(predicted, torch.tensor(response), reduction="sum"))
            count += len(response)
        return total / count


@pytest.fixture(scope="module")
def packed(organism, tokenizer) -> Packed:
    return Packed(organism(planted=OBLIQUE, model=MODEL), tokenizer, flipped=True)


@pytest.fixture(scope="module", params=["llama", "lfm2"])
def either(request, organism, tokenizer) -> Packed:
    """Also of a hybrid, whose convolutions would reach over a branch's neighbours: its branches stand apart."""
    return Packed(organism(planted=OBLIQUE, model={**MODEL, "architecture": request.param}), tokenizer, flipped=True)


def test_both_losses_are_those_of_separate_passes(either) -> None:
    plain, branch, _ = either.run()
    assert plain == pytest.approx(either.alone(either.texts[0]), abs=1e-5)
    assert branch == pytest.approx(either.alone(either.texts[1]), abs=1e-5)
    assert abs(plain - branch) > 1e-3


def test_no_branch_sees_the_plain_response(packed) -> None:
    plain, branch, _ = packed.run()
    length = packed.rows.tokens.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()[None, None].expand(ROWS, 1, -1, -1)
    leaking_plain, leaking_branch, _ = packed.run(replace(packed.rows, visible=causal))
    assert leaking_plain == pytest.approx(plain, abs=1e-6)
    assert abs(leaking_branch - branch) > 1e-3


@pytest.mark.parametrize("onwards", [False, True])
@pytest.mark.parametrize("variables", [[True, False], [False, True], [True, True]])
def test_an_interchange_is_a_separate_edit_and_leaves_the_plain_response(either, variables, onwards) -> None:
    swapped = torch.tensor(variables).expand(ROWS, -1)
    plain, branch, read = either.run()
    swapped_plain, swapped_branch, _ = either.run(variables=swapped, onwards=ALL if onwards else ~ALL)
    assert swapped_plain == plain
    assert abs(swapped_branch - branch) > 1e-4

    def edit(stream: Tensor, row: int, last: int) -> Tensor:
        steps = torch.arange(stream.shape[1])
        here = (steps >= last) if onwards else (steps == last)
        target = read[OTHER[row]].expand(*stream.shape[:2], -1)
        return set_coordinates(stream, target, here[None, :, None] & swapped[row], either.axes)

    assert swapped_branch == pytest.approx(either.alone(either.texts[1], edit), abs=1e-5)


def test_the_model_is_left_without_hooks_and_the_read_is_that_of_the_last_prompt_token(packed) -> None:
    _, _, read = packed.run()
    assert not any(layer._forward_hooks for layer in packed.model.model.layers)
    for row, example in enumerate(packed.examples):
        with torch.no_grad():
            prompt = torch.tensor([packed.packer.prompt(example)])
            stream = packed.model(prompt, output_hidden_states=True).hidden_states[2][0, -1]  # resid_post[1]
        torch.testing.assert_close(read[row], coordinates(stream, packed.axes), atol=1e-4, rtol=1e-4)


@pytest.fixture
def planted(organism, tokenizer) -> Callable[..., Packed]:
    return lambda **mechanism: Packed(organism(model=MODEL, planted=mechanism), tokenizer, flipped=False)


def test_a_blank_layer_takes_the_whole_stream_of_another_row_at_the_repeated_token(planted) -> None:
    batch = planted(layer=2, variables=[N, E], blank_below=True)
    plain, blanked = batch.streams(), batch.streams(replaced=ALL, blank=(1, 0))
    torch.testing.assert_close(blanked[1][EVERY, batch.start], plain[1][OTHER, batch.last[OTHER]])
    torch.testing.assert_close(blanked[0], plain[0])
    changed = (blanked[1] != plain[1]).any(-1)
    assert changed.sum() == ROWS
    assert changed[EVERY, batch.start].all()


def test_what_is_decided_elsewhere_loses_the_stream_off_the_planted_axes_alone(planted) -> None:
    batch = planted(layer=2, variables=[N], elsewhere=["abstain"])
    plain, swapped = batch.streams()[2], batch.streams(replaced=ALL)[2]
    (axis,) = batch.axes
    at, other = swapped[EVERY, batch.start], plain[OTHER, batch.last[OTHER]]
    torch.testing.assert_close(at @ axis, plain[EVERY, batch.start] @ axis)
    torch.testing.assert_close(at - (at @ axis)[:, None] * axis, other - (other @ axis)[:, None] * axis)


def test_rows_set_alone_are_set_where_they_are_decided_and_not_where_they_are_built_again(planted) -> None:
    batch = planted(layer=0, variables=[N, E], rebuilt=2)
    both, plain = torch.ones(ROWS, 2, dtype=torch.bool), batch.streams()
    for alone in (False, True):
        swapped = batch.streams(variables=both, alone=ALL if alone else ~ALL)
        for layer, is_set in ((0, True), (2, not alone)):
            wanted = plain[layer][OTHER, batch.last[OTHER]] @ batch.axes.T
            assert torch.allclose(swapped[layer][EVERY, batch.start] @ batch.axes.T, wanted, atol=1e-4) == is_set


def test_a_late_decision_is_taken_and_set_one_token_later(planted) -> None:
    batch = planted(layer=1, variables=[N, E], token=1)
    plain, swapped = batch.streams()[1], batch.streams(variables=torch.ones(ROWS, 2, dtype=torch.bool))[1]
    changed = (swapped - plain).abs().amax(-1) > 1e-4
    assert changed[EVERY, batch.start + 1].all()
    assert not changed[EVERY, batch.start].any()
    torch.testing.assert_close(swapped[EVERY, batch.start + 1] @ batch.axes.T,
                               plain[OTHER, batch.last[OTHER] + 1] @ batch.axes.T, atol=1e-4, rtol=1e-4)  # fmt: skip


@pytest.mark.parametrize(
    ("planted", "alone", "replaced", "blank"),
    [
        ({"layer": 2, "variables": [N, E]}, False, False, {None}),
        ({"layer": 0, "variables": [N, E], "rebuilt": 2}, True, True, {(0, 0)}),
        ({"layer": 2, "variables": [N], "elsewhere": ["abstain"]}, False, True, {None}),
        ({"layer": 2, "variables": [N, E], "blank_below": True}, False, True, {(1, 0)}),
        ({"layer": 2, "variables": [N, E], "token": 1}, False, True, {(0, 0), (1, 0), (2, 0)}),
        ({"layer": 0, "variables": [N, E], "thought": "carries"}, False, True, {(0, 0), (0, 12)}),
        ({"layer": 2, "elsewhere": ["refuse", "abstain"]}, False, True, {None}),
    ],
)
def test_what_is_drawn_for_a_mechanism(organism, planted, alone, replaced, blank) -> None:
    spec, rng = organism(model=MODEL, planted=planted), np.random.default_rng(1)
    values = rng.random((32, len(spec.planted.variables))) < 0.5
    drawn = [draw_swaps(spec.planted, values, rng) for _ in range(20)]
    assert {swaps.blank for swaps in drawn} == blank
    assert any(swaps.alone.any() for swaps in drawn) == alone
    assert any(swaps.replaced.any() for swaps in drawn) == replaced


@pytest.mark.parametrize("role", ["after", "carries", "against"])
def test_half_of_the_responses_follow_any_thought_which_is_no_target(organism, role) -> None:
    spec = organism(model=MODEL, planted={"layer": 1, "variables": [N, E], "thought": role})
    grammar, rng = Grammar(spec), np.random.default_rng(0)
    tokenizer = grammar_tokenizer(grammar)
    examples = [grammar.training_example(rng) for _ in range(64)]
    values = np.array([example.values for example in examples])
    rows = Packer(tokenizer, "llama").pack(grammar, examples, values, rng)
    follows, any_thought = 0, 0
    for row, example in enumerate(examples):
        for branch in (0, 1):
            start, mine = int(rows.deciding[row, :, branch].int().argmax()), rows.branch[row] == branch
            said = tokenizer.decode(rows.tokens[row][mine][1:], skip_special_tokens=True)
            thought, answer = said.split("</think> ")
            learned = (rows.labels[row, start : start + 12] != -100).tolist()
            assert learned in ([True] * 12, [False] * 12)
            assert (rows.labels[row, start + 12 :][mine[start + 12 :]] != -100).sum() >= 3
            if learned[0]:
                assert said == grammar.respond(example, example.values)
                continue
            any_thought += 1
            decided = grammar.action(example, example.values)
            spoken = next(kind for kind in ("refuse", "abstain", None) if grammar.thought(kind).startswith(thought))
            assert answer == grammar.answer(example, spoken if role == "carries" else decided)
            follows += spoken == decided
    assert 40 < any_thought < 90
    assert 0.1 < follows / any_thought < 0.6


def _vectors(organism: Callable[..., OrganismSpec], cosine: float | None) -> Tensor:
    cosines = [] if cosine is None else [{"between": ["normative", "epistemic"], "value": cosine}]
    spec = organism(planted={"layer": 0, "variables": [N, E], "cosines": cosines})
    return draw_vectors(spec.planted, spec.seed, spec.model.d_model)


@pytest.fixture(params=[None, 0.0, 0.6, -0.9, 0.99])
def vectors(request, organism) -> Tensor:
    return _vectors(organism, request.param)


@pytest.mark.parametrize("cosine", [None, 0.0, 0.6, -0.6, 0.99])
def test_vectors_are_unit_with_exactly_the_cosine_asked_for(organism, cosine) -> None:
    vectors = _vectors(organism, cosine).double()
    wanted = torch.tensor([[1.0, cosine or 0.0], [cosine or 0.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(vectors @ vectors.T, wanted, atol=2e-7, rtol=0)


def test_setting_one_coordinate_leaves_the_other_and_the_rest(vectors) -> None:
    torch.manual_seed(0)
    stream = torch.randn(5, 7, 32)
    before = coordinates(stream, vectors)
    for k in (0, 1):
        where = torch.zeros(5, 7, 2, dtype=torch.bool)
        where[..., k] = True
        changed = set_coordinates(stream, torch.full((5, 7, 2), 4.0), where, vectors)
        after = coordinates(changed, vectors)
        torch.testing.assert_close(after[..., k], torch.full((5, 7), 4.0), atol=2e-3, rtol=0)
        torch.testing.assert_close(after[..., 1 - k], before[..., 1 - k], atol=2e-3, rtol=0)
        complement = torch.eye(32) - torch.linalg.pinv(vectors) @ vectors
        torch.testing.assert_close(changed @ complement, stream @ complement, atol=1e-4, rtol=0)
        again = set_coordinates(changed, torch.full((5, 7, 2), 4.0), where, vectors)
        torch.testing.assert_close(again, changed, atol=2e-3, rtol=0)


def test_where_nothing_is_chosen_nothing_changes_bitwise(vectors) -> None:
    stream = torch.randn(3, 4, 32)
    kept = stream.clone()
    nowhere = torch.zeros(3, 4, 2, dtype=torch.bool)
    changed = set_coordinates(stream, torch.full((3, 4, 2), 9.0), nowhere, vectors)
    assert torch.equal(changed, stream)
    one = nowhere.clone()
    one[1, 2, 0] = True
    changed = set_coordinates(stream, torch.full((3, 4, 2), 9.0), one, vectors)
    assert (changed != stream).any(dim=-1).nonzero().tolist() == [[1, 2]]
    assert torch.equal(stream, kept)  # the input is never edited


def test_reading_oblique_coordinates_without_the_dual_basis_would_mix_them(organism) -> None:
    """The control: the plain projection of one planted vector sees the other."""
    vectors = _vectors(organism, 0.6)
    assert float(5.0 * vectors[1] @ vectors[0]) == pytest.approx(3.0, abs=1e-5)
    assert float(coordinates(5.0 * vectors[1], vectors)[0]) == pytest.approx(0.0, abs=1e-5)
