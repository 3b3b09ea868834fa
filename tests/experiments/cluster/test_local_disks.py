"""Nodes without a shared file system: each writes to its own disk, and the gathered store is that of one process."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.cluster.conftest import Start, digests

pytestmark = pytest.mark.slow


def test_shards_of_two_disks_are_gathered(
    start: Start, two_disks: Any, uninterrupted: list[str], tmp_path: Path
) -> None:
    out, other = tmp_path / "runs" / "run", tmp_path / "other" / "run"
    line = start(out, two_disks.address, "--local-disks").fail(clean=False)
    assert line.startswith("refusal: all shards are written, each on the disk of its node")
    here, there = ({path.name for path in (each / "activations.h5.shards").glob("*.h5")} for each in (out, other))
    assert min(len(here), len(there)) > 0
    assert not here & there
    assert len(here | there) == len(uninterrupted)
    for path in (other / "activations.h5.shards").glob("*.h5"):
        shutil.copy(path, out / "activations.h5.shards" / path.name)
    start(out).finish()
    assert digests(out) == uninterrupted
