"""Dials on a running model: read at prefill, decide per row, write from the last prompt token on.

Both reads come before both writes, and the normative gate decides first: where it declines, the epistemic gate leaves
the row. What both write at one layer is one write (`writer`). Writes are at absolute token positions, so they are
repeated whenever those tokens are run again: with the key-value cache, without it, and under beam search, where the
beams of a prompt are adjacent rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from extract.chat.render import Rendered
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, Pass, site
from extract.model.padded_batch import Batch
from probes.direction import Locus
from steering.actuator import OnsetBias
from steering.dial import CategoryRead, Dial, Kind, category_read, check_order, normative_first
from steering.gates import Gates, Readings, Thresholds, row_thresholds
from steering.onset import onset_probability
from steering.writer import GatedWriter, joint_edits


@contextmanager
def steering(
    model: ChatModel,
    dials: Sequence[Dial],
    batch: Batch,
    rows: Sequence[Rendered],
    thresholds: Thresholds | None = None,
) -> Iterator[Readings]:
    """Run the forward passes inside the block over `batch`, padded on the left, with the dials.

    Args:
        rows: the prompts of the batch, in its order.
        thresholds: by kind, one for all rows or one a row; None is the dial's own, or that of the row's category, and
            "off" or NaN leaves the row bitwise unchanged.

    Raises:
        UserError: the dials cannot be read or written together, or do not fit the batch.
    """
    _check(model, dials, batch, rows)
    ordered = normative_first(dials)
    gates = Gates(ordered, row_thresholds(ordered, thresholds or {}, len(rows)), batch.prompt_length)
    for dial in ordered:
        if dial.read is None and isinstance(dial.actuator, OnsetBias):
            gates.readings.probability[dial.kind] = onset_probability(model, batch, dial.actuator.prefixes)
    if not any(dial.read for dial in ordered):
        gates.decide_prompts()
    edits = [_reader(dial, dial.read, batch, rows, gates) for dial in ordered if dial.read is not None]
    if (categories := category_read(ordered)) is not None:
        edits.append(_category_reader(categories, batch, rows, gates))
    edits += joint_edits([GatedWriter(dial.writer, partial(gates.at, dial.kind)) for dial in ordered])
    biases = []
    for dial in ordered:
        biases += dial.writer.processors(batch.prompt_length, partial(gates.readings.gate.__getitem__, dial.kind))
    with model.editing(edits, biases):
        yield gates.readings


def token_log_odds(
    model: ChatModel, dials: Sequence[Dial], rows: Sequence[Sequence[int]]
) -> dict[Kind, list[Float[np.ndarray, " tokens"]]]:
    """Read each dial's probe at every token of some rows, in a forward pass without interventions.

    A dial was calibrated at one position: only there are these the log-odds of its probability. Since dials read at or
    below the first layer that any of them writes, tokens that were generated with the dials read the same here.

    Args:
        rows: token ids, of prompts or of prompts with their answers.

    Returns:
        An array a row, by kind; dials that read the probability of onset prefixes are absent.

    Raises:
        UserError: a row is longer than the model's context.
    """
    batch, found = model.pad(rows, "right"), dict[Kind, list[np.ndarray]]()
    reading = [(dial, dial.read) for dial in dials if dial.read is not None]
    for place in dict.fromkeys(locus.site for _, locus in reading):
        here = [(dial, locus.layer) for dial, locus in reading if locus.site == place]

        def keep(layer: int, stream: Tensor, here: Sequence[tuple[Dial, int]] = here) -> None:
            values = [of[: len(row)].float().cpu().numpy() for of, row in zip(stream, rows, strict=True)]
            for dial in (dial for dial, at in here if at == layer):
                found[dial.kind] = [dial.log_odds(of) for of in values]

        model.capture(batch, site(place), sorted({layer for _, layer in here}), keep)
    return found


def _check(model: ChatModel, dials: Sequence[Dial], batch: Batch, rows: Sequence[Rendered]) -> None:
    check_order(dials)
    for kind, count in Counter(dial.kind for dial in dials).items():
        if count > 1:
            raise UserError(f"there are {count} {kind} dials: give one of each kind")
    if not dials:
        return
    if batch.side != "left":
        raise UserError("dials write from the last prompt token on: pad the prompts on the left")
    if len(rows) != len(batch.tokens):
        raise UserError(f"the batch holds {len(batch.tokens)} prompts, but {len(rows)} rendered ones were given")
    for dial in dials:
        vectors = [] if dial.probe is None else [dial.probe.weight]
        vectors += [] if dial.write is None else [dial.write.vector, *(one.vector for one in dial.opening)]
        vectors += [] if dial.by_category is None else list(dial.by_category.read.weight)
        for vector in vectors:
            if vector.shape != (model.d_model,):
                raise UserError(
                    f"the {dial.kind} dial is for streams of shape {vector.shape}, {model.name} has ({model.d_model},)"
                )
        if dial.read:
            _check_position(f"the {dial.kind} dial", dial.read, rows)
    if (categories := category_read(dials)) is not None:
        _check_position("the category", categories.locus, rows)


def _check_position(what: str, locus: Locus, rows: Sequence[Rendered]) -> None:
    missing = [i for i, row in enumerate(rows) if locus.position not in row.roles]
    if missing:
        reads = "reads" if what.endswith("dial") else "is read"
        raise UserError(f"{what} {reads} at {locus.position}, which prompt {missing[0] + 1} lacks")


def _reader(dial: Dial, locus: Locus, batch: Batch, rows: Sequence[Rendered], gates: Gates) -> Edit:
    read = _PromptStreams.of(locus, batch, rows)

    def function(stream: Tensor, pass_: Pass) -> Tensor:
        if (found := read(stream, pass_, gates)) is not None:
            gates.read(dial.kind, dial.probability(found))
        n_prompt = max(batch.prompt_length - pass_.start, 0)  # tokens of this pass that belong to the prompt
        if dial.reread and n_prompt < pass_.length:
            generated = stream[:, n_prompt:].float().cpu().numpy()
            probability = dial.probability(generated.reshape(-1, generated.shape[-1])).reshape(generated.shape[:2])
            gates.read_again(dial.kind, probability, max(pass_.start - batch.prompt_length, 0))
        return stream

    return Edit(site(locus.site), locus.layer, function)


def _category_reader(categories: CategoryRead, batch: Batch, rows: Sequence[Rendered], gates: Gates) -> Edit:
    read = _PromptStreams.of(categories.locus, batch, rows)

    def function(stream: Tensor, pass_: Pass) -> Tensor:
        if (found := read(stream, pass_, gates)) is not None:
            gates.read_categories(categories.recognised(found))
        return stream

    return Edit(site(categories.locus.site), categories.locus.layer, function)


@dataclass(frozen=True)
class _PromptStreams:
    """The stream of each prompt at a locus, the mean where it has several tokens."""

    places: tuple[Tensor, ...]  # of each prompt, absolute
    prompt_length: int

    @classmethod
    def of(cls, locus: Locus, batch: Batch, rows: Sequence[Rendered]) -> _PromptStreams:
        places = (
            torch.tensor(row.roles[locus.position]) + pad for row, pad in zip(rows, batch.n_pad.tolist(), strict=True)
        )
        return cls(tuple(places), batch.prompt_length)

    def __call__(self, stream: Tensor, pass_: Pass, gates: Gates) -> Float[np.ndarray, "prompts d_model"] | None:
        """Return the streams of a prefill; None where this pass does not begin with the prompts, or runs them again."""
        run_again = gates.decided and pass_.start + pass_.length > self.prompt_length  # at every step without a cache
        earliest = min(int(place.min()) for place in self.places)
        if not pass_.is_prefill or run_again or pass_.start > earliest:
            return None
        of_prompts = stream[:: len(stream) // len(self.places)]  # the beams of a prompt are equal here
        read = [
            of_prompts[i, where.to(stream.device) - pass_.start].float().mean(dim=0)
            for i, where in enumerate(self.places)
        ]
        return torch.stack(read).cpu().numpy()
