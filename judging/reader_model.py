"""The reader's network: MiniLM-L6 with its last two layers trained to tell what a completion did.

It reads the end of the prompt, and the first and last tokens of the completion, where declines and caveats stand. Its
linear head reads the first token's state, the mean of all, and the features of the rules. Only what was
trained is in its file (`reader.safetensors`, by `python -m benchmarks.training.fit_reader`); the rest is the encoder's.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from extract.errors import UserError
from extract.model.weights import fingerprint
from extract.shipped import READER, resolve_shipped

Reading = Literal["answered", "in_part", "refused", "abstained", "rebutted"]
READINGS: tuple[Reading, ...] = get_args(Reading)
FROZEN = 4  # of the encoder's six layers
PROMPT_TOKENS, FIRST_TOKENS, LAST_TOKENS = 32, 64, 28
MOST_CHARS = 20_000  # of a completion before tokenisation: its first and last halves


class Tokens(NamedTuple):
    """What the reader reads of one completion: token ids, and the features of the rules."""

    ids: list[int]
    features: Mapping[str, float]


class ReaderModel(nn.Module):
    """The encoder's frozen layers, the trained ones and the heads.

    Args:
        encoder: MiniLM-L6, or any BERT of more than FROZEN layers.
        features: names of the rules' features that the head reads; others are ignored.
    """

    def __init__(self, encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, features: Sequence[str]) -> None:
        super().__init__()
        width = encoder.config.hidden_size
        self.encoder, self.tokenizer = encoder.requires_grad_(False), tokenizer
        self.place = {name: i for i, name in enumerate(features)}
        self.trained = copy.deepcopy(encoder.encoder.layer[FROZEN:]).requires_grad_(True)
        self.head = nn.Linear(2 * width + len(features), len(READINGS))
        self.dropout = nn.Dropout(encoder.config.hidden_dropout_prob)  # in training only, as in the trained layers
        self.relevance = nn.Linear(1 + width, 1)

    def tokens(self, prompt: str, completion: str, features: Mapping[str, float]) -> Tokens:
        """Return what the reader reads of a completion."""
        half = MOST_CHARS // 2
        text = completion if len(completion) <= MOST_CHARS else completion[:half] + completion[-half:]
        body = self._ids(text)
        if len(body) > FIRST_TOKENS + LAST_TOKENS:
            body = body[:FIRST_TOKENS] + body[-LAST_TOKENS:]
        begin, end = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        return Tokens([begin, *self._ids(prompt[-MOST_CHARS:])[-PROMPT_TOKENS:], end, *body, end], features)

    @torch.no_grad()
    def states(self, rows: Sequence[list[int]]) -> tuple[Float[Tensor, "row token width"], Bool[Tensor, "row token"]]:
        """Return the residual stream after the frozen layers, and which tokens are not padding."""
        batch = self.tokenizer.pad({"input_ids": rows}, return_attention_mask=True, return_tensors="pt", verbose=False)
        ids, there = batch["input_ids"].to(self.encoder.device), batch["attention_mask"].to(self.encoder.device).bool()
        states = self.encoder.embeddings(ids)
        return _through(self.encoder.encoder.layer[:FROZEN], states, there), there

    def forward(
        self,
        states: Float[Tensor, "row token width"],
        there: Bool[Tensor, "row token"],
        features: Sequence[Mapping[str, float]],
    ) -> Float[Tensor, "row reading"]:
        """Return the logits of READINGS, given what `states` returns."""
        states = _through(self.trained, states, there)
        read = self.dropout(torch.cat([states[:, 0], _mean(states, there)], dim=1))
        return self.head(torch.cat([read, self._features(features)], dim=1))

    def probabilities(self, rows: Sequence[Tokens]) -> Float[Tensor, "row reading"]:
        with torch.inference_mode():
            return self(*self.states([row.ids for row in rows]), [row.features for row in rows]).softmax(dim=1).cpu()

    def similarity(self, prompts: Sequence[str], texts: Sequence[str]) -> Float[Tensor, "row 1+width"]:
        """Return the cosine of each pair's sentence embeddings, and the text's embedding, both of about unit size."""
        asked, said = self._embedded(prompts), self._embedded(texts)
        cosine = (asked * said).sum(dim=1, keepdim=True)
        return torch.cat([10 * cosine, said.shape[1] ** 0.5 * said], dim=1)

    def relevances(self, prompts: Sequence[str], texts: Sequence[str]) -> Float[Tensor, " row"]:
        """Return the probability that each text deals with its prompt's matter, or with its closest safe neighbour."""
        with torch.inference_mode():
            return self.relevance(self.similarity(prompts, texts)).sigmoid()[:, 0].cpu()

    def save(self, path: Path, fitted_on: Mapping[str, int]) -> None:
        """Write the trained weights in float16, the encoder's fingerprint and the number of rows of each set."""
        weights = {name: value.half().contiguous() for name, value in self.state_dict().items() if _is_own(name)}
        about = {"features": list(self.place), "encoder": fingerprint(self.encoder), "fitted_on": dict(fitted_on)}
        save_file(weights, path, metadata={"reader": json.dumps(about)})

    @classmethod
    def open(
        cls, encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, path: Path = Path(READER)
    ) -> ReaderModel:
        """Read a reader's weights."""
        with safe_open(resolve_shipped(path), framework="pt") as file:
            about = json.loads(file.metadata()["reader"])
            weights = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
        if fingerprint(encoder) != about["encoder"]:
            raise UserError(f"{encoder.name_or_path} is not the encoder that the reader was trained on (MiniLM-L6)")
        model = cls(encoder, tokenizer, about["features"])
        lacking, unknown = model.load_state_dict(weights, strict=False)
        if unknown or any(map(_is_own, lacking)):
            raise UserError(
                f"{path} does not hold the reader's weights; train it again with "
                "python -m benchmarks.training.fit_reader"
            )
        return model.to(encoder.device).eval()

    def _embedded(self, texts: Sequence[str]) -> Float[Tensor, "row width"]:
        length = PROMPT_TOKENS + FIRST_TOKENS + LAST_TOKENS
        begin, end = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        ids = [[begin, *self._ids(text[:MOST_CHARS])[:length], end] for text in texts]
        with torch.inference_mode():
            states, there = self.states(ids)
            states = _through(self.encoder.encoder.layer[FROZEN:], states, there)
            return nn.functional.normalize(_mean(states, there), dim=1)

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]

    def _features(self, rows: Sequence[Mapping[str, float]]) -> Float[Tensor, "row feature"]:
        values = torch.zeros(len(rows), len(self.place))
        for i, row in enumerate(rows):
            for name in row.keys() & self.place.keys():
                values[i, self.place[name]] = row[name]
        return values.to(self.encoder.device)


def _is_own(name: str) -> bool:
    return not name.startswith("encoder.")


def _through(
    layers: nn.ModuleList, states: Float[Tensor, "row token width"], there: Bool[Tensor, "row token"]
) -> Float[Tensor, "row token width"]:
    """Run layers whose attention leaves padding out."""
    left_out = torch.zeros(there.shape, dtype=states.dtype, device=states.device).masked_fill(
        ~there, torch.finfo(states.dtype).min
    )[:, None, None, :]
    for layer in layers:
        out = layer(states, attention_mask=left_out)
        states = out[0] if isinstance(out, tuple) else out
    return states


def _mean(states: Float[Tensor, "row token width"], there: Bool[Tensor, "row token"]) -> Float[Tensor, "row width"]:
    weights = there[..., None].to(states.dtype)
    return (states * weights).sum(dim=1) / weights.sum(dim=1)
