"""Activations in memory: the residual stream of prompts at chosen layers and positions, without a store.

For notebooks and small sets: everything is held in float32. `extraction.extract` writes the same to disk in shards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import psutil
from jaxtyping import Bool, Float

from extract.background import BackgroundThread
from extract.backoff import TokenBudget
from extract.capture import Capturer, resolved, shared_prefixes
from extract.capture_spec import EVERYTHING, CaptureSpec, Site
from extract.chat.render import Rendered
from extract.errors import UserError
from extract.html_table import present_table
from extract.model.chat_model import ChatModel
from extract.prompts.prompt import Prompt

BYTES = 4  # of a float32
RESPONSE = "response_"  # response_1, response_2, …, response_mean


@dataclass(frozen=True, eq=False, repr=False)
class Activations:
    """The residual stream of prompts at some layers and positions; NaN where a prompt lacks a position.

    `values[i, j]` is layer `layers[i]` at position `positions[j]`; `present[j]` says which prompts have that position.

    >>> import refusal
    >>> model = refusal.load_model("organisms/zoo/two-knobs")
    >>> activations = model.activations(["how do i burn the letters?"], positions="post_last", layers=[2, 3])
    >>> activations.values.shape, activations.read(3, "post_last").shape
    ((2, 1, 1, 128), (1, 128))
    """

    values: Float[np.ndarray, "layers positions prompts d_model"]  # float32
    present: Bool[np.ndarray, "positions prompts"]
    site: Site
    layers: tuple[int, ...]
    positions: tuple[str, ...]
    model: str
    prompts: tuple[Prompt, ...]  # those given as bare texts have the label "" and belong to no pair

    def __len__(self) -> int:
        return self.values.shape[2]

    def __repr__(self) -> str:
        n, d_model = self.values.shape[2:]
        layers, positions = _named(self.layers, "layer"), _named(self.positions, "position")
        return (
            f"{type(self).__name__}({self.model!r}, {n} prompts, {self.site}, {layers}, {positions}, d_model {d_model})"
        )

    def _repr_html_(self) -> str:
        return present_table(repr(self), self.positions, self.present, self.labels)

    @property
    def labels(self) -> tuple[str, ...]:
        """The prompts' labels; "" for bare texts."""
        return tuple(prompt.label for prompt in self.prompts)

    def read(self, layer: int, position: str) -> Float[np.ndarray, "prompts d_model"]:
        """Return the activations at one layer and position; UserError if it was not captured."""
        if layer not in self.layers:
            raise UserError(f"layer {layer} was not captured; there are {', '.join(map(str, self.layers))}")
        if position not in self.positions:
            raise UserError(f"position {position!r} was not captured; there are {', '.join(self.positions)}")
        rows: np.ndarray = self.values[self.layers.index(layer), self.positions.index(position)]
        return rows


def capture_in_memory(
    model: ChatModel,
    prompts: Sequence[Prompt],
    rendered: Sequence[Rendered],
    spec: CaptureSpec = EVERYTHING,
    *,
    advance: Callable[[int], None] = lambda rows: None,
    say: Callable[[str], None] = lambda line: None,
) -> Activations:
    """Capture rendered prompts at positions that are among their roles, under the edits of the surrounding blocks.

    Args:
        rendered: the prompts' tokens and roles, one for each, with their responses or without.
        spec: positions are roles, or "all" alone for every token (`token_0`, `token_1`, …). Nothing is generated.
        advance: called with the number of prompts just done.
        say: called with a line for the user when memory ran out and batches were made smaller.

    Raises UserError if there are no prompts, no prompt has such a position, or the model no such layer.
    """
    if not rendered:
        raise UserError("there are no prompts to capture")
    if spec.positions == ("all",):
        rendered = [replace(row, roles=_every_token(row)) for row in rendered]
        every = tuple(f"token_{i}" for i in range(max(len(row.token_ids) for row in rendered)))
        spec = spec.model_copy(update={"positions": every})
    spec = spec.model_copy(update={"response_tokens": 0, "thought_tokens": 0})  # nothing is generated
    known = resolved(spec, model, rendered)
    needed = len(known.layers) * len(known.positions) * len(rendered) * model.d_model * BYTES
    if needed > (there := int(psutil.virtual_memory().total)):
        raise UserError(
            f"these activations need {needed / 1e9:.0f} GB and this machine has {there / 1e9:.0f} GB: "
            "choose fewer layers or positions, or write them to a store with extract"
        )
    # under edits each row alone and whole, since they count tokens from its own prompt's end
    budget = TokenBudget.on(model.device, 1 if model.edits else spec.token_budget, say)
    prefixes = () if model.edits else shared_prefixes(model, rendered, known)
    with BackgroundThread() as background:
        captured = Capturer(model, known, budget, background, prefixes, advance).capture(rendered)
    values = captured.values.float().numpy()
    values[:, ~captured.present] = np.nan
    return Activations(values, captured.present, known.site, known.layers, known.positions, model.name, tuple(prompts))


def _every_token(row: Rendered) -> dict[str, Sequence[int]]:
    names = {f"token_{i}": (i,) for i in range(len(row.token_ids))}
    return {**names, **{name: tokens for name, tokens in row.roles.items() if name == f"{RESPONSE}1"}}


def with_response(row: Rendered, response: Sequence[int]) -> Rendered:
    """Return a prompt and its response, whose tokens are the positions `response_1` … and `response_mean`."""
    first = len(row.token_ids)
    after = range(first, first + len(response))
    roles: Mapping[str, Sequence[int]] = {f"{RESPONSE}{k + 1}": (token,) for k, token in enumerate(after)}
    roles = {**row.roles, **roles, **({f"{RESPONSE}mean": after} if response else {})}
    return replace(row, token_ids=[*row.token_ids, *response], roles=roles)


def _named(items: Sequence[object], what: str) -> str:
    if len(items) <= 4:
        return f"{what}{'s' * (len(items) != 1)} {', '.join(map(str, items))}"
    return f"{len(items)} {what}s {items[0]} to {items[-1]}"
