"""What workers are given, and what is refused before any work."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.cluster.connection import Resources, WorkersWanted, connected, share
from experiments.cluster.workers import ProcessFacts, refuse_different
from extract.errors import UserError
from refusal.cli.options import with_ray_address, workers_wanted

TWO_GPU_NODES = [{"CPU": 16.0, "GPU": 4.0}, {"CPU": 8.0, "GPU": 2.0}]


@pytest.mark.parametrize(
    ("nodes", "wanted", "expected"),
    [
        ([{"CPU": 2.0}], WorkersWanted(), Resources(1, 2.0, 0.0)),
        ([{"CPU": 2.0}], WorkersWanted(workers=2), Resources(2, 1.0, 0.0)),
        ([{"CPU": 5.0}, {"CPU": 2.0}], WorkersWanted(workers=3), Resources(3, 2.0, 0.0)),
        ([{"CPU": 4.0}, {"CPU": 1.0}], WorkersWanted(workers=2), Resources(2, 2.0, 0.0)),
        (TWO_GPU_NODES, WorkersWanted(), Resources(6, 4.0, 1.0)),
        (TWO_GPU_NODES, WorkersWanted(gpus_per_worker=2), Resources(3, 8.0, 2.0)),
        (TWO_GPU_NODES, WorkersWanted(gpus_per_worker=4), Resources(1, 16.0, 4.0)),
        (TWO_GPU_NODES, WorkersWanted(workers=4, gpus_per_worker=0), Resources(4, 5.0, 0.0)),
        ([{"memory": 1e9}, {"CPU": 4.0, "GPU": 1.0}], WorkersWanted(), Resources(1, 4.0, 1.0)),
    ],
)
def test_workers_share_what_the_nodes_have(
    nodes: list[dict[str, float]], wanted: WorkersWanted, expected: Resources
) -> None:
    assert share(nodes, wanted) == expected


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (WorkersWanted(workers=7), r"7 worker\(s\) of 1 GPU\(s\) each .* the cluster has 6 GPU\(s\) on 2 node\(s\)"),
        (WorkersWanted(workers=2, gpus_per_worker=4), r"2 worker\(s\) of 4 GPU\(s\)"),
        (WorkersWanted(workers=25, gpus_per_worker=0), r"25 workers were asked for, and the cluster has 24 CPU\(s\)"),
        (WorkersWanted(gpus_per_worker=8), r"8 GPU\(s\) each"),
    ],
)
def test_more_than_there_is_is_refused(wanted: WorkersWanted, told: str) -> None:
    with pytest.raises(UserError, match=told):
        share(TWO_GPU_NODES, wanted)


def facts(**changed: str) -> ProcessFacts:
    return ProcessFacts("a", 1, {"torch": "2.13.0", "weights": "abc"} | changed)


@pytest.mark.parametrize("field", ["torch", "weights"])
def test_workers_that_would_compute_other_numbers_are_refused_by_the_field(field: str) -> None:
    refuse_different(facts(), [facts(), facts()])
    with pytest.raises(UserError, match=rf"workers differ in {field}: a has other, a has "):
        refuse_different(facts(**{field: "other"}), [facts()])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["run", "C", "--ray"], ["run", "C", "--ray=auto"]),
        (["run", "--ray", "C"], ["run", "--ray=auto", "C"]),
        (["run", "--ray", "auto", "C"], ["run", "--ray", "auto", "C"]),
        (["run", "C", "--ray", "10.0.0.1:6379"], ["run", "C", "--ray", "10.0.0.1:6379"]),
        (["run", "C", "--ray", "ray://head:10001", "-q"], ["run", "C", "--ray", "ray://head:10001", "-q"]),
        (["run", "C", "--ray", "--workers", "2"], ["run", "C", "--ray=auto", "--workers", "2"]),
        (["run", "C", "--ray=head:1"], ["run", "C", "--ray=head:1"]),
    ],
)
def test_an_address_may_follow_the_option(given: list[str], expected: list[str]) -> None:
    assert with_ray_address(given) == expected


def test_options_of_workers_need_ray() -> None:
    assert workers_wanted(None, None, None) is None
    assert workers_wanted("auto", 2, None) == WorkersWanted("auto", 2, None)
    with pytest.raises(UserError, match="give --ray, too"):
        workers_wanted(None, 2, None)


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9", "nonsense"])
def test_an_address_that_nobody_answers_is_one_line(address: str) -> None:
    told = rf"no Ray cluster answers at {address} .* start one with: ray start --head"
    with pytest.raises(UserError, match=told), connected(address):
        pass


def test_without_ray_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # an import then fails
    code, _, err = cli("extract", "configs/quickstart.yaml", "--ray", "--out", str(tmp_path / "r"))
    assert code == 2
    assert (
        err.strip()
        .splitlines()[-1]
        .endswith("the extra cluster of this package: pip install 'refusal-probes[cluster]'")
    )
    assert not (tmp_path / "r").exists()
