"""Verifies a store: compares every checksum, count and name with the recorded ones; one line per fault."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import torch

from extract.errors import UserError
from extract.prompts.prompt import prompts_hash
from extract.store.activation_store import ActivationStore
from extract.store.hdf5 import TORCH_TYPES, DamagedStoreError, read_locus
from extract.store.shards import ShardDigest, responses_of

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Verification:
    """Faults found in a store, and the amount of data read."""

    findings: tuple[str, ...]
    prompts: int = 0
    shards: int = 0
    loci: int = 0  # (layer, position) slices read
    bytes: int = 0  # of activations
    digest: str = ""


def verify(path: Path, *, weights: str | None = None, progress: Progress = lambda done, total: None) -> Verification:
    """Read a whole store and compare it with its checksums, its identity and its weights' fingerprint (unless None)."""
    try:
        with ActivationStore(path, open_shards=False) as store:
            files = store.files
            return Verification(
                (*_counts(store), *_roles(store), *_provenance(store, weights), *_shards(store, progress)),
                files.n_prompts,
                files.n_shards,
                files.shape[0] * files.shape[1],
                int(np.prod(files.shape)) * TORCH_TYPES[store.identity.dtype].itemsize,
                str(store.file.attrs["digest"]),
            )
    except DamagedStoreError as error:
        return Verification((str(error),))


def _counts(store: ActivationStore) -> Iterator[str]:
    shape, n, file, responses = store.data.shape, len(store), store.file, store.responses
    counts = {f"prompts/{name}": len(column) for name, column in file["prompts"].items()}
    counts |= {f"roles/{name}": len(group["offsets"]) - 1 for name, group in file["roles"].items()}
    counts |= {"tokens": len(file["tokens/offsets"]) - 1, "present": store.present.shape[1]}
    counts |= {"responses": len(responses)} if responses else {}
    yield from (f"{name} has {count} rows, the activations {n}" for name, count in counts.items() if count != n)
    named = store.files.shape[:2]
    if shape[:2] != (len(file["layers"]), len(file["positions"])) or shape[:2] != named:
        yield f"the activations are {shape}, but {named} layers and positions are named"
    if len(store.digests) != store.files.n_shards:
        yield f"{len(store.digests)} shard digests for {store.files.n_shards} shards"


def _roles(store: ActivationStore) -> Iterator[str]:
    for name in store.file["roles"]:
        present = store.present[store.positions.index(name)]
        has = np.array([len(tokens) > 0 for tokens in store.role(name)])
        if len(has) == len(present) and (rows := np.flatnonzero(has != present)).size:
            marked = "present" if present[rows[0]] else "absent"
            yield f"{name} is marked {marked} for prompt row {rows[0]}, not in its tokens"


def _provenance(store: ActivationStore, weights: str | None) -> Iterator[str]:
    own = store.identity.weights
    with suppress(UserError):  # of another version: their hash is not known
        if prompts_hash(store.prompts) != store.identity.prompts:
            yield "its prompts do not match its prompt hash"
    if hashlib.sha256("".join(store.digests).encode()).hexdigest() != store.file.attrs["digest"]:
        yield "its digest does not match the digests of its shards"
    if weights is not None and weights != own:
        yield f"it was made with weights of fingerprint {own[:12]}, not {weights[:12]}"


def _shards(store: ActivationStore, progress: Progress) -> Iterator[str]:
    files, of_flat = store.files, store.responses
    loci = files.shape[0] * files.shape[1]
    for shard in range(len(store.digests)):
        rows = files.rows(shard)
        here = slice(rows.start, rows.stop)

        def advance(done: int, before: int = shard * loci) -> None:
            progress(before + done, files.n_shards * loci)

        if not store.is_virtual:
            numbers = store.data, rows.start, store.present[:, here], of_flat[here]
            yield from _numbers(store, shard, f"shard {shard}", *numbers, advance)
            continue
        try:
            with files.open(shard, store.digests[shard]) as file:
                name, own = files.relative(shard), file["present"][:]
                if not np.array_equal(own, store.present[:, here]):
                    yield f"{name}: /present differs from the master's"
                numbers = file[f"activations/{store.site}"], 0, own, responses_of(file)
                yield from _numbers(store, shard, name, *numbers, advance)
        except (KeyError, OSError, RuntimeError, ValueError) as error:  # UserError is a ValueError
            advance(loci)
            yield str(error)


def _numbers(
    store: ActivationStore,
    shard: int,
    name: str,
    data: h5py.Dataset,
    start: int,
    present: np.ndarray,
    responses: list[np.ndarray],
    advance: Callable[[int], None],
) -> Iterator[str]:
    """Check every slice of a shard: checksums, finite values, zeros in absent rows, and the digest."""
    shape, identity = store.files.shape_of(shard), store.identity
    rows = torch.empty(shape[2:], dtype=TORCH_TYPES[identity.dtype])
    digest, readable = ShardDigest(identity, shard, store.files.rows(shard)), True
    for layer, position in np.ndindex(shape[:2]):
        where = f"{name}: layer {identity.layers[layer]}, position {identity.positions[position]}"
        advance(layer * shape[1] + position + 1)
        try:
            read_locus(data, layer, position, start, rows)
        except OSError as error:
            readable = False
            yield f"{where} cannot be read ({error})"
            continue
        if digest.update(rows) != store.sums[layer, position, shard]:
            yield f"{where} has the wrong CRC-32"
        if not all(bound.isfinite() for bound in torch.aminmax(rows)):
            yield f"{where} holds NaN or infinity"
        elif rows[torch.from_numpy(~present[position])].any():
            yield f"{where} holds numbers in rows marked absent"
    if readable and digest.finish(present, responses) != store.digests[shard]:
        yield f"{name}: its numbers do not match its digest"
