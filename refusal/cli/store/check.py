"""Verify and export stores with a progress bar, for the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import get_args

from extract.errors import UserError
from extract.model.loading import DType, load_model
from extract.model.quiet import quiet_libraries
from extract.progress import Advance, Reporter
from extract.store.export import export
from extract.store.integrity import Verification, verify


def check_store(
    file: Path, model: str | None, revision: str | None, dtype: str, adapter: str | None = None
) -> Verification:
    """Verify a store, also against a model's weights where a model is named.

    Raises:
        UserError: no such store, model or data type.
    """
    if dtype not in get_args(DType):
        raise UserError(f"--dtype is {dtype!r}; expected one of {', '.join(get_args(DType))}")
    if adapter is not None and model is None:
        raise UserError("--adapter needs the model that it belongs to: give --model NAME")
    weights = None
    if model is not None:
        quiet_libraries()
        weights = load_model(model, revision=revision, adapter=adapter, dtype=dtype).fingerprint()  # type: ignore[arg-type]
    with _slices(f"verifying {file.name}") as progress:
        return verify(file, weights=weights, progress=progress)


def export_store(file: Path, to: Path) -> int:
    """Write a flat copy of a store; return its size in bytes."""
    with _slices(f"exporting {file.name}") as progress:
        export(file, to, progress=progress)
    return to.stat().st_size


@contextmanager
def _slices(doing: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar from the first call on, since the first call gives the total."""
    with ExitStack() as stack:
        advance: Advance | None = None
        seen = 0

        def progress(done: int, total: int) -> None:
            nonlocal advance, seen
            advance = advance or stack.enter_context(Reporter().task(doing, total))
            advance(done - seen)
            seen = done

        yield progress
