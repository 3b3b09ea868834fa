"""Extraction: runs labelled prompts through a model and writes their residual streams into a store, shard by shard."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Literal

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
    path: Path,
    *,
    site: Site = "resid_post",
    layers: Sequence[int] | None = None,
    positions: Sequence[str] | None = None,
    response_tokens: int = 0,
    store_dtype: StoreType | Literal["auto"] = "auto",
    token_budget: int | None = None,
    rows_per_shard: int | None = None,
    shared: bool = False,
    progress: Progress = lambda done, total: None,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Write `activations.h5` for these prompts; a store half made is finished, one already whole is left alone.

    Args:
        rendered: the prompts' tokens and roles, one for each, from `extract.chat.render.render`.
        positions: names of prompt positions; None for every one that some prompt has.
        store_dtype: of the numbers on disk; `auto` is what the model computes in.
        response_tokens: with k > 0 the model also answers, greedily, and `response_1` … `response_k` are captured.
        token_budget: tokens in a batch, padding included; prompts are sorted by length within a shard.
        shared: other processes may write shards of this store at the same time, if they say so too.
        progress: called with prompts done and prompts in all.
        say: called with a line for the user, for instance when memory ran out and batches were made smaller.

    Raises:
        UserError: the store there is of something else, or is being written by another process; an activation is not
            finite; the disk is full; one prompt alone does not fit into memory.
    """
    wanted = CaptureSpec(
        site,
        tuple(range(model.n_layers)) if layers is None else tuple(sorted(set(layers))),
        _chosen(positions, position_names(rendered, trigger=any(p.trigger for p in prompts))),
        response_tokens,
        model.dtype if store_dtype == "auto" else TORCH_TYPES[store_dtype],
    )
    _refuse_nothing(model, prompts, wanted)
    identity = identify(model, prompts, rendered, wanted, rows_per_shard)
    budget = TokenBudget(token_budget or (TOKENS_ON_GPU if model.device.type == "cuda" else TOKENS_ON_CPU), say)
    with ShardWriter(path, identity, len(prompts), model.d_model, shared=shared) as writer:
        there = [shard for shard in range(writer.n_shards) if writer.done(shard)]
        if len(there) < writer.n_shards:
            done = sum(len(writer.rows(shard)) for shard in there)

            def advance(rows: int) -> None:
                nonlocal done
                done += rows
                progress(min(done, len(prompts)), len(prompts))

            advance(0)
            _fill(writer, rendered, Capturer(model, wanted, budget, BackgroundThread(), None, advance))
        progress(len(prompts), len(prompts))  # also what other processes have done
        writer.finish(prompts, rendered, versions())


def _fill(writer: ShardWriter, rendered: Sequence[Rendered], capturer: Capturer) -> None:
    """Capture and write what is missing; a shard is written while the next one, and no more, is computed."""
    capturer = replace(capturer, prefix=shared_prefix(capturer.model, rendered, capturer.wanted))
    written: Future[None] | None = None
    with capturer.background as background:
        for shard in writer.todo():
            rows = writer.rows(shard)
            captured = CapturedShard(*capturer.capture(rendered[rows.start : rows.stop]))
            if written:
                written.result()
            written = background.submit(writer.write, shard, captured)


def identify(
    model: ChatModel,
    prompts: Sequence[Prompt],
    rendered: Sequence[Rendered],
    wanted: CaptureSpec,
    rows_per_shard: int | None,
) -> Identity:
    """Say what a store of these prompts through this model is of."""
    responses = [f"response_{k}" for k in range(1, wanted.response_tokens + 1)]
    positions = (*wanted.positions, *responses)
    row_bytes = len(wanted.layers) * len(positions) * model.d_model * wanted.dtype.itemsize
    return Identity(
        model=model.name,
        revision=model.revision,
        weights=model.fingerprint(),
        tokenizer=_sha(model.tokenizer.backend_tokenizer.to_str()),
        template=template_identity(model.tokenizer),
        prompts=prompts_hash(list(prompts)),
        tokens=_tokens_hash(rendered),
        site=wanted.site,
        layers=wanted.layers,
        positions=positions,
        dtype=next(name for name, kind in TORCH_TYPES.items() if kind == wanted.dtype),
        backend=model.backend,
        rows_per_shard=rows_per_shard or min(512, max(16, SHARD_BYTES // row_bytes)),
    )


def _refuse_nothing(model: ChatModel, prompts: Sequence[Prompt], wanted: CaptureSpec) -> None:
    if not prompts:
        raise UserError("there are no prompts to extract")
    if not wanted.layers:
        raise UserError("extract.layers is empty; name layers, or leave it out for all")
    if beyond := [layer for layer in wanted.layers if not 0 <= layer < model.n_layers]:
        raise UserError(f"layer {beyond[0]} does not exist: {model.name} has layers 0 to {model.n_layers - 1}")
    if not wanted.positions:
        raise UserError("extract.positions is empty; name positions, or leave it out for all")
    if wanted.dtype not in TORCH_TYPES.values():
        raise UserError(f"{model.name} computes in {wanted.dtype}, which no store holds; set extract.store_dtype to "
                        f"one of {', '.join(TORCH_TYPES)}")  # fmt: skip


def _tokens_hash(rendered: Sequence[Rendered]) -> str:
    digest = hashlib.sha256()
    for row in rendered:
        roles = {name: list(tokens) for name, tokens in row.roles.items() if name != "inst_mean"}
        digest.update(f"{list(row.token_ids)} {roles}\n".encode())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Return the versions of what computed a store."""
    return {name: importlib.metadata.version(name) for name in ("torch", "transformers", "h5py", "numpy")}


def _chosen(asked: Sequence[str] | None, there: tuple[str, ...]) -> tuple[str, ...]:
    if asked is None:
        return there
    if unknown := [name for name in asked if name not in there]:
        raise UserError(f"no prompt has the position {unknown[0]!r}; there are {', '.join(there)}")
    return tuple(dict.fromkeys(asked))


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
