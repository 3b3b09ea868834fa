"""Verifies a store: compares every checksum, count and name with the recorded ones; one line per fault."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import h5py
import numpy as np
import torch

from extract.errors import UserError
from extract.prompts.prompt import prompts_hash
from extract.store.activation_store import ActivationStore
from extract.store.hdf5 import TORCH_TYPES, DamagedStoreError, read_locus, read_ragged
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
            return _Verifier(store, progress).report(weights)
    except DamagedStoreError as error:
        return Verification((str(error),))


class _Verifier:
    """Reads one store once and yields its faults."""

    def __init__(self, store: ActivationStore, progress: Progress) -> None:
        self._store, self._file, self._files, self._identity = store, store.file, store.files, store.identity
        self._present, self._responses, self._progress = store.present, store.responses, progress

    def report(self, weights: str | None) -> Verification:
        files, dtype = self._files, TORCH_TYPES[self._identity.dtype]
        return Verification(
            tuple(chain(self._counts(), self._roles(), self._provenance(weights), self._shards())),
            files.n_prompts,
            files.n_shards,
            files.shape[0] * files.shape[1],
            int(np.prod(files.shape)) * dtype.itemsize,
            str(self._file.attrs["digest"]),
        )

    def _counts(self) -> Iterator[str]:
        shape, n, file = self._store.data.shape, self._files.n_prompts, self._file
        counts = {f"prompts/{name}": len(column) for name, column in file["prompts"].items()}
        counts |= {f"roles/{name}": len(group["offsets"]) - 1 for name, group in file["roles"].items()}
        counts |= {"tokens": len(file["tokens/offsets"]) - 1, "present": self._present.shape[1]}
        counts |= {"responses": len(self._responses)} if self._responses else {}
        yield from (f"{name} has {count} rows, the activations {n}" for name, count in counts.items() if count != n)
        named = self._files.shape[:2]
        if shape[:2] != (len(file["layers"]), len(file["positions"])) or shape[:2] != named:
            yield f"the activations are {shape}, but {named} layers and positions are named"
        if len(self._store.digests) != self._files.n_shards:
            yield f"{len(self._store.digests)} shard digests for {self._files.n_shards} shards"

    def _roles(self) -> Iterator[str]:
        for name in self._file["roles"]:
            present = self._present[self._identity.positions.index(name)]
            has = np.array([len(tokens) > 0 for tokens in read_ragged(self._file, f"roles/{name}")])
            if len(has) == len(present) and (rows := np.flatnonzero(has != present)).size:
                marked = "present" if present[rows[0]] else "absent"
                yield f"{name} is marked {marked} for prompt row {rows[0]}, not in its tokens"

    def _provenance(self, weights: str | None) -> Iterator[str]:
        own = self._identity.weights
        with suppress(UserError):  # of another version: their hash is not known
            if prompts_hash(self._store.prompts) != self._identity.prompts:
                yield "its prompts do not match its prompt hash"
        if hashlib.sha256("".join(self._store.digests).encode()).hexdigest() != self._file.attrs["digest"]:
            yield "its digest does not match the digests of its shards"
        if weights is not None and weights != own:
            yield f"it was made with weights of fingerprint {own[:12]}, not {weights[:12]}"

    def _shards(self) -> Iterator[str]:
        for shard in range(len(self._store.digests)):
            rows = self._files.rows(shard)
            present = self._present[:, rows.start : rows.stop]
            if not self._store.is_virtual:
                responses = self._responses[rows.start : rows.stop]
                yield from self._numbers(shard, f"shard {shard}", self._store.data, rows.start, present, responses)
                continue
            try:
                with self._files.open(shard, self._store.digests[shard]) as file:
                    name, own = self._files.relative(shard), file["present"][:]
                    if not np.array_equal(own, present):
                        yield f"{name}: /present differs from the master's"
                    data = file[f"activations/{self._identity.site}"]
                    yield from self._numbers(shard, name, data, 0, own, responses_of(file))
            except (KeyError, OSError, RuntimeError, ValueError) as error:  # UserError is a ValueError
                self._advance(shard + 1, 0)
                yield str(error)

    def _numbers(
        self, shard: int, name: str, data: h5py.Dataset, start: int, present: np.ndarray, responses: list[np.ndarray]
    ) -> Iterator[str]:
        """Check every slice of a shard: checksums, finite values, zeros in absent rows, and the digest."""
        shape, identity = self._files.shape_of(shard), self._identity
        rows = torch.empty(shape[2:], dtype=TORCH_TYPES[identity.dtype])
        sums = self._store.sums[:, :, shard]
        digest, readable = ShardDigest(identity, shard, self._files.rows(shard)), True
        for layer, position in np.ndindex(shape[:2]):
            where = f"{name}: layer {identity.layers[layer]}, position {identity.positions[position]}"
            self._advance(shard, layer * shape[1] + position + 1)
            try:
                read_locus(data, layer, position, start, rows)
            except OSError as error:
                readable = False
                yield f"{where} cannot be read ({error})"
                continue
            if digest.update(rows) != sums[layer, position]:
                yield f"{where} has the wrong CRC-32"
            if not all(bound.isfinite() for bound in torch.aminmax(rows)):
                yield f"{where} holds NaN or infinity"
            elif rows[torch.from_numpy(~present[position])].any():
                yield f"{where} holds numbers in rows marked absent"
        if readable and digest.finish(present, responses) != self._store.digests[shard]:
            yield f"{name}: its numbers do not match its digest"

    def _advance(self, shard: int, loci: int) -> None:
        each = self._files.shape[0] * self._files.shape[1]
        self._progress(shard * each + loci, self._files.n_shards * each)
