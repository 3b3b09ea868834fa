"""What may be shared: dials, directions, and LoRA adapters that teach declining. Everything else is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from safetensors import SafetensorError, safe_open

from extract.errors import UserError, in_one_line
from extract.model.adapter import BASE, CONFIG
from extract.model.source import PREFIX
from extract.shipped import ROOT
from organisms.teaching.grade import TeachGrade
from probes.direction import Direction
from refusal.cli.target import HUB_ID
from steering.dial import Dial
from steering.dial_file import read_dials
from steering.direction_file import load_directions

Part = Literal["dials", "directions", "adapter"]
DIALS, DIRECTIONS, WEIGHTS, GRADE = (
    "dials.safetensors",
    "directions.safetensors",
    "adapter_model.safetensors",
    "grade.json",
)
ADAPTER = (CONFIG, WEIGHTS, BASE, GRADE)  # what `refusal organism teach` writes and a pull needs
SPEC, CARD = "spec.yaml", "README.md"
KNOWN = (DIALS, DIRECTIONS, *ADAPTER, SPEC, CARD)  # files that are pushed and pulled
WHOLE_MODEL = ("config.json", "*.gguf", "model*.safetensors", "pytorch_model*.bin", "consolidated*")
LORA = ("lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B")
ONLY = "only dials, directions and adapters that teach declining are shared"


@dataclass(frozen=True)
class Shared:
    """Checked contents of a directory: paths by part, and what they hold."""

    paths: Mapping[str, Path]  # file name in the repository -> file
    dials: tuple[Dial, ...] = ()
    directions: tuple[Direction, ...] = ()
    grade: TeachGrade | None = None  # of an adapter
    lora: Mapping[str, int] = field(default_factory=dict)  # rank and alpha of an adapter
    base: str | None = None  # the model they are for, where the files name it
    weights: str | None = None  # its fingerprint

    @property
    def parts(self) -> list[Part]:
        """What there is."""
        held: dict[Part, bool] = {
            "dials": bool(self.dials),
            "directions": bool(self.directions),
            "adapter": self.grade is not None,
        }
        return [part for part, here in held.items() if here]


def shared_in(path: Path) -> Shared:
    """Return what a directory, or one safetensors file of dials or directions, holds to share; checked.

    Raises:
        UserError: it holds a whole model, nothing to share, a damaged file, or parts for different weights.
    """
    if path.is_file():
        return _of_file(path)
    if not path.is_dir():
        raise UserError(f"nothing to share: {path} is neither a directory nor a file")
    whole = next((file for pattern in WHOLE_MODEL for file in sorted(path.glob(pattern))), None)
    if whole is not None:
        raise UserError(f"{path} holds a whole model ({whole.name}); {ONLY}")
    if (path / CONFIG).is_file():
        return _adapter(path)
    files = {name: path / name for name in (DIALS, DIRECTIONS) if (path / name).is_file()}
    if not files:
        raise UserError(f"nothing to share in {path}: it has no {DIALS}, no {DIRECTIONS} and no {CONFIG}; {ONLY}")
    return _together(path, [_of_file(one) for one in files.values()])


def known_elsewhere(base: str) -> bool:
    """Return whether a model's name is one that other machines know: a hub id, package:NAME or a shipped organism."""
    if base.startswith(PREFIX):
        return True
    shipped = not Path(base).is_absolute() and (ROOT / base).is_dir()
    return shipped or (HUB_ID.fullmatch(base) is not None and not Path(base).exists())


def _together(folder: Path, parts: list[Shared]) -> Shared:
    weights = {one.weights for one in parts if one.weights}
    if len(weights) > 1:
        raise UserError(f"{folder}: {DIALS} and {DIRECTIONS} are for different weights; give one of the two files")
    return Shared(
        paths={name: path for one in parts for name, path in one.paths.items()},
        dials=tuple(dial for one in parts for dial in one.dials),
        directions=tuple(direction for one in parts for direction in one.directions),
        base=next((one.base for one in parts if one.base), None),
        weights=next(iter(weights), None),
    )


def _of_file(path: Path) -> Shared:
    """Return the dials or the directions of a file; the metadata says which of both it holds."""
    if path.suffix != ".safetensors":
        raise UserError(f"{path} is no safetensors file; {ONLY}")
    try:
        if path.name == DIALS or _has_fingerprint(path):
            dials, made_for = read_dials(path)
            return Shared({DIALS: path}, dials=tuple(dials), weights=made_for.fingerprint)
        directions = tuple(load_directions(path).values())
    except (ValueError, KeyError, TypeError, OSError, SafetensorError) as error:
        raise UserError(f"{path} holds neither dials nor directions: {in_one_line(error)}; {ONLY}") from None
    made = {str(one.provenance.get("weights") or "") for one in directions} - {""}
    if len(made) > 1:
        raise UserError(f"{path}: its directions are for different weights; save those of one model")
    names = sorted({str(one.provenance.get("model") or "") for one in directions} - {""})
    return Shared(
        {DIRECTIONS: path}, directions=directions, base=names[0] if names else None, weights=next(iter(made), None)
    )


def _has_fingerprint(path: Path) -> bool:
    with safe_open(path, framework="numpy") as file:
        return "fingerprint" in (file.metadata() or {})


def _adapter(folder: Path) -> Shared:
    """Return an adapter that `refusal organism teach` wrote; its grade shows that it declines harmful prompts."""
    if absent := [name for name in ADAPTER if not (folder / name).is_file()]:
        raise UserError(
            f"{folder} is no adapter written by refusal organism teach: it lacks {', '.join(absent)}; {ONLY}"
        )
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        base, lora = (
            str(config["base_model_name_or_path"]),
            {"rank": int(config["r"]), "alpha": int(config["lora_alpha"])},
        )
        weights = str(json.loads((folder / BASE).read_text(encoding="utf-8"))["fingerprint"])
        with safe_open(folder / WEIGHTS, framework="numpy") as file:
            strange = [name for name in file.keys() if not any(part in name for part in LORA)]  # noqa: SIM118
    except (ValueError, KeyError, TypeError, OSError, SafetensorError) as error:
        raise UserError(f"the adapter {folder} cannot be read: {type(error).__name__}: {in_one_line(error)}") from None
    if strange:
        raise UserError(f"{folder / WEIGHTS} holds whole weights beside LoRA matrices ({strange[0]}); {ONLY}")
    grade = TeachGrade.read(folder / GRADE)
    declined = grade.shares.get("harmful_declined")
    if declined is None or declined.value <= 0:
        raise UserError(
            f"the adapter {folder} does not teach declining: its grade shows no harmful prompt declined; {ONLY}"
        )
    names = [*ADAPTER, *([SPEC] if (folder / SPEC).is_file() else [])]
    return Shared({name: folder / name for name in names}, grade=grade, lora=lora, base=base, weights=weights)
