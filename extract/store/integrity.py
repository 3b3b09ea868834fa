"""Verifies a store: compares every checksum, count and name with the recorded ones; one line per fault."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np
import torch
from jaxtyping import Bool, Int

from extract.errors import UserError
from extract.prompts.prompt import prompts_hash
from extract.store.activation_store import identity_in
from extract.store.checksum_block import was_store
from extract.store.hdf5 import TORCH_TYPES, open_verified, read_locus, read_ragged
from extract.store.identity import Identity
from extract.store.master import read_prompts, shard_identities
from extract.store.shard_files import ShardDigest, ShardFiles, responses_of

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
    """Read a whole store and compare it with its recorded checksums and identity.

    Args:
        weights: the expected fingerprint of its model; None skips this check.
        progress: called with the number of slices read and the total.

    Raises:
        UserError: there is no such file, or it is no store.
    """
    if not path.is_file():
        raise UserError(f"store not found: {path}; make it with: refusal extract CONFIG")
    try:
        file = open_verified(path)
    except UserError as error:
        if not was_store(path):
            raise
        return Verification((str(error),))
    with file:
        try:
            return _Verifier(path, file, identity_in(path, file), progress).report(weights)
        except (KeyError, OSError, RuntimeError, ValueError) as error:  # UserError is a ValueError
            return Verification((f"{path}: {error}",))


@dataclass
class _Verifier:
    """Reads one store once and collects its faults."""

    path: Path
    file: h5py.File
    identity: Identity
    progress: Progress
    findings: list[str] = field(default_factory=list)

    def report(self, weights: str | None) -> Verification:
        self.data = self.file["activations"][self.identity.site]
        self.present = self.file["present"][:]
        self.responses = read_ragged(self.file, "responses") if "responses" in self.file else []
        self.files = ShardFiles(self.path, self.identity, self.data.shape[2], self.data.shape[3])
        self.sums = self.file["shards/crc32"][:]
        self.identities = shard_identities(self.file, self.identity, self.files.n_shards)
        self.digests = [digest.decode() for digest in self.file["shards/digest"][:]]
        for part in (self._counts(), self._roles(), self._provenance(weights), self._shards()):
            self.findings.extend(part)
        width = TORCH_TYPES[self.identity.dtype].itemsize
        loci = self.files.shape[0] * self.files.shape[1]
        return Verification(
            tuple(self.findings),
            self.files.n_prompts,
            self.files.n_shards,
            loci,
            int(np.prod(self.files.shape)) * width,
            str(self.file.attrs["digest"]),
        )

    def _counts(self) -> Iterator[str]:
        shape, n = self.data.shape, self.files.n_prompts
        counts = {f"prompts/{name}": len(column) for name, column in self.file["prompts"].items()}
        counts |= {f"roles/{name}": len(group["offsets"]) - 1 for name, group in self.file["roles"].items()}
        counts |= {"tokens": len(self.file["tokens/offsets"]) - 1, "present": self.present.shape[1]}
        counts |= {"responses": len(self.responses)} if self.responses else {}
        yield from (f"{name} has {count} rows, the activations {n}" for name, count in counts.items() if count != n)
        if shape[:2] != (len(self.file["layers"]), len(self.file["positions"])) or shape[:2] != self.files.shape[:2]:
            yield f"the activations are {shape}, but {self.files.shape[:2]} layers and positions are named"
        if len(self.digests) != self.files.n_shards:
            yield f"{len(self.digests)} shard digests for {self.files.n_shards} shards"

    def _roles(self) -> Iterator[str]:
        for name in self.file["roles"]:
            present = self.present[self.identity.positions.index(name)]
            has = np.array([len(tokens) > 0 for tokens in read_ragged(self.file, f"roles/{name}")])
            if len(has) == len(present) and (rows := np.flatnonzero(has != present)).size:
                yield f"{name} is marked {_presence(present[rows[0]])} for prompt row {rows[0]}, not in its tokens"

    def _provenance(self, weights: str | None) -> Iterator[str]:
        prompts = read_prompts(self.file)
        if prompts is not None and prompts_hash(prompts) != self.identity.prompts:
            yield "its prompts do not match its prompt hash"
        if hashlib.sha256("".join(self.digests).encode()).hexdigest() != self.file.attrs["digest"]:
            yield "its digest does not match the digests of its shards"
        if weights is not None and weights != self.identity.weights:
            yield (f"it was made with weights of fingerprint {self.identity.weights[:12]}, not {weights[:12]}")

    def _shards(self) -> Iterator[str]:
        for shard, digest in enumerate(self.digests):
            if not self.data.is_virtual:
                rows = self.files.rows(shard)
                here = slice(rows.start, rows.stop)
                yield from self._numbers(shard, digest, self.data, self.present[:, here], self.responses[here])
                continue
            try:
                with self.files.open(shard, digest) as file:
                    yield from self._shard(shard, digest, file)
            except (KeyError, OSError, RuntimeError, ValueError) as error:
                self._advance(shard + 1, 0)
                yield str(error)

    def _shard(self, shard: int, digest: str, file: h5py.File) -> Iterator[str]:
        rows, present = self.files.rows(shard), file["present"][:]
        if not np.array_equal(present, self.present[:, rows.start : rows.stop]):
            yield f"{self.files.relative[shard]}: /present differs from the master's"
        dataset = file[f"activations/{self.identity.site}"]
        yield from self._numbers(shard, digest, dataset, present, responses_of(file))

    def _numbers(
        self,
        shard: int,
        digest: str,
        dataset: h5py.Dataset,
        present: Bool[np.ndarray, "positions rows"],
        responses: list[Int[np.ndarray, " tokens"]],
    ) -> Iterator[str]:
        """Check every slice of a shard: checksums, finite values, zeros in absent rows, and the digest."""
        name, shape = (
            self.files.relative[shard] if self.data.is_virtual else f"shard {shard}",
            self.files.shape_of(shard),
        )
        start = 0 if self.data.is_virtual else self.files.rows(shard).start
        rows = torch.empty(shape[2:], dtype=TORCH_TYPES[self.identity.dtype])
        sha, readable = ShardDigest(self.identities[shard], shard, self.files.rows(shard)), True
        for layer, position in np.ndindex(shape[:2]):
            where = f"{name}: layer {self.identity.layers[layer]}, position {self.identity.positions[position]}"
            self._advance(shard, layer * shape[1] + position + 1)
            try:
                read_locus(dataset, layer, position, start, rows)
            except OSError as error:
                readable = False
                yield f"{where} cannot be read ({error})"
                continue
            if sha.update(rows) != self.sums[layer, position, shard]:
                yield f"{where} has the wrong CRC-32"
            if not all(torch.aminmax(rows)[i].isfinite() for i in range(2)):
                yield f"{where} holds NaN or infinity"
            elif rows[torch.from_numpy(~present[position])].any():
                yield f"{where} holds numbers in rows marked absent"
        if readable and sha.finish(present, responses) != digest:
            yield f"{name}: its numbers do not match its digest"

    def _advance(self, shard: int, loci: int) -> None:
        each = self.files.shape[0] * self.files.shape[1]
        self.progress(shard * each + loci, self.files.n_shards * each)


def _presence(present: bool) -> str:
    return "present" if present else "absent"
