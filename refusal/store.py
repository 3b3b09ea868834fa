"""Activations on disk for notebooks: extract prompts to an HDF5 store, or open one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from extract.capture_spec import CaptureSpec
from extract.chat.render import render
from extract.errors import UserError
from extract.extraction import extract as extract_to
from extract.model.chat_model import ChatModel
from extract.model.edit import site as site_of
from extract.progress import Reporter
from extract.run_directory import file_of_run
from extract.store.activation_store import ActivationStore
from refusal.prompts import Asked, as_layers, as_positions, as_prompts

__all__ = ["ActivationStore", "extract", "open_store"]


def extract(
    model: ChatModel,
    prompts: Iterable[Asked],
    path: str | os.PathLike[str],
    *,
    positions: str | Iterable[str] | None = None,
    layers: int | Iterable[int] | None = None,
    site: str = "resid_post",
    response_tokens: int = 0,
    thought_tokens: int = 0,
    progress: bool = True,
) -> ActivationStore:
    """Write the residual stream of prompts to an HDF5 store and open it; a store half written is finished.

    Args:
        positions: as of `Model.activations`; None for all.
        layers: likewise.
        site: likewise.
        response_tokens: with k > 0 the model also answers, and `response_1` … `response_k` are captured.
        thought_tokens: with n > 0, `think_first` and `think_last` too, the first and the last token of its thought
            where that ends within n tokens.

    Raises:
        UserError: the file is a store of something else, an activation is not finite, the disk is full, or the call is
            inside a block that steers.

    >>> import refusal, tempfile
    >>> model = refusal.load_model("organisms/zoo/two-knobs")
    >>> prompts = refusal.load_prompts("organisms/zoo/two-knobs/prompts.jsonl")[:8]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with refusal.extract(model, prompts, f"{folder}/activations.h5", positions=["post_last"]) as store:
    ...         store.read(3, "post_last").shape
    (8, 128)
    """
    if model.edits:
        raise UserError(
            "a store holds the activations of the model as it is: leave the block that steers, or use Model.activations"
        )
    asked, reporter, file = as_prompts(prompts), Reporter(quiet=not progress), Path(path)
    rendered = [render(model.tokenizer, prompt) for prompt in asked]
    if not file.parent.is_dir():
        raise UserError(f"there is no folder {file.parent}; make it first")
    spec = CaptureSpec(
        site=site_of(site),
        layers=as_layers(layers),
        positions=as_positions(positions),
        response_tokens=response_tokens,
        thought_tokens=thought_tokens,
    )
    with reporter.counted("extracting", resumed=True) as progress_bar:
        extract_to(model, asked, rendered, file, spec, progress=progress_bar, say=reporter.say)
    return ActivationStore(file)


def open_store(path: str | os.PathLike[str]) -> ActivationStore:
    """Open the store that `extract` or `refusal extract` wrote: an `activations.h5`, or a run's directory.

    Raises:
        UserError: there is no such file, or it is damaged or no store.

    >>> import refusal, tempfile
    >>> model = refusal.load_model("organisms/zoo/two-knobs")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     refusal.extract(model, ["who is anna novak?"], f"{folder}/activations.h5", layers=[3]).close()
    ...     with refusal.open_store(f"{folder}/activations.h5") as store:
    ...         len(store), store.site
    (1, 'resid_post')
    """
    return ActivationStore(file_of_run(path, "activations.h5"))
