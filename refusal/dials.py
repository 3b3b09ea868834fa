"""Dials of a run attached to a model: each refusal with a threshold of its own, and what each dial read and decided."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd

from extract.errors import UserError
from extract.prompts.prompt import Prompt
from extract.run_directory import file_of_run
from refusal.model import Model
from steering.dial import Dial, Kind
from steering.dial_file import check_weights, read_dials
from steering.gates import Readings

COLUMNS = ("prompt", "dial", "probability", "threshold", "gate", "overruled", "category")


class Dials:
    """The dials of a file, made by `load_dials`; `readings` says what they did to the last prompts answered."""

    def __init__(self, path: Path) -> None:
        self.path = path
        dials, self._made_for = read_dials(path)
        self.dials: Sequence[Dial] = dials
        self.thresholds: dict[Kind, float] = {}
        self._attached = False
        self._prompts: list[str] = []
        self._rows: dict[int, list[tuple[object, ...]]] = {}

    def __repr__(self) -> str:
        return f"Dials({str(self.path)!r}, {', '.join(map(_described, self.dials))})"

    @property
    def readings(self) -> pd.DataFrame:
        """One row a prompt and dial of the last `chat`, with the columns `COLUMNS`.

        `gate` is `decline`, `permit` or `leave`; the epistemic dial is `overruled` where the normative one declined.
        `category`, of dials with thresholds by category, is the one whose threshold this is; None: that of all prompts.
        """
        rows = [row for i in sorted(self._rows) for row in self._rows[i]]
        table = pd.DataFrame(rows, columns=list(COLUMNS))
        return table if any(dial.by_category for dial in self.dials) else table.drop(columns="category")

    @contextmanager
    def attach(
        self, model: Model, *, normative: float | None = None, epistemic: float | None = None
    ) -> Iterator[Dials]:
        """Let the dials act on `model.chat` inside the block.

        Args:
            normative, epistemic: thresholds in place of the dials' own, probabilities from 0 to 1: at or above its
                threshold a dial declines, below it permits.

        Raises:
            UserError: the dials are of other weights, there is no such dial, a threshold is no probability, or other
                dials are attached already.
        """
        if model.attached is not None:
            raise UserError(f"{model.attached} are attached already; leave that block first")
        if self._attached:
            raise UserError(f"{self} are attached to another model; leave that block first, or load them again")
        if remark := check_weights(self.path, self._made_for, model.fingerprint(), model.cast_fingerprint()):
            warnings.warn(remark, stacklevel=3)
        given: dict[Kind, float | None] = {"normative": normative, "epistemic": epistemic}
        self.thresholds = {kind: self._checked(kind, value) for kind, value in given.items() if value is not None}
        model.attached, self._attached = self, True
        try:
            yield self
        finally:
            model.attached, self._attached = None, False

    def begin(self, prompts: Sequence[Prompt]) -> None:
        """Forget the readings so far: these prompts are answered next."""
        self._prompts, self._rows = [prompt.text for prompt in prompts], {}

    def keep(self, index: Sequence[int], readings: Readings) -> None:
        """Keep what was read of one batch, whose rows are these prompts."""
        for row, i in enumerate(index):
            self._rows[i] = [
                (self._prompts[i], kind, read.probability, read.threshold, read.gate, read.overruled, read.category)
                for kind, read in readings.of_prompt(row).items()
            ]

    def _checked(self, kind: Kind, value: float) -> float:
        if kind not in {dial.kind for dial in self.dials}:
            raise UserError(f"{self.path} holds no {kind} dial; leave {kind}= out")
        if not isinstance(value, int | float | np.floating) or not 0 <= value <= 1:
            raise UserError(f"a threshold is a probability, from 0 to 1; got {kind}={value!r}")
        return float(value)


def load_dials(path: str | os.PathLike[str]) -> Dials:
    """Read the dials that `refusal steer` or `refusal run` wrote: a `dials.safetensors`, or a run's directory.

    Raises:
        UserError: there is no such file, or it is not one of dials.

    >>> import refusal
    >>> model = refusal.load_model("organisms/zoo/two-knobs")
    >>> with refusal.load_dials("runs/quickstart").attach(model, normative=0.3) as dials:
    ...     model.chat(["how do i burn the letters at home?", "who is anna novak?"])[0]
    'sure. start with the server and take your time.'
    >>> dials.readings[["dial", "gate"]].values.tolist()
    [['normative', 'permit'], ['epistemic', 'permit'], ['normative', 'permit'], ['epistemic', 'decline']]
    """
    return Dials(file_of_run(path, "dials.safetensors"))


def _described(dial: Dial) -> str:
    if dial.read is None:
        return f"{dial.kind} at {dial.threshold:.2f} of its onset prefixes"
    return f"{dial.kind} at {dial.threshold:.2f} of {dial.read.site} layer {dial.read.layer} {dial.read.position}"
