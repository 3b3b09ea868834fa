"""Branches of one prompt compute what rows of their own compute; coordinates are set where they should be, only."""

import torch

from organisms.interchange import IGNORE, PADDING, coordinates, pack_branches
from organisms.teaching.planted import DecoderParts, set_in_branches
from tests.support.tiny_model import tiny_llama

PROMPTS = [[5, 6, 7, 8], [9, 10, 11]]
RESPONSES = [[[20, 21], [22]], [[23], [24, 25, 26]]]
FIRST, LAYER = 1, 1
ROWS = pack_branches(PROMPTS, RESPONSES, 0)


def test_a_row_holds_the_prompt_once_and_each_response_after_its_last_token() -> None:
    assert ROWS.tokens[0].tolist() == [5, 6, 7, 8, 20, 21, 8, 22]
    assert ROWS.position_ids[0].tolist() == [0, 1, 2, 3, 4, 5, 3, 4]
    assert ROWS.labels[0].tolist() == [IGNORE, IGNORE, IGNORE, 20, 21, IGNORE, 22, IGNORE]
    assert ROWS.branch[1].tolist() == [-1, -1, 0, 0, 1, 1, 1, 1]
    assert ROWS.branch[0].tolist() == [-1, -1, -1, 0, 0, 0, 1, 1]
    assert ROWS.deciding[0].nonzero().tolist() == [[3, 0], [6, 1]]
    assert PADDING not in ROWS.branch


def test_the_parts_together_are_the_decoder_and_a_branch_is_a_row_of_its_own() -> None:
    model = tiny_llama()
    parts, layers = DecoderParts(model.decoder, FIRST, LAYER), list(model.decoder.layers)
    with torch.no_grad():
        packed = parts.run("above", ROWS, parts.run("below", ROWS, parts.run("before", ROWS)))
        for i, (prompt, said) in enumerate(zip(PROMPTS, RESPONSES, strict=True)):
            for k, response in enumerate(said):
                alone = model.decoder(input_ids=torch.tensor([[*prompt, *response]])).last_hidden_state[0]
                torch.testing.assert_close(packed[i, ROWS.branch[i] == k], alone[len(prompt) - 1 :])
    assert list(model.decoder.layers) == layers


def test_coordinates_are_set_at_the_deciding_token_and_onwards_where_asked() -> None:
    generator = torch.Generator().manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.randn(2, 16, generator=generator), dim=1)  # oblique
    stream = torch.randn(2, 8, 16, generator=generator)
    targets = torch.tensor([[[1.0, 2.0], [3.0, torch.nan]], [[torch.nan, torch.nan], [-1.0, 0.0]]])
    onwards = torch.tensor([[[False, False], [True, True]], [[True, True], [False, True]]])
    edited = set_in_branches(stream, ROWS, targets, onwards, vectors)
    before, after = (coordinates(one, vectors) for one in (stream, edited))
    expected = before.clone()
    expected[0, 3] = torch.tensor([1.0, 2.0])
    expected[0, 6:8, 0] = 3.0
    expected[1, 4] = torch.tensor([-1.0, 0.0])
    expected[1, 5:8, 1] = 0.0  # the second coordinate alone at later tokens
    torch.testing.assert_close(after, expected, atol=1e-5, rtol=0)
    untouched = torch.ones(2, 8, dtype=torch.bool)
    untouched[0, [3, 6, 7]] = untouched[1, 4:8] = False
    assert torch.equal(edited[untouched], stream[untouched])
