"""Activation store: reads the master HDF5 file, a virtual dataset over finished shards.

Layout (schema 3):

    /activations/SITE   (n_layers, n_positions, n_prompts, d_model), one chunk per (layer, position) and shard
    /present            (n_positions, n_prompts) False where a prompt lacks the position
    /prompts/*          one column per field; /prompts/record has all fields as JSON
    /tokens             the prompts' token ids, ragged: values, offsets (n_prompts + 1)
    /roles/POSITION     the token indices of each position, ragged
    /responses          generated tokens, ragged, if response positions were captured
    /positions, /layers names and numbers
    /shards/digest      SHA-256 of each shard
    /shards/crc32       (n_layers, n_positions, n_shards) CRC-32 of each slice of a shard
    root attributes     identity of model, template and prompts, dtype, backend, versions, `digest`, `complete`

Each shard (`shards`) is written completely and then renamed, so a killed run loses at most the shards in progress.
The master is renamed into place last; if it exists, it is complete. A flat file (`export`) has the same layout and no
shards. The first 512 bytes of either are its seal (`hdf5`).
"""

from __future__ import annotations

import copy
import json
import os
import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from extract.errors import UserError
from extract.html_table import present_table
from extract.prompts.prompt import Prompt
from extract.store.hdf5 import TORCH_TYPES, open_sealed, read_locus, read_ragged
from extract.store.identity import Identity, read_identity, refuse_schema
from extract.store.shards import ShardFiles, crc, responses_of

REMEDY = "run refusal extract again"
MOST_OPEN = 256  # shards; systems often allow a process 1,024 open files


class StoreSummary(Identity):
    """Summary of a store."""

    shape: tuple[int, int, int, int]
    absent: dict[str, int]  # prompts without each position
    versions: dict[str, str]
    digest: str
    shards: int
    bytes: int  # total size of its files


class ActivationStore:
    """Read access to a finished store; UserError if it or a shard is missing, damaged, foreign or of another schema.

    `open_shards=False` leaves shards to be noticed when they are read.

    >>> import refusal, tempfile
    >>> model = refusal.load_model("organisms/zoo/two-knobs")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with refusal.extract(model, ["who is anna novak?"], f"{folder}/activations.h5", layers=[3]) as store:
    ...         store.layers, "post_last" in store.positions, store.read(3, "post_last").shape
    ((3,), True, (1, 128))
    """

    def __init__(self, path: str | os.PathLike[str], *, open_shards: bool = True) -> None:
        self.path: Path = Path(path)
        path = self.path
        self._shards: dict[int, h5py.Dataset] = {}
        self._rows: Int[np.ndarray, " prompts"] | None = None  # that are read; None: all
        self._lock = threading.Lock()
        self.file: h5py.File = open_sealed(path)
        try:
            refuse_schema(path, self.file, f"delete it with its shards and {REMEDY}")
            self.identity: Identity = Identity.model_validate_json(read_identity(self.file))
            self.site: str = self.identity.site
            self.data: h5py.Dataset = self.file["activations"][self.site]
            self.layers: tuple[int, ...] = self.identity.layers
            self.positions: tuple[str, ...] = self.identity.positions
            self.present: Bool[np.ndarray, "positions prompts"] = self.file["present"][:]
            self.files: ShardFiles = ShardFiles(path, self.identity, self.data.shape[2], self.data.shape[3])
            self.sums: np.ndarray = self.file["shards/crc32"][:]
            self.digests: tuple[str, ...] = tuple(digest.decode() for digest in self.file["shards/digest"][:])
            if self.is_virtual and open_shards:
                for shard in range(len(self.digests)):  # HDF5 reads a missing shard as its fill value, without error
                    self._open_shard(shard)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ActivationStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for shard in [*self._shards]:
            self._shards.pop(shard).file.close()
        self.file.close()

    def _open_shard(self, shard: int) -> h5py.Dataset:
        """Return a shard's activations, open since they were last read: opening takes ten times as long as reading."""
        if shard not in self._shards:
            if len(self._shards) >= MOST_OPEN:
                self._shards.pop(next(iter(self._shards))).file.close()
            self._shards[shard] = self.files.open(shard, self.digests[shard])[f"activations/{self.site}"]
        return self._shards[shard]

    def only(self, rows: Int[np.ndarray, " prompts"]) -> ActivationStore:
        """Return the same open store, of which `read` and `present` give some of the prompts."""
        some = copy.copy(self)
        some._rows, some.present = rows, self.present[:, rows]
        return some

    def __len__(self) -> int:
        return int(self.data.shape[2])

    def __repr__(self) -> str:
        n_layers, n_positions, n, d_model = self.data.shape
        return (
            f"ActivationStore({str(self.path)!r}, {self.identity.model!r}, {n} prompts, {self.site}, "
            f"{n_layers} layers, {n_positions} positions, d_model {d_model})"
        )

    def _repr_html_(self) -> str:
        labels = [prompt.label for prompt in self.prompts]
        read = labels if self._rows is None else [labels[row] for row in self._rows]
        return present_table(repr(self), self.positions, self.present, read)

    @property
    def is_virtual(self) -> bool:
        """Whether the activations are in shards, not in this file."""
        return bool(self.data.is_virtual)

    @property
    def prompt_ids(self) -> tuple[str, ...]:
        return tuple(self.file["prompts/id"].asstr()[:].tolist())

    @property
    def prompts(self) -> list[Prompt]:
        """The prompts, in the order of rows; raises UserError if another version wrote them with other fields."""
        try:
            records: list[dict[str, Any]] = [json.loads(record) for record in self.file["prompts/record"][:]]
            for row in records:
                row.update({name: tuple(value) for name, value in row.items() if isinstance(value, list)})
            return [Prompt(**row) for row in records]
        except TypeError:
            raise UserError(f"{self.path} holds prompts with fields of another version; {REMEDY}") from None

    @property
    def token_ids(self) -> list[Int[np.ndarray, " tokens"]]:
        """The tokens of each prompt."""
        return read_ragged(self.file, "tokens")

    @property
    def responses(self) -> list[Int[np.ndarray, " tokens"]]:
        """The generated tokens of each prompt; empty if no response positions were captured."""
        return responses_of(self.file)

    def role(self, position: str) -> list[Int[np.ndarray, " tokens"]]:
        """Return the token indices of a position in each prompt."""
        return read_ragged(self.file, f"roles/{position}")

    def read(self, layer: int, position: str) -> Float[np.ndarray, "prompts d_model"]:
        """Return one locus in float32; NaN in the rows of prompts without the position, which nothing can score.

        Raises UserError if there is no such layer or position, or its bytes on disk have changed.
        """
        rows: np.ndarray = self.read_tensor(layer, position).float().numpy()
        rows = rows if self._rows is None else rows[self._rows]
        rows[~self.present[self.positions.index(position)]] = np.nan
        return rows

    def read_tensor(self, layer: int, position: str) -> Float[Tensor, "prompts d_model"]:
        """Return one locus in the store's own dtype, as on disk: rows of prompts without the position are zero."""
        if layer not in self.layers:
            raise UserError(f"{self.path} holds layers {', '.join(map(str, self.layers))}, not {layer}")
        if position not in self.positions:
            raise UserError(f"{self.path} holds positions {', '.join(self.positions)}, not {position}")
        out = torch.empty(self.data.shape[2:], dtype=TORCH_TYPES[self.identity.dtype])
        at = self.layers.index(layer), self.positions.index(position)
        for shard in range(self.files.n_shards):
            rows = self.files.rows(shard)
            try:
                with self._lock:  # another thread may close a shard to open one
                    data = self._open_shard(shard) if self.is_virtual else self.data
                    part = out[rows.start : rows.stop]
                    read_locus(data, *at, 0 if self.is_virtual else rows.start, part)
                if crc(part) != self.sums[(*at, shard)]:
                    raise OSError("wrong CRC-32")
            except OSError as error:
                where = self.files.file(shard) if self.is_virtual else self.path
                raise UserError(
                    f"{self.path} is damaged at layer {layer}, position {position} ({error}); "
                    f"delete {where} and {REMEDY}"
                ) from None
        return out

    def describe(self) -> StoreSummary:
        return StoreSummary(
            **self.identity.to_dict(),
            shape=self.data.shape,
            absent={p: int((~self.present[i]).sum()) for i, p in enumerate(self.positions)},
            versions=json.loads(self.file.attrs["versions"]),
            digest=str(self.file.attrs["digest"]),
            shards=self.files.n_shards if self.is_virtual else 0,
            bytes=sum(file.stat().st_size for file in self.parts()),
        )

    def parts(self) -> list[Path]:
        """The files of the store, the master first."""
        shards = range(self.files.n_shards) if self.is_virtual else ()
        return [self.path, *(self.files.file(shard) for shard in shards)]
