"""Memory of a model, from its configuration alone: weights, keys and values, and working space of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from experiments.responses.batched_edits import MOST_LOGITS


@dataclass(frozen=True)
class Footprint:
    """The sizes of a model that determine its cost."""

    parameters: int
    width: int  # bytes of a number
    n_layers: int
    d_model: int
    d_ff: int  # the widest layer of a block
    d_kv: int  # width of a token's keys at one layer, all heads
    vocabulary: int
    embedding: int = 0  # parameters that are looked up and in no product
    head: int = 0  # parameters that only a next-token distribution needs; 0 where it is not known

    @property
    def blocks(self) -> int:
        """Parameters that every token is multiplied with."""
        return self.parameters - self.embedding - self.head

    @property
    def weights(self) -> int:
        """Bytes of all weights."""
        return self.parameters * self.width

    @property
    def cache(self) -> int:
        """Bytes of a token's keys and values at all layers (a sliding window would keep fewer of long texts)."""
        return 2 * self.n_layers * self.d_kv * self.width

    def work(self, batch: int, tokens: int) -> int:
        """Return the approximate bytes of a pass's temporary values.

        Args:
            batch: completions decoded together; several copies of their logits are held in float32.
            tokens: tokens of the largest batch that is read.
        """
        logits = 3 * 4 * max(batch * self.vocabulary, MOST_LOGITS)
        return max(logits, tokens * (3 * self.d_ff + 6 * self.d_model) * self.width)


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that must be in memory at the same time."""

    weights: int
    cache: int
    work: int

    @property
    def total(self) -> int:
        """All bytes together."""
        return self.weights + self.cache + self.work


def footprint(shape: Any, width: int) -> Footprint:
    """Return a model's sizes from its configuration; weights are created on the meta device only.

    Args:
        shape: the model's own configuration (transformers).
        width: bytes of a number in the model's dtype.
    """
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(shape)
    text = shape.get_text_config()
    read, written = model.get_input_embeddings(), model.get_output_embeddings()
    head = 0 if written is None else written.weight.numel()
    heads = text.num_attention_heads
    d_head = getattr(text, "head_dim", None) or text.hidden_size // heads
    return Footprint(
        parameters=sum(p.numel() for p in model.parameters()),
        width=width,
        n_layers=text.num_hidden_layers,
        d_model=text.hidden_size,
        d_ff=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
        d_kv=(getattr(text, "num_key_value_heads", None) or heads) * d_head,
        vocabulary=text.vocab_size,
        embedding=0 if written is not None and read.weight is written.weight else read.weight.numel(),
        head=head,
    )


def memory_need(model: Footprint, batch: int, longest: int, tokens: int) -> MemoryNeed:
    """Return the memory for decoding a batch of completions.

    Args:
        batch: completions decoded together.
        longest: tokens of the longest prompt and its completion.
        tokens: tokens of the largest batch that is read.
    """
    return MemoryNeed(model.weights, batch * longest * model.cache, model.work(batch, tokens))


def describe_fit(model: Footprint, batch: int, longest: int, tokens: int, memory: int) -> str:
    """Return as text whether the run fits into `memory` bytes, and the remedy if it does not."""
    wanted = memory_need(model, batch, longest, tokens)
    used = f"{gigabytes(wanted.total)} of {gigabytes(memory)}"
    if wanted.total <= memory:
        return f"fits: about {used}"
    if model.weights > memory:
        return (
            f"does not fit: the weights alone take {gigabytes(model.weights)} of {gigabytes(memory)}; the rest is "
            "in slower memory, and the run takes many times longer than estimated here"
        )
    smaller = next((b for b in range(batch, 0, -1) if memory_need(model, b, longest, tokens).total <= memory), 0)
    remedy = f"generate.batch_size={smaller} fits" if smaller else "set a smaller extract.token_budget"
    return f"does not fit at once: about {used}; batches become smaller during the run; {remedy}"


def describe_worker(here: MemoryNeed, memory: int, on_gpu: MemoryNeed, gpu_memory: int) -> str:
    """Return as text what one Ray worker takes, how many fit here, and how many GPUs to ask for.

    Args:
        here: what a worker takes on this machine, which has `memory` bytes.
        on_gpu: what it takes on GPUs of `gpu_memory` bytes each.
    """
    room, gpus = memory // here.total, -(-on_gpu.total // int(0.9 * gpu_memory))
    fits = f"{room} fit into the {gigabytes(memory)} here" if room else f"none fits into the {gigabytes(memory)} here"
    spread = ", its layers spread over them" if gpus > 1 else ""
    return (
        f"takes about {gigabytes(here.total)}, {fits}; {gigabytes(on_gpu.total)} on GPUs of "
        f"{gigabytes(gpu_memory)}: --gpus-per-worker {gpus}{spread}"
    )


def gigabytes(n: int) -> str:
    """Return a number of bytes as text in GB or MB."""
    return f"{n / 1e9:.1f} GB" if n >= 1e8 else f"{n / 1e6:.1f} MB"
