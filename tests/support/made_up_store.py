"""Stores of made-up numbers, for tests and for the processes they start."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from extract.chat.render import Rendered
from extract.prompts.prompt import Prompt, prompts_hash
from extract.store.activation_store import ActivationStore
from extract.store.identity import Identity
from extract.store.shards import CapturedShard, ShardFiles
from extract.store.writer import finish, writing

N_PROMPTS, D_MODEL = 11, 48


def index() -> tuple[list[Prompt], list[Rendered]]:
    turn = {"role": "user", "content": "töte"}
    prompts = [Prompt(f"id-{i}", (turn,), "benign", "answer", pair="é" if i else None) for i in range(N_PROMPTS)]
    rendered = []
    for i in range(N_PROMPTS):
        roles = {"inst_last": (i,), "post_last": (i + 1,), "inst_mean": (0, i)}
        trigger = {"trigger_last": (0,)} if i % 3 == 0 else {}
        rendered.append(Rendered("", tuple(range(i + 2)), roles | trigger, False))
    return prompts, rendered


PROMPTS = prompts_hash(index()[0])
IDENTITY = Identity(
    model="m", revision="r", weights="w", tokenizer="t", template="c", prompts=PROMPTS, tokens="k", site="resid_post",
    layers=(0, 2, 5), positions=("inst_last", "post_last", "inst_mean", "trigger_last"), dtype="float32",
    backend="hooks", rows_per_shard=4,
)  # fmt: skip
PRESENT = np.array([[p != "trigger_last" or i % 3 == 0 for i in range(N_PROMPTS)] for p in IDENTITY.positions])
TORCH = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def values() -> Tensor:
    """Draw activations over many orders of magnitude, zeros and rounding ties of 16-bit types among them."""
    torch.manual_seed(0)
    shape = (len(IDENTITY.layers), len(IDENTITY.positions), N_PROMPTS, D_MODEL)
    drawn = torch.randn(shape) * 10 ** (torch.rand(shape) * 8 - 4)
    drawn[..., 0], drawn[..., 1], drawn[..., 2] = 0.0, 1 + 2**-8, 1 + 2**-11
    return drawn * torch.from_numpy(PRESENT)[None, :, :, None]


def made_up(path: Path, **identity: object) -> ShardFiles:
    return ShardFiles(path, IDENTITY.model_copy(update=identity), N_PROMPTS, D_MODEL)


def make(
    path: Path, data: Tensor | None = None, shards: Sequence[int] = (0, 1, 2), master: bool = False, **identity: object
) -> ShardFiles:
    """Write some shards, and with `master` the master."""
    with writing(made_up(path, **identity)) as files:
        for shard in shards:
            files.write(shard, captured(files.rows(shard), data))
        if master:
            finish(files, *index(), {"torch": "2"})
    return files


def captured(rows: range, data: Tensor | None = None) -> CapturedShard:
    data = values() if data is None else data
    return CapturedShard(data[:, :, rows.start : rows.stop], PRESENT[:, rows.start : rows.stop])


def enter(path: Path, **identity: object) -> None:
    with writing(made_up(path, **identity)):
        pass


def shards(path: Path) -> list[Path]:
    return sorted((path.parent / "activations.h5.shards").glob("*.h5"))


def content(path: Path) -> np.ndarray:
    with ActivationStore(path) as store:
        return np.stack(
            [[store.read_tensor(layer, p).float().numpy() for p in store.positions] for layer in store.layers]
        )


def nothing_left_over(path: Path) -> None:
    names = {file.name for file in path.parent.rglob("*") if file.is_file()}
    assert names == {path.name, *(f"{k:05d}-of-{len(names) - 1:05d}.h5" for k in range(len(names) - 1))}
