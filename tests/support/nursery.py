"""A process that forks others, each of which runs the real `extract` of a tiny model into a store.

Started with a folder; answers one line of JSON to each of its input: `start STORE stall` forks a process and
says its id, `wait ID` says how it ended. It never runs the model itself, so that its threads are none when it forks. A
process logs each shard it has written; with `stall` N it stops in the midst of its N-th until the file `go` is there.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch

from extract.capture_spec import CaptureSpec
from extract.chat.render import render
from extract.errors import UserError
from extract.extraction import extract
from extract.model.chat_model import ChatModel
from extract.prompts.prompt import Prompt
from extract.store import hdf5
from extract.store.shards import ShardFiles
from tests.support.tiny_model import tiny_llama

SHARDS, ROWS = 30, 3


def build() -> tuple[ChatModel, list[Prompt]]:
    torch.set_num_threads(1)
    words = ("kill", "fix", "the", "process", "at", "home", "who", "is", "anna")
    texts = [" ".join(words[(i * k) % len(words)] for k in range(1, 3 + i % 7)) for i in range(SHARDS * ROWS - 1)]
    return tiny_llama(), [
        Prompt(f"p{i}", ({"role": "user", "content": t},), "benign", "answer") for i, t in enumerate(texts)
    ]


def watch(folder: Path, stall: int) -> None:
    """Log the shards this process writes, and make it stop in the midst of one."""
    written, write, write_locus = 0, ShardFiles.write, hdf5.write_locus

    def logged(files: ShardFiles, shard: int, captured: object) -> None:
        nonlocal written
        written += 1
        write(files, shard, captured)  # type: ignore[arg-type]
        with (folder / "log").open("a") as log:
            log.write(f"{os.getpid()} {shard}\n")

    def halting(*arguments: object) -> None:
        write_locus(*arguments)  # type: ignore[arg-type]
        if written == stall:
            (folder / f"stalled-{os.getpid()}").touch()
            while not (folder / "go").exists():
                time.sleep(0.01)

    ShardFiles.write = logged  # type: ignore[method-assign]
    hdf5.write_locus = halting


def child(folder: Path, order: dict, model: ChatModel, prompts: list[Prompt]) -> int:
    watch(folder, order.get("stall", 0))
    rendered = [render(model.tokenizer, prompt) for prompt in prompts]
    path, spec = Path(order["start"]), CaptureSpec(rows_per_shard=ROWS, store_dtype="bfloat16")
    try:
        extract(model, prompts, rendered, path, spec)
    except UserError as error:
        (folder / f"error-{os.getpid()}").write_text(str(error))
        return 2
    return 0


def main(folder: Path) -> None:
    model, prompts = build()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1])), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = child(folder, order, model, prompts)
            finally:
                os._exit(code)
        print(json.dumps(pid), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
