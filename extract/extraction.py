"""Extraction: runs labelled prompts through a model and writes their residual streams into a store, shard by shard."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from extract.background import BackgroundThread
from extract.backoff import TokenBudget
from extract.capture import Capturer, resolved, shared_prefixes
from extract.capture_spec import EVERYTHING, CaptureSpec, ResolvedSpec
from extract.chat.render import Rendered
from extract.chat.template import template_identity
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.kept_prompts import KeptPrompts
from extract.prompts.prompt import Prompt, prompts_hash
from extract.store.hdf5 import TORCH_TYPES
from extract.store.identity import Identity
from extract.store.shards import ShardFiles
from extract.store.writer import finish, writing

SHARD_BYTES = 256 * 2**20  # two or three shards are in memory at a time


def extract(
    model: ChatModel,
    prompts: Sequence[Prompt],
    rendered: Sequence[Rendered],
    path: str | os.PathLike[str],
    spec: CaptureSpec = EVERYTHING,
    *,
    kept: KeptPrompts | None = None,
    said: Sequence[Sequence[int]] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Write `activations.h5` for these prompts; an unfinished store is resumed, a finished one stays unchanged.

    Args:
        rendered: the prompts' tokens and roles, one for each, from `extract.chat.render.render`.
        spec: what is captured: site, layers, positions, tokens of the response, dtype.
        kept: takes the keys and values of prompts that are continued later, from the same passes.
        said: the prompts' greedy responses, where thoughts are captured; else these are generated.
        progress: called with the number of finished prompts and the total.
        say: called with a message for the user, for example when memory ran out and batches became smaller.

    Raises:
        UserError: the path holds a store of other prompts or another model, or another command writes it; there is no
            such layer or position; an activation is not finite; the disk is full; a prompt does not fit into memory.
    """
    done = 0

    def advance(rows: int) -> None:
        nonlocal done
        done += rows
        progress(min(done, len(prompts)), len(prompts))

    with Extraction(model, prompts, rendered, Path(path), spec, kept=kept, advance=advance, say=say) as extraction:
        missing = extraction.files.missing()
        advance(len(prompts) - sum(len(extraction.files.rows(shard)) for shard in missing))
        written: Future[None] | None = None  # one shard is written while the next is computed
        for shard in missing:
            rows = extraction.files.rows(shard)
            following = extraction.capture(shard, said and said[rows.start : rows.stop])
            if written is not None:
                written.result()
            written = following
        if written is not None:
            written.result()
        extraction.finish()


class Extraction:
    """A store that is being written: captures shards of its prompts and writes them, any of them in any order."""

    def __init__(
        self,
        model: ChatModel,
        prompts: Sequence[Prompt],
        rendered: Sequence[Rendered],
        path: Path,
        spec: CaptureSpec,
        *,
        locked: bool = False,
        kept: KeptPrompts | None = None,
        advance: Callable[[int], None] = lambda rows: None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Prepare the capture; the arguments are those of `extract`.

        `locked`: this process is a worker of the command that holds the store's lock.
        """
        known = store_spec(model, prompts, rendered, spec)
        identity = identify(model, prompts, rendered, known)
        self.files = ShardFiles(path, identity, len(prompts), model.d_model)
        self._prompts, self._rendered, self._locked = prompts, rendered, locked
        budget = TokenBudget.on(model.device, spec.token_budget, say)
        self._unprefixed = Capturer(model, known, budget, BackgroundThread(), (), advance, kept)
        self._one = threading.Lock()  # a model is used by one thread at a time
        self._open = ExitStack()

    def __enter__(self) -> Extraction:
        """Open the store for writing; see `extract.store.writer.writing`."""
        with ExitStack() as opened:
            opened.enter_context(writing(self.files, locked=self._locked))
            opened.enter_context(self._unprefixed.background)
            self._open = opened.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        """Write what is captured, and close the store."""
        self._open.__exit__(*error)

    def add(self, shard: int, said: Sequence[Sequence[int]] | None = None) -> None:
        """Capture and write one shard, if it is not there: from any thread, one captures while another writes."""
        with self._one:
            if self.files.file(shard).exists():
                return
            written = self.capture(shard, said)
        written.result()

    def capture(self, shard: int, said: Sequence[Sequence[int]] | None = None) -> Future[None]:
        """Capture a shard, given its prompts' responses or not; return the future of its writing, in the background."""
        rows = self.files.rows(shard)
        captured = self._capturer.capture(self._rendered[rows.start : rows.stop], said)
        return self._capturer.background.submit(self.files.write, shard, captured)

    def finish(self) -> None:
        """Write the master file over the shards, which must all be finished."""
        finish(self.files, self._prompts, self._rendered, versions())

    @cached_property
    def _capturer(self) -> Capturer:
        whole = self._unprefixed
        return replace(whole, prefixes=shared_prefixes(whole.model, self._rendered, whole.spec))


def store_spec(
    model: ChatModel, prompts: Sequence[Prompt], rendered: Sequence[Rendered], spec: CaptureSpec
) -> ResolvedSpec:
    """Return what `extract` would store, without computing anything; UserError if there is nothing to extract."""
    if not prompts:
        raise UserError("there are no prompts to extract; give a file with at least one prompt")
    known = resolved(spec, model, rendered)
    if known.dtype not in TORCH_TYPES:
        raise UserError(
            f"{model.name} computes in torch.{known.dtype}, which a store cannot hold; set extract.store_dtype "
            f"to one of {', '.join(TORCH_TYPES)}"
        )
    return known


def identify(model: ChatModel, prompts: Sequence[Prompt], rendered: Sequence[Rendered], spec: ResolvedSpec) -> Identity:
    """Return the identity of a store of these prompts and this model."""
    positions, dtype = spec.all_positions, next(name for name in TORCH_TYPES if name == spec.dtype)
    row_bytes = len(spec.layers) * len(positions) * model.d_model * TORCH_TYPES[dtype].itemsize
    return Identity(
        model=model.name,
        revision=model.revision,
        weights=model.fingerprint(),
        tokenizer=hashlib.sha256(model.tokenizer.backend_tokenizer.to_str().encode()).hexdigest(),
        template=template_identity(model.tokenizer),
        prompts=prompts_hash(list(prompts)),
        tokens=_tokens_hash(rendered, spec.thought_tokens),
        site=spec.site,
        layers=spec.layers,
        positions=positions,
        dtype=dtype,
        backend=model.backend,
        rows_per_shard=spec.rows_per_shard or min(512, max(16, SHARD_BYTES // row_bytes)),
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
