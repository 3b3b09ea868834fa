"""A worker's error is one line with its node, its log and the prompts; what does not fit together is refused."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from extract.shipped import ROOT
from tests.experiments.cluster.conftest import Start, ray_cluster

pytestmark = pytest.mark.slow


@pytest.fixture
def infinite(tmp_path: Path) -> Path:
    model = tmp_path / "infinite"
    shutil.copytree(ROOT / "organisms/zoo/two-knobs", model)
    weights = load_file(model / "model.safetensors")
    name = next(name for name in weights if name.endswith("mlp.down_proj.weight"))
    weights[name] = weights[name] * 1e38
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    return model


def test_an_error_of_a_shard_names_node_prompts_and_log(
    start: Start, cluster: Any, infinite: Path, tmp_path: Path
) -> None:
    line = start(tmp_path / "run", cluster.address, "--set", f"model.name={infinite}").fail()
    found = re.fullmatch(
        r"refusal: worker on \S+: .*is not finite.* \(prompts of shard \d+: '.+' to '.+'\); log: (\S+)", line
    )
    assert found, line
    assert "Traceback" in Path(found[1]).read_text()


def test_a_store_of_another_run_is_refused(start: Start, cluster: Any, tmp_path: Path) -> None:
    start(tmp_path / "run", None, "--set", "prompts.limit=20").finish()
    before = sorted((tmp_path / "run/activations.h5.shards").iterdir())
    line = start(tmp_path / "run", cluster.address).fail()
    assert re.search(r"was made with another .+; choose another directory with --out, or delete", line)
    assert sorted((tmp_path / "run/activations.h5.shards").iterdir()) == before


@pytest.fixture
def other_versions(tmp_path: Path) -> Iterator[Any]:
    """A cluster whose only node with processors has metadata of another h5py."""
    metadata = tmp_path / "other" / "h5py-9.9.9.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: h5py\nVersion: 9.9.9\n")
    with ray_cluster(0) as made:
        environment = {"PYTHONPATH": str(metadata.parents[1])}
        made.add_node(num_cpus=2, object_store_memory=100 << 20, env_vars=environment)
        yield made


def test_a_node_with_another_version_is_refused_by_the_field(start: Start, other_versions: Any, tmp_path: Path) -> None:
    line = start(tmp_path / "run", other_versions.address).fail()
    assert re.search(r"\S+ has h5py 9\.9\.9, and this process 3\.\S+; all nodes need the same installation", line)


def test_the_manifest_says_who_computed(start: Start, cluster: Any, tmp_path: Path) -> None:
    start(tmp_path / "run", cluster.address, workers=1).finish()
    who = json.loads((tmp_path / "run/manifest.json").read_text())["cluster"]
    threads = int(os.environ.get("OMP_NUM_THREADS", "2"))  # of the cluster's processes; Ray's own choice is the CPUs
    assert (who["workers"], who["threads_per_worker"], who["batches"]) == (1, threads, "as in one process")
    assert len(who["nodes"]) == 1


def test_a_node_without_the_run_directory_is_named(start: Start, two_disks: Any, tmp_path: Path) -> None:
    """The run directory lies on the disk of the command's node alone."""
    line = start(tmp_path / "runs" / "run", two_disks.address).fail()
    assert re.search(r": there is no \S+/runs/run; put the run directory \(--out\) on a file system", line)
