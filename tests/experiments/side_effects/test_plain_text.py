"""Cross-entropy on plain text: equals the loss of transformers, a batch equals its rows, edits, bad files."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.side_effects import measure
from experiments.side_effects.measure import MOST_TOKENS, cross_entropies, encode
from experiments.side_effects.texts import load_passages
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, Pass
from steering.interventions import affine, place

PASSAGES = (
    "rain fell on the roof all night.",
    "tea",
    "the train was late, and nobody at the station minded very much.",
)


def direction(seed: int = 1) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(32, generator=torch.Generator().manual_seed(seed)), dim=0)


def ruin(layer: int = 1) -> list[Edit]:
    return [place("resid_post", layer, "last_on", lambda x: affine(x, direction(), 6.0))]


def test_it_equals_the_loss_of_transformers_for_each_passage(tiny: ChatModel) -> None:
    tokens = encode(tiny, PASSAGES)
    assert tokens == [tiny.tokenizer(text)["input_ids"] for text in PASSAGES]
    for ids, nats in zip(tokens, cross_entropies(tiny, tokens), strict=True):
        each = torch.tensor([ids])
        with torch.no_grad():
            loss = tiny.model(input_ids=each, labels=each).loss.item() if len(ids) > 1 else float("nan")
        assert len(nats) == len(ids) - 1
        if len(ids) > 1:
            assert nats.mean() == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("edits", [[], ruin()], ids=["plain", "edited"])
def test_a_batch_equals_its_rows_and_smaller_batches(
    tiny: ChatModel, edits: list[Edit], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = encode(tiny, PASSAGES)
    together = cross_entropies(tiny, tokens, edits)
    alone = [cross_entropies(tiny, [row], edits)[0] for row in tokens]
    monkeypatch.setattr(measure, "MOST_LOGITS", 1)
    for nats, one, few in zip(together, alone, cross_entropies(tiny, tokens, edits), strict=True):
        np.testing.assert_allclose(nats, one, rtol=1e-4)
        np.testing.assert_allclose(nats, few, rtol=1e-4)


def test_an_edit_of_scope_last_on_covers_every_token(tiny: ChatModel) -> None:
    covered: list[bool] = []

    def look(stream: torch.Tensor, pass_: Pass) -> torch.Tensor:
        covered.extend(pass_.covers("last_on", stream.device).tolist())
        return stream

    tokens = encode(tiny, PASSAGES)
    cross_entropies(tiny, tokens, [Edit("resid_post", 0, look)])
    assert len(covered) == max(len(row) for row in tokens)
    assert all(covered)
    everywhere = [replace(ruin()[0], function=lambda x, _pass: affine(x, direction(), 6.0))]
    for a, b in zip(cross_entropies(tiny, tokens, ruin()), cross_entropies(tiny, tokens, everywhere), strict=True):
        np.testing.assert_array_equal(a, b)


def test_long_passages_are_cut_to_what_the_model_reads(tiny: ChatModel) -> None:
    long = " ".join(PASSAGES) * 40
    assert len(encode(tiny, [long])[0]) == MOST_TOKENS
    tiny.model.config.max_position_embeddings = 32
    assert len(encode(tiny, [long])[0]) == 32


# -- the passages ------------------------------------------------------------------------------------------------------


def test_the_shipped_passages_are_plain_prose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    passages = load_passages()
    assert len(passages) == len(set(passages)) == 40
    assert all(30 <= len(passage.split()) <= 70 and passage.isascii() for passage in passages)
    assert passages[0].startswith("Morning fog")  # not the remark before it


def test_a_passage_is_a_paragraph_of_any_number_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("# a remark\n\none\n  two\n\n \n\nthree # four\n")
    assert load_passages(path) == ["one two", "three # four"]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (None, "cannot read the plain text {}: No such file or directory"),
        (b"# only a remark\n", "the plain text {} holds no passage"),
        (b"caf\xe9", "the plain text {} is not UTF-8"),
    ],
)
def test_a_bad_file_is_reported_in_one_line(tmp_path: Path, written: bytes | None, message: str) -> None:
    path = tmp_path / "prose.txt"
    if written is not None:
        path.write_bytes(written)
    remedy = "; give a UTF-8 text file with one passage a paragraph (dissociate.plain_text)"
    with pytest.raises(UserError, match=f"^{re.escape(message.format(path) + remedy)}$"):
        load_passages(path)
