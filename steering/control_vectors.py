"""Control vectors of other tools: read as directions, written as GGUF or safetensors.

Each tool adds a vector at one place of a block, at every token. Where, by their own code (blocks count from 0):

- GGUF control vectors (llama.cpp, repeng 0.4): `direction.N` is added to the output of block N; llama.cpp has none for
  block 0.
- steering-vectors 0.12: a tensor by layer, added to the output of that block (`decoder_block`).
- refusal-direction (arXiv 2406.11717): `mean_diffs.pt` (tokens, layers, d_model) and `direction.pt` (d_model,), added
  to the input of a block.
- heretic 1.4 saves no direction, but an adapter of rank 1 whose B is minus a weight times the direction at that block's
  output, where its setting `row_normalization` is `none`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from extract.atomic_write import atomic_path
from extract.errors import UserError, in_one_line
from extract.run_directory import file_of_run
from probes.direction import VANISHED, Direction, Locus, Provenance
from steering.direction_file import load_directions as own_directions

if TYPE_CHECKING:
    from torch import Tensor

ARCHITECTURE = "controlvector"
TENSOR = re.compile(r"direction\.(\d+)")
LORA_B = re.compile(r"\blayers\.(\d+)\..*lora_B\b.*weight$")
ADAPTER = "adapter_model.safetensors"
EVERY_TOKEN = "all"  # the position of a vector that is written at every token; where it was read, its tool may say
PARALLEL = 0.9999  # least cosine of two columns that are one direction
Vector = Float[np.ndarray, " d_model"]


def load_directions(path: str | os.PathLike[str], *, layer: int | None = None) -> dict[str, Direction]:
    """Read directions by name: of `save_directions`, or control vectors of another tool.

    The latter have no class means and a length: `Model.steer` at scale 1 adds the vector as it is in the file. Vectors
    of zeros are left out.

    Args:
        path: the file, a run's directory, or heretic's directory of an adapter.
        layer: the block of a refusal-direction `direction.pt` that has no direction_metadata.json next to it.

    Raises:
        UserError: there is no such file, it is none of these, or it holds more than tensors.

    >>> import refusal
    >>> [name for name in refusal.load_directions("runs/quickstart") if "write" in name]
    ['epistemic_write', 'normative_write']
    """
    path = Path(path)
    if not (path / ADAPTER).is_file():
        path = file_of_run(path, "directions.safetensors")
    if not path.exists():
        raise UserError(f"directions not found: {path}; give a file of directions, or a run's directory")
    try:
        read = list(_read(path, layer))
    except UserError:
        raise
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise UserError(f"{path} cannot be read as directions: {in_one_line(error)}") from None
    if not read:
        raise UserError(f"{path} holds no direction: all its vectors are zero, or it has none")
    return {direction.name: direction for direction in read}


def _read(path: Path, layer: int | None) -> Iterator[Direction]:
    if path.is_dir() or path.name == ADAPTER:
        return _of_heretic(path / ADAPTER if path.is_dir() else path)
    match path.suffix:
        case ".gguf":
            return _of_gguf(path)
        case ".pt" | ".pth" | ".bin":
            return _of_torch(path, layer)
        case ".safetensors":
            return _of_safetensors(path)
    raise UserError(
        f"{path} is not a file of directions; expected .safetensors, .gguf, .pt, or the directory of an adapter"
    )


def _direction(name: str, vector: object, site: str, layer: int, **provenance: object) -> Iterator[Direction]:
    """Yield a vector as a direction with a length; nothing if it is zero."""
    wide = np.asarray(vector, dtype=np.float64)
    if wide.ndim != 1 or not np.isfinite(wide).all():
        raise UserError(f"{name}: expected a vector of finite numbers, got shape {wide.shape}")
    if length := float(np.linalg.norm(wide)):
        unit = (wide / length).astype(np.float32)
        yield Direction(name, unit, Locus(site, layer, EVERY_TOKEN), length=length, provenance=provenance)


def _of_gguf(path: Path) -> Iterator[Direction]:
    import gguf

    try:
        file = gguf.GGUFReader(path)
    except Exception as error:  # gguf raises classes of its own
        raise UserError(f"{path} cannot be read as a GGUF file: {in_one_line(error)}") from None
    fields = {key: held.contents() for key, held in file.fields.items() if not key.startswith("tokenizer")}
    if (architecture := fields.get("general.architecture")) != ARCHITECTURE:
        raise UserError(f"{path} is a GGUF file of {architecture!r}; expected a control vector ({ARCHITECTURE!r})")
    hint = str(fields.get(f"{ARCHITECTURE}.model_hint", ""))
    tensors = {tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in file.tensors}
    yield from _numbered(path, tensors, {"made_with": "GGUF control vector", "model_hint": hint})


def _of_safetensors(path: Path) -> Iterator[Direction]:
    with safe_open(path, framework="numpy") as file:
        metadata, keys = file.metadata() or {}, list(file.keys())
        if not all(TENSOR.fullmatch(key) for key in keys):
            yield from own_directions(path).values()
            return
        tensors = {key: file.get_tensor(key) for key in keys}
    yield from _numbered(path, tensors, {"made_with": "control vector", **metadata})


def _numbered(path: Path, tensors: Mapping[str, np.ndarray], provenance: Provenance) -> Iterator[Direction]:
    if strange := [name for name in tensors if not TENSOR.fullmatch(name)]:
        raise UserError(f"{path}: a control vector's tensors are named direction.N; got {strange[0]!r}")
    layers = {int(name.rpartition(".")[2]): tensor for name, tensor in tensors.items()}
    for layer in sorted(layers):
        yield from _direction(f"{path.stem}_{layer}", layers[layer], "resid_post", layer, **provenance)


@dataclass(frozen=True)
class _SteeringVector:
    """Takes the place of steering_vectors' class of the same fields, so that the library is not needed."""

    layer_activations: dict[int, Tensor] = field(default_factory=dict)
    layer_type: str = "decoder_block"


def _of_torch(path: Path, layer: int | None) -> Iterator[Direction]:
    import torch

    allowed = [(_SteeringVector, "steering_vectors.steering_vector.SteeringVector")]
    try:
        with torch.serialization.safe_globals(allowed):
            held = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many classes for what it cannot or will not read
        raise UserError(
            f"{path} is not opened, because it holds more than tensors or is damaged ({in_one_line(error)}); save the "
            "tensors alone, such as torch.save(vector.layer_activations, FILE)"
        ) from None
    if isinstance(held, dict):
        held = _SteeringVector(held)
    if isinstance(held, _SteeringVector):
        yield from _of_layers(path, held)
    elif isinstance(held, torch.Tensor) and held.ndim == 3:
        yield from _of_mean_diffs(path, held.detach().double().numpy())
    elif isinstance(held, torch.Tensor) and held.ndim == 1:
        token, layer = _chosen_at(path, layer)
        made = {"made_with": "refusal-direction", "read_at_token": token}
        yield from _direction(path.stem, held.detach().double().numpy(), "resid_pre", layer, **made)
    else:
        shape = tuple(held.shape) if isinstance(held, torch.Tensor) else type(held).__name__
        raise UserError(
            f"{path} holds {shape}; expected a tensor by layer (steering-vectors), (tokens, layers, d_model) "
            "(refusal-direction's mean_diffs.pt) or (d_model,) (its direction.pt)"
        )


def _of_layers(path: Path, held: _SteeringVector) -> Iterator[Direction]:
    if held.layer_type != "decoder_block":
        raise UserError(
            f"{path} is a steering vector of {held.layer_type!r}; only 'decoder_block' is added to the residual stream"
        )
    for layer, vector in held.layer_activations.items():
        if type(layer) is not int or layer < 0 or not hasattr(vector, "double"):
            raise UserError(f"{path}: expected a tensor by layer, numbered from 0; got {layer!r}")
    for layer, vector in sorted(held.layer_activations.items()):
        made = {"made_with": "steering-vectors"}
        yield from _direction(f"{path.stem}_{layer}", vector.detach().double().numpy(), "resid_post", layer, **made)


def _of_mean_diffs(path: Path, means: Float[np.ndarray, "tokens layers d_model"]) -> Iterator[Direction]:
    lengths = np.linalg.norm(means, axis=-1)
    least = VANISHED * np.nanmax(lengths, initial=0)
    for layer in range(means.shape[1]):
        for token in range(-len(means), 0):  # counted from the prompt's end
            if not lengths[token, layer] <= least:  # at layer 0 equal tokens differ by rounding alone
                made = {"made_with": "refusal-direction", "read_at_token": token}
                yield from _direction(f"{path.stem}_{layer}_{token}", means[token, layer], "resid_pre", layer, **made)


def _chosen_at(path: Path, layer: int | None) -> tuple[int | None, int]:
    """Return the token and the block of a direction.pt, from its metadata or as given."""
    metadata = path.with_name("direction_metadata.json")
    if layer is None and not metadata.is_file():
        raise UserError(f"{path} does not say its layer and has no {metadata.name} next to it; give --layer N")
    if layer is not None:
        return None, layer
    try:
        chosen = json.loads(metadata.read_text(encoding="utf-8"))
        return int(chosen["pos"]), int(chosen["layer"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{metadata} has no pos and layer ({in_one_line(error)}); give --layer N") from None


def _of_heretic(path: Path) -> Iterator[Direction]:
    """Yield the direction of each block out of an adapter whose change of a weight W is -w v (vᵀ W)."""
    remedy = "heretic keeps its directions apart from the weights only with row_normalization = none"
    columns: dict[int, list[Vector]] = {}
    with safe_open(path, framework="pt") as file:
        for key in file.keys():  # noqa: SIM118  # a safetensors file is no mapping
            if match := LORA_B.search(key):
                tensor = file.get_tensor(key).double().numpy()
                if tensor.ndim != 2 or tensor.shape[1] != 1:
                    raise UserError(f"{path} is of rank {tensor.shape[-1]}, which holds no single direction; {remedy}")
                if norm := np.linalg.norm(tensor):
                    columns.setdefault(int(match[1]), []).append(-tensor[:, 0] / norm)
    cosines = [float(first @ other) for first, *others in columns.values() for other in others]
    if columns and (not cosines or min(cosines) < PARALLEL):
        raise UserError(f"{path} does not show one direction in all weights of a block; {remedy}")
    for layer in sorted(columns):
        yield from _direction(f"heretic_{layer}", columns[layer][0], "resid_post", layer, made_with="heretic")


# -- writing -----------------------------------------------------------------------------------------------------------


def named(directions: Mapping[str, Direction], patterns: Sequence[str], source: object) -> list[Direction]:
    """Return the directions that names or patterns such as `happy_*` choose; without one the only one.

    `normative` stands for `normative_write`, with which a run steers.

    Raises:
        UserError: none is chosen, or there are several and no name; lists the names.
    """
    names = ", ".join(list(directions)[:8]) + (", …" if len(directions) > 8 else "")
    if not patterns and len(directions) > 1:
        raise UserError(f"{source} has {len(directions)} directions; choose by --direction: {names}")
    chosen: dict[str, Direction] = {} if patterns else dict(directions)
    for pattern in patterns:
        wanted = pattern if pattern in directions else f"{pattern}_write"
        matching = [wanted] if wanted in directions else [name for name in directions if fnmatchcase(name, pattern)]
        if not matching:
            raise UserError(f"{source} has no direction {pattern!r}; it has {names}")
        chosen |= {name: directions[name] for name in matching}
    return list(chosen.values())


def added_vectors(
    directions: Iterable[Direction], scale: float = 1.0, layers: Sequence[int] | None = None
) -> dict[int, Vector]:
    """Return what is added to the output of each block: `scale` times the gap times the unit vector, summed.

    Args:
        layers: the blocks to whose output each direction is added; its own where none are given.

    Raises:
        UserError: a direction is of a place that is no block's output.
    """
    vectors: dict[int, Vector] = {}
    for direction in directions:
        added = scale * direction.gap * direction.vector.astype(np.float64)
        for layer in layers or [_block(direction)]:
            vectors[layer] = vectors.get(layer, np.zeros_like(added)) + added
    return {layer: vectors[layer].astype(np.float32) for layer in sorted(vectors)}


def _block(direction: Direction) -> int:
    """Return the block whose output a direction's place is; the input of a block is the output of the one before."""
    locus = direction.locus
    block = {"resid_post": locus.layer, "resid_pre": locus.layer - 1}.get(locus.site, -1)
    if block < 0:
        raise UserError(
            f"the direction {direction.name!r} is of {locus.site} of block {locus.layer}, which is no block's output; "
            "name the blocks to whose output it is added: --layer N"
        )
    return block


def save_control_vector(vectors: Mapping[int, Vector], path: Path, model_hint: str) -> None:
    """Write float32 tensors `direction.N`, to be added to the output of block N, to a .gguf or .safetensors file."""
    tensors = {f"direction.{layer}": np.ascontiguousarray(vector) for layer, vector in vectors.items()}
    match path.suffix:
        case ".safetensors":
            with atomic_path(path) as partial:
                partial.write_bytes(save(tensors, metadata={"model_hint": model_hint}))
        case ".gguf":
            if 0 in vectors:
                raise UserError("llama.cpp adds nothing to the output of block 0; choose a later block by --layer N")
            with atomic_path(path) as partial:
                _write_gguf(tensors, partial, model_hint)
        case _:
            raise UserError(f"--out {path}: give a name that ends in .gguf or .safetensors")


def _write_gguf(tensors: Mapping[str, Vector], path: Path, model_hint: str) -> None:
    import gguf

    writer = gguf.GGUFWriter(path, ARCHITECTURE)
    writer.add_string(f"{ARCHITECTURE}.model_hint", model_hint)
    writer.add_uint32(f"{ARCHITECTURE}.layer_count", len(tensors))
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
