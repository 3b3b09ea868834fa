"""A saved direction of an estimator is readable with safetensors alone, without this project's packages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from probes.direction import Locus
from probes.estimators import CentroidCosine, DifferenceInMeans, Inlp, LeaceEraser, LogisticProbe, MassMean
from steering.direction_file import load_directions, save_directions

READER = """
import json, sys
for package in ("probes", "extract", "steering", "experiments", "organisms"):
    sys.modules[package] = None  # an import of it raises ImportError
try:
    import probes.direction
    raise SystemExit("the control failed: our package can be imported")
except ImportError:
    pass
from safetensors import safe_open
with safe_open(sys.argv[1], framework="numpy") as file:
    print(json.dumps({name: {"vector": file.get_tensor(name).tolist(), **json.loads(record)}
                      for name, record in file.metadata().items()}))
"""


def test_a_saved_direction_needs_nothing_of_ours(tmp_path: Path, plant: Any) -> None:
    X, y = plant(12, gap=3.0).draw(60, seed=1)
    labels = np.where(y, "harmful", "benign")
    estimators = [DifferenceInMeans(), MassMean("oas"), LogisticProbe(class_weight={"benign": 1.0, "harmful": 2.0}),
                  CentroidCosine(), LeaceEraser(), Inlp(2)]  # fmt: skip
    locus = Locus("resid_post", 7, "inst_last")
    saved = [
        e.fit(X, labels).direction(type(e).__name__, locus, {"model": "m"}, positive="harmful") for e in estimators
    ]
    path = tmp_path / "directions.safetensors"
    save_directions(saved, path)
    done = subprocess.run(
        [sys.executable, "-I", "-c", READER, str(path)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    read, loaded = json.loads(done.stdout), load_directions(path)
    assert set(read) == set(loaded) == {type(e).__name__ for e in estimators}
    for direction in saved:
        record = read[direction.name]
        assert np.array_equal(np.float32(record["vector"]), direction.vector)
        assert record["locus"] == {"site": "resid_post", "layer": 7, "position": "inst_last"}
        assert record["provenance"] == loaded[direction.name].provenance == direction.provenance
        assert record["provenance"]["positive_class"] == "harmful"
        along = X @ np.array(record["vector"])
        assert record["mean_positive"] == pytest.approx(along[y].mean(), abs=1e-6)
        assert record["mean_negative"] == pytest.approx(along[~y].mean(), abs=1e-6)
