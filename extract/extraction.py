"""Extraction: runs labelled prompts through a model and writes their residual streams into a store, shard by shard."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from extract.background import BackgroundThread
from extract.backoff import TokenBudget
from extract.capture import Capturer, CaptureSpec, shared_prefix
from extract.chat.render import Rendered, position_names
from extract.chat.template import template_identity
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.edit import Site
from extract.prompts.prompt import Prompt, prompts_hash
from extract.store.hdf5 import TORCH_TYPES
from extract.store.identity import Identity, StoreType
from extract.store.shard_writer import CapturedShard, ShardWriter

Progress = Callable[[int, int], None]
SHARD_BYTES = 256 * 2**20  # two or three shards are in memory at a time
TOKENS_ON_CPU, TOKENS_ON_GPU = 1024, 16384  # the smallest batches at which matrix products run at their full rate


def extract(
    model: ChatModel,
    prompts: Sequence[Prompt],
    rendered: Sequence[Rendered],
    path: str | os.PathLike[str],
    *,
    site: Site = "resid_post",
    layers: Sequence[int] | None = None,
    positions: Sequence[str] | None = None,
    response_tokens: int = 0,
    thought_tokens: int = 0,
    store_dtype: StoreType | Literal["auto"] = "auto",
    token_budget: int | None = None,
    rows_per_shard: int | None = None,
    shared: bool = False,
    progress: Progress = lambda done, total: None,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Write `activations.h5` for these prompts; an unfinished store is resumed, a finished one stays unchanged.

    Args:
        rendered: the prompts' tokens and roles, one for each, from `extract.chat.render.render`.
        layers: layers to capture; None for all.
        positions: names of prompt positions; None for all positions that occur in some prompt.
        store_dtype: dtype on disk; `auto` is the model's dtype.
        response_tokens: k > 0 also captures `response_1` … `response_k` of the model's greedy response.
        thought_tokens: n > 0 also captures `think_first` and `think_last`, the first and the last token of the thought
            that the model's greedy response begins with, where it ends within n tokens.
        token_budget: tokens per batch, padding included; prompts are sorted by length within a shard.
        rows_per_shard: prompts per shard; None chooses shards of about 256 MiB.
        shared: several processes may write shards of this store at the same time; all of them must set it.
        progress: called with the number of finished prompts and the total.
        say: called with a message for the user, for example when memory ran out and batches became smaller.

    Raises:
        UserError: the path holds a store of other prompts or another model, or another process writes it; an activation
            is not finite; the disk is full; a single prompt does not fit into memory.
    """
    wanted = capture_spec(
        model,
        prompts,
        rendered,
        site=site,
        layers=layers,
        positions=positions,
        response_tokens=response_tokens,
        thought_tokens=thought_tokens,
        store_dtype=store_dtype,
    )
    done = 0

    def advance(rows: int) -> None:
        nonlocal done
        done += rows
        progress(min(done, len(prompts)), len(prompts))

    with Extraction(
        model,
        prompts,
        rendered,
        Path(path),
        wanted,
        token_budget=token_budget,
        rows_per_shard=rows_per_shard,
        shared=shared,
        advance=advance,
        say=say,
    ) as extraction:
        if extraction.missing():
            advance(len(prompts) - sum(len(extraction.rows(shard)) for shard in extraction.missing()))
            extraction.fill()
        progress(len(prompts), len(prompts))  # includes the shards of other processes
        extraction.finish()


class Extraction:
    """A store that is being written: captures shards of its prompts and writes them, any of them in any order."""

    def __init__(
        self,
        model: ChatModel,
        prompts: Sequence[Prompt],
        rendered: Sequence[Rendered],
        path: Path,
        wanted: CaptureSpec,
        *,
        token_budget: int | None = None,
        rows_per_shard: int | None = None,
        shared: bool = False,
        advance: Callable[[int], None] = lambda rows: None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Prepare the capture; the arguments are those of `extract`.

        Args:
            advance: called with the number of prompts that were just captured.
        """
        self.identity = identify(model, prompts, rendered, wanted, rows_per_shard)
        self._prompts, self._rendered = prompts, rendered
        self._writer = ShardWriter(path, self.identity, len(prompts), model.d_model, shared=shared)
        budget = TokenBudget(token_budget or (TOKENS_ON_GPU if model.device.type == "cuda" else TOKENS_ON_CPU), say)
        self._unprefixed = Capturer(model, wanted, budget, BackgroundThread(), None, advance)
        self._one = threading.Lock()  # a model is used by one thread at a time

    def __enter__(self) -> Extraction:
        """Open the store for writing; see `ShardWriter`."""
        self._writer.__enter__()
        self._unprefixed.background.__enter__()
        return self

    def __exit__(self, *given: Any) -> None:
        """Write what is captured, and close the store."""
        try:
            self._unprefixed.background.__exit__(*given)
        finally:
            self._writer.__exit__(*given)

    def missing(self) -> list[int]:
        """Return the shards that are not finished."""
        return [shard for shard in range(self._writer.n_shards) if not self._writer.done(shard)]

    def rows(self, shard: int) -> range:
        """Return the rows of a shard's prompts."""
        return self._writer.rows(shard)

    def fill(self) -> None:
        """Capture and write all missing shards that no other process holds; one is written while the next is computed.

        Waits until the others are finished, and takes over those of processes that have died.
        """
        written: Future[None] | None = None
        for shard in self._writer.todo():
            following = self._capture(shard)
            if written is not None:
                written.result()
            written = following
        if written is not None:
            written.result()

    def add(self, shard: int, *, held: bool = False) -> bool:
        """Capture and write one shard; return False if another process holds it.

        From any thread; while one shard is written, another thread's is captured.

        Args:
            held: write also a shard that another process holds, since that process hangs.
        """
        with self._one:
            if self._writer.done(shard):
                return True
            if not self._writer.claim(shard, held=held):
                return self._writer.done(shard)
            written = self._capture(shard)
        written.result()
        return True

    def finish(self) -> None:
        """Write the master file over the shards, which must all be finished."""
        self._writer.finish(self._prompts, self._rendered, versions())

    def _capture(self, shard: int) -> Future[None]:
        """Capture a claimed shard; return the future of its writing, which follows in the background."""
        rows = self._writer.rows(shard)
        captured = CapturedShard(*self._capturer.capture(self._rendered[rows.start : rows.stop]))
        return self._capturer.background.submit(self._writer.write, shard, captured)

    @cached_property
    def _capturer(self) -> Capturer:
        given = self._unprefixed
        return replace(given, prefix=shared_prefix(given.model, self._rendered, given.wanted))


def capture_spec(
    model: ChatModel,
    prompts: Sequence[Prompt],
    rendered: Sequence[Rendered],
    *,
    site: Site = "resid_post",
    layers: Sequence[int] | None = None,
    positions: Sequence[str] | None = None,
    response_tokens: int = 0,
    thought_tokens: int = 0,
    store_dtype: StoreType | Literal["auto"] = "auto",
) -> CaptureSpec:
    """Return what `extract` would store with these arguments, without computing anything.

    Raises:
        UserError: the model has no such layer, no prompt has such a position, or there is nothing to extract.
    """
    wanted = CaptureSpec(
        site,
        tuple(range(model.n_layers)) if layers is None else tuple(sorted(set(layers))),
        _chosen(positions, position_names(rendered, trigger=any(p.trigger for p in prompts))),
        response_tokens,
        model.dtype if store_dtype == "auto" else TORCH_TYPES[store_dtype],
        thought_tokens,
    )
    _check_request(model, prompts, wanted)
    return wanted


def identify(
    model: ChatModel,
    prompts: Sequence[Prompt],
    rendered: Sequence[Rendered],
    wanted: CaptureSpec,
    rows_per_shard: int | None,
) -> Identity:
    """Return the identity of a store of these prompts and this model."""
    positions = wanted.all_positions
    row_bytes = len(wanted.layers) * len(positions) * model.d_model * wanted.dtype.itemsize
    return Identity(
        model=model.name,
        revision=model.revision,
        weights=model.fingerprint(),
        tokenizer=_sha(model.tokenizer.backend_tokenizer.to_str()),
        template=template_identity(model.tokenizer),
        prompts=prompts_hash(list(prompts)),
        tokens=_tokens_hash(rendered, wanted.thought_tokens),
        site=wanted.site,
        layers=wanted.layers,
        positions=positions,
        dtype=next(name for name, kind in TORCH_TYPES.items() if kind == wanted.dtype),
        backend=model.backend,
        rows_per_shard=rows_per_shard or min(512, max(16, SHARD_BYTES // row_bytes)),
    )


def _check_request(model: ChatModel, prompts: Sequence[Prompt], wanted: CaptureSpec) -> None:
    if not prompts:
        raise UserError("there are no prompts to extract; give a file with at least one prompt")
    if not wanted.layers:
        raise UserError("extract.layers is empty; name layers, or leave it out for all layers")
    if beyond := [layer for layer in wanted.layers if not 0 <= layer < model.n_layers]:
        raise UserError(f"layer {beyond[0]} does not exist: {model.name} has layers 0 to {model.n_layers - 1}")
    if not wanted.positions:
        raise UserError("extract.positions is empty; name positions, or leave it out for all positions")
    if wanted.dtype not in TORCH_TYPES.values():
        raise UserError(
            f"{model.name} computes in {wanted.dtype}, which a store cannot hold; set extract.store_dtype "
            f"to one of {', '.join(TORCH_TYPES)}"
        )


def _tokens_hash(rendered: Sequence[Rendered], thought_tokens: int) -> str:
    digest = hashlib.sha256(f"thoughts of at most {thought_tokens} tokens\n".encode() if thought_tokens else b"")
    for row in rendered:
        roles = {name: list(tokens) for name, tokens in row.roles.items() if name != "inst_mean"}
        of_mean = " without the first" if row.instruction[:1] == range(1) and len(row.instruction) > 1 else ""
        digest.update(f"{list(row.token_ids)} {roles}{of_mean}\n".encode())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Return the versions of the packages that compute a store."""
    return {name: importlib.metadata.version(name) for name in ("torch", "transformers", "h5py", "numpy")}


def _chosen(wanted: Sequence[str] | None, known: tuple[str, ...]) -> tuple[str, ...]:
    if wanted is None:
        return known
    if unknown := [name for name in wanted if name not in known]:
        raise UserError(f"no prompt has the position {unknown[0]!r}; choose from {', '.join(known)}")
    return tuple(dict.fromkeys(wanted))


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
