"""The same intervention in other tools: set the stream's projections on two directions at one layer.

It is applied at the last prompt token and at every generated token, with each tool's own method. None of the tools
reads the prompt, has gates or treats rows separately: they write the same into all rows. A missing tool raises
ImportError.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from benchmarks.decoding.lockstep import Arm
from extract.model.padded_batch import Batch


@dataclass(frozen=True)
class Task:
    """The task of every tool: generate from these prompts with these projections at this layer."""

    batch: Batch
    tokenizer: PreTrainedTokenizerBase
    layer: int
    directions: Tensor  # (2, d_model), orthonormal
    targets: tuple[float, ...]

    @property
    def inputs(self) -> dict[str, Tensor]:
        return {"input_ids": self.batch.tokens, "attention_mask": self.batch.attention_mask}

    def config(self, n_tokens: int) -> GenerationConfig:
        """Return settings for greedy decoding of exactly `n_tokens` tokens."""
        ends = [] if self.tokenizer.eos_token_id is None else [self.tokenizer.eos_token_id]
        pad = self.tokenizer.pad_token_id or 0
        return GenerationConfig(
            do_sample=False, max_new_tokens=n_tokens, min_new_tokens=n_tokens, eos_token_id=ends, pad_token_id=pad
        )


def project(stream: Tensor, task: Task) -> Tensor:
    """Set the projections of a stream (..., d_model), one after the other, in its own precision."""
    for direction, target in zip(task.directions, task.targets, strict=True):
        stream = stream + (target - stream @ direction)[..., None] * direction
    return stream


def at_last(stream: Tensor, task: Task) -> Tensor:
    """Set the projections at the last token of a pass: the last prompt token, then each generated token."""
    return torch.cat([stream[:, :-1], project(stream[:, -1:], task)], dim=1)


def plain(model: PreTrainedModel, task: Task) -> Arm:
    """Generate with transformers without an edit."""
    return Arm(model, lambda n: _generate(model, task, n))


def nnsight(model: PreTrainedModel, task: Task) -> Arm:
    """Assign to a layer's output inside `generate`, at every step."""
    from nnsight import TransformersModel

    traced = TransformersModel(model, tokenizer=task.tokenizer, task="text-generation")
    layer = traced.model.layers[task.layer]

    def run(n: int) -> None:
        with traced.generate(task.inputs, generation_config=task.config(n)) as tracer:
            for _step in tracer.iter[:n]:
                layer.output = at_last(layer.output, task)

    return Arm(model, run)


def nnsight_plain(model: PreTrainedModel, task: Task) -> Arm:
    """Generate with nnsight without an edit."""
    from nnsight import TransformersModel

    traced = TransformersModel(model, tokenizer=task.tokenizer, task="text-generation")

    def run(n: int) -> None:
        with traced.generate(task.inputs, generation_config=task.config(n)) as tracer:
            tracer.result.save()

    return Arm(model, run)


def transformer_lens(model: PreTrainedModel, task: Task) -> Arm:
    """Hook a layer of a TransformerBridge while its own `generate` runs."""
    bridge = booted_bridge(model, task.tokenizer)
    hook = (f"blocks.{task.layer}.hook_resid_post", lambda stream, hook: at_last(stream, task))

    def run(n: int) -> None:
        with bridge.hooks(fwd_hooks=[hook]):
            _bridge_generate(bridge, task, n)

    return Arm(model, run)


def transformer_lens_plain(model: PreTrainedModel, task: Task) -> Arm:
    """Generate with a TransformerBridge without an edit."""
    bridge = booted_bridge(model, task.tokenizer)
    return Arm(model, lambda n: _bridge_generate(bridge, task, n))


def steering_vectors(model: PreTrainedModel, task: Task) -> Arm:
    """Apply two SteeringVectors to the last token, each with an operator that sets its projection."""
    from steering_vectors import SteeringVector

    vectors = [SteeringVector({task.layer: direction}) for direction in task.directions]

    def setting(target: float) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda stream, vector: (target - stream @ vector.squeeze())[..., None] * vector

    def run(n: int) -> None:
        handles = [
            vector.patch_activations(model, operator=setting(target), token_indices=slice(-1, None))
            for vector, target in zip(vectors, task.targets, strict=True)
        ]
        _generate(model, task, n)
        for handle in handles:
            handle.remove()

    return Arm(model, run)


def repeng(model: PreTrainedModel, task: Task) -> Arm:
    """Wrap a layer in a ControlModel whose operator sets both projections; it also writes at all prompt tokens."""
    from repeng import ControlModel

    controlled = ControlModel(model, [task.layer])
    control = {task.layer: task.directions[0]}

    def run(n: int) -> None:
        controlled.set_raw_control(control, operator=lambda stream, _control: project(stream, task))
        _generate(model, task, n)
        controlled.reset()

    return Arm(model, run)


TOOLS = (nnsight, nnsight_plain, transformer_lens, transformer_lens_plain, steering_vectors, repeng)


def _generate(model: PreTrainedModel, task: Task, n: int) -> None:
    model.generate(**task.inputs, generation_config=task.config(n))


def booted_bridge(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Any:
    """Return a TransformerBridge of a model, which it changes."""
    from transformer_lens.model_bridge import TransformerBridge

    model.config.architectures = [type(model).__name__]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TransformerBridge.boot_transformers(
            "random", hf_model=model, tokenizer=tokenizer, dtype=model.dtype, device=model.device
        )


def _bridge_generate(bridge: Any, task: Task, n: int) -> None:
    bridge.generate(
        task.batch.tokens,
        attention_mask=task.batch.attention_mask,
        max_new_tokens=n,
        do_sample=False,
        stop_at_eos=False,
        return_type="tokens",
        verbose=False,
    )
