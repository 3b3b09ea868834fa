"""The manifest of a run: versions, device, seeds, and a completion mark for each stage, written when it finishes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.run.run_lock import now
from extract.atomic_write import write_json
from extract.errors import UserError
from extract.keyed_file import file_hash
from extract.store.identity import has_its_shards


@dataclass(frozen=True)
class Manifest:
    """`manifest.json` of one run directory."""

    path: Path

    def read(self) -> dict[str, Any]:
        """Return the manifest, without stages if there is no file; raises UserError if it is damaged."""
        if not self.path.exists():
            return {"stages": {}}
        try:
            return dict(json.loads(self.path.read_text(encoding="utf-8")))
        except ValueError:
            raise UserError(f"{self.path} is damaged; delete it and run again (finished stages run again)") from None

    def is_done(self, stage: str, inputs: str, outputs: Sequence[str]) -> bool:
        """Return whether a stage finished with these inputs and its output files are there, unchanged since."""
        mark = self.read()["stages"].get(stage)
        if mark is None or mark["inputs"] != inputs or self.outputs(outputs) != mark["outputs"]:
            return False
        return all(has_its_shards(self.path.parent / name) for name in outputs if name.endswith(".h5"))

    def outputs(self, names: Sequence[str]) -> dict[str, str | None]:
        return {name: file_hash(self.path.parent / name) for name in names}

    def mark(self, stage: str, inputs: str, outputs: dict[str, str | None], seconds: float) -> None:
        """Record that a stage has finished with these outputs, from `outputs`."""
        record = self.read()
        record["stages"][stage] = {
            "inputs": inputs,
            "outputs": outputs,
            "seconds": round(seconds, 2),
            "finished": now(),
        }
        write_json(self.path, record)

    def describe(self, **facts: Any) -> None:
        write_json(self.path, self.read() | facts)
