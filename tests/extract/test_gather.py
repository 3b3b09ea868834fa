"""Gathering positions from padded streams: padding is left out, absent positions are zero, sums do not overflow."""

import pytest
import torch

from extract.capture import gather
from extract.chat.render import Rendered, render
from extract.model.padded_batch import pad
from tests.extract.conftest import Ask, Build

POSITIONS = ("inst_mean", "inst_last", "post_last", "post_99")


@pytest.fixture
def rows(tiny: Build, ask: Ask) -> list[Rendered]:
    texts = ("stop.", "what is the best way to fix the door so that nobody is hurt?")
    return [render(tiny("llama").tokenizer, ask(text)) for text in texts]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("skipped", [0, 1])
def test_every_row_gives_its_own_tokens(rows: list[Rendered], side: str, skipped: int) -> None:
    """Padding is made enormous: were one pad token in a mean, it would show."""
    batch = pad([row.token_ids[skipped:] for row in rows], 0, side, torch.device("cpu"))
    stream = torch.randn(2, batch.prompt_length, 5)
    poisoned = torch.where(batch.attention_mask[:, :, None] == 1, stream, 1e30)
    picked = gather(rows, POSITIONS, batch, skipped).pick(poisoned)
    assert picked.shape == (4, 2, 5)
    for i, row in enumerate(rows):
        own = stream[i, int(batch.n_pad[i]) :]
        words = [token - skipped for token in row.roles["inst_mean"]]
        torch.testing.assert_close(picked[0, i], own[words].mean(0))
        assert torch.equal(picked[1, i], own[row.roles["inst_last"][0] - skipped])
        assert torch.equal(picked[2, i], own[len(row.token_ids) - 1 - skipped])
        assert not picked[3, i].any()


def test_means_of_a_half_precision_stream_are_taken_in_float32(rows: list[Rendered]) -> None:
    row = rows[1]
    stream = (torch.rand(1, len(row.token_ids), 8) * 6e4).half()  # their sum overflows float16
    picked = gather([row], ("inst_mean",), pad([row.token_ids], 0, "left", torch.device("cpu"))).pick(stream)
    assert picked.dtype == torch.float32
    torch.testing.assert_close(picked[0, 0], stream[0, list(row.roles["inst_mean"])].float().mean(0))
