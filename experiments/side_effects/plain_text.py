"""Cross-entropy on plain prose without a chat template: the cost of an intervention outside of chat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from torch.nn.functional import cross_entropy

from experiments.responses.batched_edits import MOST_LOGITS
from extract.backoff import TokenBudget
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit

MOST_TOKENS = 256  # of a passage; later tokens are not read


def encode(model: ChatModel, passages: Sequence[str]) -> list[list[int]]:
    """Tokenise passages as plain text with the tokenizer's own special tokens, cut at the model's maximum length."""
    longest = getattr(model.model.config.get_text_config(), "max_position_embeddings", None) or MOST_TOKENS
    return [list(model.tokenizer(text)["input_ids"][: min(longest, MOST_TOKENS)]) for text in passages]


def cross_entropies(
    model: ChatModel, passages: Sequence[Sequence[int]], edits: Sequence[Edit] = ()
) -> list[Float[np.ndarray, " tokens"]]:
    """Return the cross-entropy of every token but the first of each passage, given the tokens before it, in nats.

    Edits of scope `last_on` cover all tokens, because the first token counts as the end of a prompt. Passages are
    padded on the right, where no token attends to the padding; the padding has no cross-entropy.
    """
    nats: dict[int, np.ndarray] = {}

    def work(rows: list[int]) -> None:
        batch = replace(model.pad([passages[row] for row in rows], "right"), prompt_length=1)
        with model.editing(edits):
            logits = model.logits(batch)[:, :-1]
        each = cross_entropy(logits.float().mT, batch.tokens[:, 1:].to(logits.device), reduction="none")
        for row, values in zip(rows, each.cpu().double().numpy(), strict=True):
            nats[row] = values[: len(passages[row]) - 1]

    vocabulary = int(model.model.config.get_text_config().vocab_size)
    TokenBudget(max(1, MOST_LOGITS // vocabulary)).run([len(row) for row in passages], work)
    return [nats[row] for row in range(len(passages))]
