"""Dials on a running model: read at prefill, decide per row, write from the last prompt token on.

Writes are at absolute token positions, so they are repeated whenever those tokens are run again: with the key-value
cache, without it, and under beam search, where the beams of a prompt are adjacent rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from extract.capture_spec import THOUGHT_END
from extract.chat.render import Rendered
from extract.chat.thinking import answer_start, reopened
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.decoding import Watch
from extract.model.edit import Edit, Pass, reader, site
from extract.model.padded_batch import Batch
from probes.direction import Locus
from steering.actuator import OnsetBias
from steering.dial import Dial, Kind, category_read, check_order, check_width, normative_first, read_places, reads_at
from steering.gates import AnswerWatch, Gates, Readings, Thresholds, row_thresholds
from steering.interventions import DeviceCopies
from steering.onset import onset_probability
from steering.writer import GatedWriter, joint_edits

LOOKED = 8  # tokens after which it is looked whether all thoughts have ended


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
    edits: list[Edit] = []
    for dial in ordered:
        if dial.read is not None:
            edits.append(_reader(dial.read, batch, rows, gates, partial(gates.read, dial)))
            edits += [_rereader(dial, dial.read, batch, gates)] if dial.reread else []
            edits += [_watcher(dial, dial.read, batch, gates)] if dial.answer_limit is not None else []
    if (categories := category_read(ordered)) is not None:
        edits.append(_reader(categories.locus, batch, rows, gates, partial(gates.read, categories)))
    edits += joint_edits([GatedWriter(dial.writer, partial(gates.at, dial.kind)) for dial in ordered])
    biases = []
    for dial in ordered:
        biases += dial.writer.processors(batch.prompt_length, partial(gates.readings.gate.__getitem__, dial.kind))
    with model.editing(edits, biases):
        yield gates.readings


def respond(
    model: ChatModel,
    dials: Sequence[Dial],
    rows: Sequence[Rendered],
    max_new_tokens: int,
    thresholds: Thresholds | None = None,
    watch: Watch | None = None,
) -> tuple[list[list[int]], Readings]:
    """Answer prompts greedily with dials; where one reads at the thought's end, they all act on what follows it.

    `watch` is called with each step's tokens, one a row; those of a thought come together. UserError: a prompt has no
    thought that ends, at which dials could read; see `steering` for others.
    """
    thoughts: list[list[int]] = [[] for _ in rows]
    if any(locus.position == THOUGHT_END for locus in read_places(dials).values()):
        thoughts = plain_thoughts(model, rows, max_new_tokens)
        rows = [row.thinking(thought) for row, thought in zip(rows, thoughts, strict=True)]
        if watch is not None:
            for step in zip(*thoughts, strict=False):
                watch(list(step))
    batch, left = model.batch(rows), max_new_tokens - min(map(len, thoughts), default=0)

    def see(tokens: list[int]) -> None:
        for watched in readings.answers.values():
            watched.over |= {row for row, token in enumerate(tokens) if token in model.eos_ids}
        if watch is not None:
            watch(tokens)

    with steering(model, dials, batch, rows, thresholds) as readings:
        answers = model.generate(batch, left, watch=see if readings.answers else watch)
    said = ([*thought, *answer][:max_new_tokens] for thought, answer in zip(thoughts, answers, strict=True))
    return list(said), readings


def plain_thoughts(model: ChatModel, rows: Sequence[Rendered], max_new_tokens: int) -> list[list[int]]:
    """Return what a model thinks before its answer to each prompt, marks and all; UserError: a thought does not end."""
    said: list[list[int]] = [[] for _ in rows]

    def thought_of(i: int) -> list[int]:
        return said[i][: answer_start(model.pieces(said[i]), opened=bool(reopened(rows[i].text, "")))]

    def watch(step: list[int]) -> None:
        for own, token in zip(said, step, strict=True):
            own.append(token)
        if len(said[0]) % LOOKED == 0 and all(map(thought_of, range(len(rows)))):
            raise _AllThought

    with suppress(_AllThought):
        model.generate(model.batch(rows), max_new_tokens, watch=watch)
    thoughts = [thought_of(i) for i in range(len(rows))]
    if missing := [i for i, thought in enumerate(thoughts) if not thought]:
        raise UserError(
            f"dials that read at the thought's end need one: prompt {missing[0] + 1} has no thought that ends within "
            f"{max_new_tokens} tokens"
        )
    return thoughts


class _AllThought(Exception):  # noqa: N818 - no error
    """Every row has begun its answer."""


def token_log_odds(
    model: ChatModel, dials: Sequence[Dial], rows: Sequence[Sequence[int]]
) -> dict[Kind, list[Float[np.ndarray, " tokens"]]]:
    """Read each dial's probe at every token of some rows of token ids, without interventions: an array a row.

    A dial was calibrated at one position: only there are these the log-odds of its probability. Since dials read at or
    below the first layer that any of them writes, tokens that were generated with the dials read the same here. Dials
    that read the probability of onset prefixes are absent; UserError if a row is longer than the model's context.
    """
    batch, log_odds = model.pad(rows, "right"), dict[Kind, list[np.ndarray]]()
    reading = [(dial, dial.read) for dial in dials if dial.read is not None]
    for place in dict.fromkeys(locus.site for _, locus in reading):
        here = [(dial, locus.layer) for dial, locus in reading if locus.site == place]

        def keep(layer: int, stream: Tensor, here: Sequence[tuple[Dial, int]] = here) -> None:
            values = [of[: len(row)].float().cpu().numpy() for of, row in zip(stream, rows, strict=True)]
            for dial in (dial for dial, at in here if at == layer):
                log_odds[dial.kind] = [dial.log_odds(of) for of in values]

        model.capture(batch, site(place), sorted({layer for _, layer in here}), keep)
    return log_odds


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
    check_width(dials, model.d_model, model.name)
    for what, locus in read_places(dials).items():
        missing = next((i for i, row in enumerate(rows) if locus.position not in row.roles), None)
        if missing is not None:
            why = "; such dials are not served" if locus.position == THOUGHT_END else ""
            raise UserError(f"{reads_at(what, locus)}, which prompt {missing + 1} lacks{why}")


def _reader(
    locus: Locus, batch: Batch, rows: Sequence[Rendered], gates: Gates, keep: Callable[[np.ndarray], None]
) -> Edit:
    """Keep the stream of each prompt at a locus, the mean where it has several tokens, whenever prompts are run."""
    pads = batch.n_pad.tolist()
    places = [torch.tensor(row.roles[locus.position]) + pad for row, pad in zip(rows, pads, strict=True)]  # absolute
    earliest = min(int(place.min()) for place in places)

    def see(stream: Tensor, pass_: Pass) -> None:
        run_again = gates.decided and pass_.start + pass_.length > batch.prompt_length  # at every step without a cache
        if pass_.is_prefill and not run_again and pass_.start <= earliest:
            of_prompts = stream[:: len(stream) // len(places)]  # the beams of a prompt are equal here
            read = [
                of_prompts[i, place.to(stream.device) - pass_.start].float().mean(dim=0)
                for i, place in enumerate(places)
            ]
            keep(torch.stack(read).cpu().numpy())

    return reader(site(locus.site), locus.layer, see)


def _rereader(dial: Dial, locus: Locus, batch: Batch, gates: Gates) -> Edit:
    def see(stream: Tensor, pass_: Pass) -> None:
        n_prompt = max(batch.prompt_length - pass_.start, 0)  # tokens of this pass that belong to the prompt
        if n_prompt < pass_.length:
            probability = dial.probability(stream[:, n_prompt:].float().cpu().numpy())
            gates.read_again(dial.kind, probability, max(pass_.start - batch.prompt_length, 0))

    return reader(site(locus.site), locus.layer, see)


def _watcher(dial: Dial, locus: Locus, batch: Batch, gates: Gates) -> Edit:
    """Read every generated token of a dial that alarms, where the model computes, so that no step waits for it.

    What follows a row's end in the batch is read, too, unless `AnswerWatch.over` names the row.
    """
    probe, calibration, reference, limit = dial.probe, dial.calibration, dial.reference, dial.answer_limit
    if probe is None or calibration is None or reference is None or limit is None:
        raise ValueError(f"the {dial.kind} dial does not alarm")
    watch = gates.readings.answers[dial.kind] = AnswerWatch(limit, reference.answer_tokens)
    weight = DeviceCopies(probe.weight)

    def see(stream: Tensor, pass_: Pass) -> None:
        n_prompt = max(batch.prompt_length - pass_.start, 0)
        if len(stream) != len(batch.tokens):
            raise UserError("dials that alarm read one answer a prompt; generate without beams")
        if n_prompt < pass_.length:
            score = stream[:, n_prompt:].float() @ weight.on(stream.device) + probe.bias
            watch.see(calibration.slope * score + calibration.intercept, max(pass_.start - batch.prompt_length, 0))

    return reader(site(locus.site), locus.layer, see)
