"""Trains an organism: the loss of its responses plus interchange-intervention training on the planted variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from organisms.content import words
from organisms.grammar import Example, Grammar
from organisms.interchange import (
    Branches,
    PlantedLayers,
    draw_swaps,
    draw_vectors,
    on_device,
    pack_apart,
    pack_branches,
)
from organisms.mechanism import CLOSE, END_OF_THOUGHT, LEAD, OPEN, SAYS
from organisms.spec import WARM_UP, OrganismSpec

Progress = Callable[[int, dict[str, float]], None]
CLIP = 1.0  # norm of the gradient
BEGIN, END, PAD = "<|begin|>", "<|end|>", "<|pad|>"
ROLES = {role: f"<|{role}|>" for role in ("system", "user", "assistant")}
N_TEXTS = 8000  # examples from the grammar that define the vocabulary

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


class Descent:
    """AdamW with a one-cycle schedule of the learning rate and clipped gradients."""

    def __init__(self, weights: Iterable[nn.Parameter], rate: float, steps: int, **adamw: Any) -> None:
        self._weights = list(weights)
        self.optimiser = torch.optim.AdamW(self._weights, lr=rate, **adamw)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimiser, rate, steps, pct_start=WARM_UP)

    def step(self, loss: Tensor) -> None:
        """Take one step down the gradient of a loss."""
        loss.backward()
        nn.utils.clip_grad_norm_(self._weights, CLIP)
        self.optimiser.step()
        self.schedule.step()
        self.optimiser.zero_grad()


def grammar_tokenizer(grammar: Grammar) -> PreTrainedTokenizerFast:
    """Build the tokenizer of an organism from texts of its grammar."""
    rng = np.random.default_rng([grammar.spec.seed, 8])
    texts = [" ".join(v) for name, v in sorted(vars(words).items()) if name.isupper() and isinstance(v, tuple)]
    texts += ["i will do something i see i am not able to help with that"]
    thinks = grammar.spec.planted.thought is not None
    texts += [LEAD, *SAYS.values()] if thinks else []
    for _ in range(N_TEXTS):
        example = grammar.training_example(rng)
        texts += [message["content"] for message in example.messages]
        texts += [example.answer, example.refusal, example.abstention]
    return build_tokenizer(texts, [OPEN, CLOSE] if thinks else [])


def build_tokenizer(texts: Iterable[str], marks: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Build the tokenizer from texts; any other text is encoded by bytes and decodes to itself in lower case.

    Each of the marks is one token, which a decoded text shows.
    """
    vocabulary = sorted({word for text in texts for word in re.findall(r"[a-z]+|[^a-z\s]", text.lower())})
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    special = [PAD, BEGIN, END, *ROLES.values()]
    trainer = trainers.BpeTrainer(
        vocab_size=8192,
        min_frequency=1,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(vocabulary, trainer)
    tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in marks])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BEGIN, eos_token=END, pad_token=PAD, padding_side="left"
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def build_model(spec: OrganismSpec, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """Build the untrained model from the specification's seed."""
    torch.manual_seed(spec.seed)
    kinds = ["full_attention" if layer % 2 else "conv" for layer in range(spec.model.n_layers)]
    own: dict[str, list[str] | bool | int] = {"layer_types": kinds, "block_auto_adjust_ff_dim": False}
    own |= dict.fromkeys(("conv_dim", "block_dim"), spec.model.d_model)  # which vLLM 0.32 reads
    own = own if spec.model.architecture == "lfm2" else {}
    config = AutoConfig.for_model(
        spec.model.architecture,
        vocab_size=len(tokenizer),
        hidden_size=spec.model.d_model,
        intermediate_size=spec.model.d_mlp,
        num_hidden_layers=spec.model.n_layers,
        num_attention_heads=spec.model.n_heads,
        num_key_value_heads=spec.model.n_heads,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **own,
    )
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return model


def train(
    spec: OrganismSpec, grammar: Grammar, tokenizer: PreTrainedTokenizerFast, progress: Progress, device: str = "cpu"
) -> PreTrainedModel:
    """Train one organism on two responses per row: the plain one, and one with planted coordinates from another row.

    The target of the latter has the decision of the source row and the content of the row itself.
    """
    model, settings = build_model(spec, tokenizer).to(device), spec.training
    vectors = draw_vectors(spec.planted, spec.seed, spec.model.d_model).to(device)
    planter = PlantedLayers(model.model, model.lm_head, spec.planted, vectors)
    heads = nn.Linear(spec.model.d_model, 2).to(device)  # intent and knowledge; discarded after training
    descent = Descent(
        [*model.parameters(), *heads.parameters()],
        settings.learning_rate,
        settings.steps,
        betas=(0.9, 0.98),
        weight_decay=0.05,
    )
    packer, rng = Packer(tokenizer, spec.model.architecture), np.random.default_rng([spec.seed, 5])
    model.train()
    for step in range(settings.steps):
        examples = [grammar.training_example(rng) for _ in range(settings.batch_size)]
        values = np.array([example.values for example in examples], dtype=bool)
        swaps = draw_swaps(spec.planted, values, rng, settings.replaced_share)
        taken = (swaps.variables & ~swaps.alone[:, None]).numpy()
        mixed = np.where(taken, values[swaps.sources.numpy()], values)
        rows = packer.pack(grammar, examples, mixed, rng)
        (plain, interchange), seen = planter.forward(on_device(rows, device), on_device(swaps, device))
        read, signs = planter.read(seen), torch.as_tensor(values, device=device).float() * 2 - 1
        off = functional.relu(settings.margin - signs[..., None] * read)
        if settings.furthest is not None:
            off = off + functional.relu(read.abs() - settings.furthest)
        losses = {
            "plain": plain,
            "interchange": interchange,
            "readable": _readable(heads(seen[spec.planted.layers[-1]]), examples),
            "margin": off.mean() if read.numel() else read.sum(),
            "quiet": planter.power_off_axis(seen),
        }
        # none until the grammar is learned: the stream would stay so small that decisions are hardly learned
        quiet = min(1.0, max(0.0, (step / settings.steps - 0.6) / 0.15))
        weights = {
            "plain": 1.0,
            "interchange": settings.interchange_weight,
            "readable": settings.readable_weight,
            "margin": settings.margin_weight,
            "quiet": settings.quiet_weight * quiet,
        }
        descent.step(sum((weights[name] * loss for name, loss in losses.items()), torch.zeros(())))
        progress(step + 1, {name: float(loss.detach()) for name, loss in losses.items()})
    return model.eval()


class Packer:
    """Packs examples with two responses each; each text is tokenised once."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, architecture: str) -> None:
        self._tokenizer, self._pack = tokenizer, pack_branches if architecture == "llama" else pack_apart
        self._cache: dict[str, list[int]] = {}

    def ids(self, text: str) -> list[int]:
        if text not in self._cache:
            self._cache[text] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return self._cache[text]

    def prompt(self, example: Example) -> list[int]:
        text = self._tokenizer.apply_chat_template(list(example.messages), tokenize=False, add_generation_prompt=True)
        return self.ids(str(text))

    def pack(
        self, grammar: Grammar, examples: Sequence[Example], mixed: np.ndarray, rng: np.random.Generator | None = None
    ) -> Branches:
        """Pack examples with their plain response and the one under other decisions, (examples, k) bool.

        Of a model that thinks, half of the responses, drawn, follow any thought, which is not learned.
        """
        end, draw = self._tokenizer.eos_token_id, None if grammar.spec.planted.thought is None else rng
        responses, given = list[list[list[int]]](), list[list[bool]]()
        for example, row in zip(examples, mixed, strict=True):
            said, forced = list[list[int]](), list[bool]()
            for values in (example.values, tuple(map(bool, row))):
                forced.append(draw is not None and bool(draw.random() < 0.5))
                text = grammar.respond(example, values, draw if forced[-1] else None)
                said.append([*self.ids(text), end])
            responses.append(said)
            given.append(forced)
        packed = self._pack([self.prompt(e) for e in examples], responses, self._tokenizer.pad_token_id)
        return packed.without(torch.tensor(given), END_OF_THOUGHT)


def _readable(logits: Tensor, examples: Sequence[Example]) -> Tensor:
    """Return the loss of linear heads for intent (of requests) and lack of knowledge (of questions)."""
    harmful = torch.tensor([[e.label == "harmful", e.label == "uncertain"] for e in examples], device=logits.device)
    applies = torch.tensor([[e.intent is not None, e.known is not None] for e in examples], device=logits.device)
    return functional.binary_cross_entropy_with_logits(logits[applies], harmful[applies].float())
