"""Cells on Ray workers, with a stand-in for Ray: a lost cluster, and a cell that takes every worker along."""

from experiments.cluster.connection import Cluster, Resources
from experiments.sweep.grid import Ending
from experiments.sweep.run import CellCommand, _on_ray
from tests.support.fake_ray import Ray


def test_a_lost_cluster_is_started_again_and_a_cell_that_kills_its_workers_fails_alone() -> None:
    cells = [CellCommand(name, (), "", "") for name in "abcd"]
    script = {cells[0]: ["dies"] * 9, cells[2]: ["dies", "loses the cluster"]}
    ray, said = Ray(script, lambda cell: Ending(cell=cell.name, exit_code=0, line="", node="here")), list[str]()
    found = list(_on_ray(cells, Cluster(ray, None, True), Resources(2, 1.0, 0.0), said.append))
    assert sorted((ended.cell, ended.exit_code, ended.line) for ended in found) == [
        ("a", 1, "the actor died"), ("b", 0, ""), ("c", 0, ""), ("d", 0, "")
    ]  # fmt: skip
    assert ray.starts == 1
    assert all(actor.dead for actor in ray.actors[-2:])
