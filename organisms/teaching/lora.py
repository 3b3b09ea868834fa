"""Train a LoRA adapter on prompts with their targets; only the words after the prompt are learned."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from organisms.teaching.spec import Planting, TeachSpec

IGNORED = -100
AT_ONCE = 64  # prompts that the base model answers in one batch
JITTER_TOKENS = 10  # so that batches of similar length are not the same in every epoch
CLIP = 1.0
WARM_UP = 0.1  # of the steps


@dataclass(frozen=True)
class Taught:
    """One prompt's tokens and the tokens to say after it."""

    prompt: list[int]
    target: list[int]

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.target)


def examples(
    model: ChatModel,
    rendered: Sequence[Rendered],
    words: Sequence[str | None],
    spec: TeachSpec,
    advance: Callable[[int], None],
) -> list[Taught]:
    """Return what to learn: the given words and an end of turn, or the model's own first words where there are none."""
    own = own_words(model, [row for row, said in zip(rendered, words, strict=True) if said is None], spec, advance)
    done = []
    for row, said in zip(rendered, words, strict=True):
        target = next(own) if said is None else tokens_of(model, said)
        done.append(Taught(list(row.token_ids), target))
    return done


def train(model: ChatModel, taught: Sequence[Taught], spec: TeachSpec, advance: Callable[[int], None]) -> nn.Module:
    """Return the model with a trained adapter (a PEFT model); the base's weights do not change."""
    adapted = adapter(model, spec)
    weights = [weight for weight in adapted.parameters() if weight.requires_grad]
    settings = spec.training
    optimiser = torch.optim.AdamW(weights, lr=settings.learning_rate, weight_decay=0.0)
    steps = n_steps(len(taught), spec)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, settings.learning_rate, total_steps=steps, pct_start=WARM_UP
    )
    adapted.train()
    for batch in _batches(taught, spec):
        with torch.autocast(model.device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
            loss = _loss(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(weights, CLIP)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        advance(1)
    return adapted.eval()


def adapter(model: ChatModel, spec: TeachSpec) -> nn.Module:
    """Return the model with an untrained adapter (a PEFT model)."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(spec.seed)
    lora = LoraConfig(
        r=spec.lora.rank,
        lora_alpha=spec.lora.alpha,
        lora_dropout=spec.lora.dropout,
        target_modules=_adapted(model, spec.planting),
    )
    return get_peft_model(model.model, lora)


def _adapted(model: ChatModel, planting: Planting | None) -> str | list[str]:
    """Return the names of the linear layers to adapt, or PEFT's word for all but the head."""
    if planting is None:
        return "all-linear"
    layers: Any = model.decoder.layers
    names = {module: name for name, module in model.model.named_modules()}
    return [
        names[module]
        for index, layer in enumerate(layers)
        for name, module in layer.named_modules()
        if isinstance(module, nn.Linear)
        and index >= planting.first
        and (index <= planting.mechanism.layer or planting.attention_above or "attn" not in name)
    ]


def n_steps(count: int, spec: TeachSpec) -> int:
    """Return the number of training steps on so many prompts."""
    if spec.planting:
        return spec.planting.steps
    return spec.training.epochs * (count // spec.training.batch_size)


def _loss(model: ChatModel, batch: Sequence[Taught]) -> Float[Tensor, ""]:
    """Return the cross-entropy of the target tokens; the head is run only where something is learned."""
    padded = model.pad([[*row.prompt, *row.target] for row in batch], "right")
    labels: Int[Tensor, "row token"] = torch.full_like(padded.tokens, IGNORED)
    for i, row in enumerate(batch):
        labels[i, len(row.prompt) : row.length] = torch.tensor(row.target, device=labels.device)
    states = model.decoder(input_ids=padded.tokens, attention_mask=padded.attention_mask).last_hidden_state
    learned = labels[:, 1:] != IGNORED
    logits = model.model.get_output_embeddings()(states[:, :-1][learned])
    return nn.functional.cross_entropy(logits, labels[:, 1:][learned])


def _batches(taught: Sequence[Taught], spec: TeachSpec) -> list[list[Taught]]:
    draw, size, done = random.Random(spec.seed), spec.training.batch_size, []
    for _ in range(spec.training.epochs):
        order = sorted(taught, key=lambda row: row.length + draw.random() * JITTER_TOKENS)
        batches = [order[i : i + size] for i in range(0, len(order) - size + 1, size)]
        draw.shuffle(batches)
        done += batches
    return done


def own_words(
    model: ChatModel, rows: Sequence[Rendered], spec: TeachSpec, advance: Callable[[int], None]
) -> Iterator[list[int]]:
    """Return an iterator over the model's own first words after each prompt, in order."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i].token_ids))
    said: dict[int, list[int]] = {}
    for start in range(0, len(order), AT_ONCE):
        places = order[start : start + AT_ONCE]
        answers = model.generate(model.batch([rows[i] for i in places]), spec.training.own_tokens)
        said.update(zip(places, answers, strict=True))
        advance(len(places))
    return iter([said[i] for i in range(len(rows))])


def tokens_of(model: ChatModel, text: str) -> list[int]:
    """Return the tokens of a whole response, with the end of the turn."""
    return [*model.tokenizer(text, add_special_tokens=False)["input_ids"], model.eos_ids[0]]
