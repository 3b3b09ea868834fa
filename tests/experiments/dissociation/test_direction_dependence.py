"""Whether two write directions are independent: planted ones, orthogonal and oblique."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.dissociation.applicability import DissociationSetup
from experiments.dissociation.measure import dependence
from experiments.dissociation.results import Dependence, Dissociation
from experiments.dissociation.text import dependence_lines
from experiments.probing.results import Geometry, Independence, ProbeResults, StreamChange
from experiments.run.behaviour import Behaviour
from experiments.run.config import RunConfig
from experiments.run.corpus import Corpus
from extract.prompts.prompt import Prompt
from probes.direction import Direction, Locus
from probes.statistics.intervals import Estimate

LOCUS = Locus("resid_post", 1, "post_last")
N, D = 240, 24


def run(tmp_path: Path, cosine: float, p_null: float, **dissociate: object) -> Dependence | None:
    """Measure the dependence of two directions planted at a given cosine; every other prompt is declined."""
    (tmp_path / "stages").mkdir(exist_ok=True)
    labels = np.repeat(["harmful", "uncertain"], N // 2)
    prompts = tuple(Prompt(str(i), ({"role": "user", "content": str(i)},), str(label), "answer")
                    for i, label in enumerate(labels))  # fmt: skip
    corpus = Corpus(prompts, np.arange(N), np.full(N, "train", dtype=object))
    declined = np.arange(N) % 2 == 0
    actions = np.where(declined, np.where(labels == "harmful", "refuse", "abstain"), "answer").astype(object)
    u, v = np.eye(D)[0], cosine * np.eye(D)[0] + np.sqrt(1 - cosine**2) * np.eye(D)[1]
    X = np.random.default_rng(0).standard_normal((N, D))
    X += 6 * np.where((labels == "harmful")[:, None], u, v) * declined[:, None]
    change = StreamChange(change=Estimate(0.1, 0.0, 0.2), null_95th_percentile=0.1, p_null=p_null)
    moved = Independence(ablated=LOCUS, watched=LOCUS, n=9, n_null=49, cosine=change, projection=change)
    geometry = Geometry(independence={"ablate_normative_watch_epistemic": moved})
    ProbeResults(geometry=geometry).write(tmp_path / "stages/probe.json")
    given = {"name": "x", "model": {"name": "m"}, "prompts": {"path": "p"}, "dissociate": dissociate}
    context = SimpleNamespace(
        behaviour=Behaviour(corpus, actions, np.zeros(N, dtype=bool)), corpus=corpus, config=RunConfig(**given),
        store=SimpleNamespace(read=lambda layer, position: X), file=lambda name: tmp_path / name,
    )  # fmt: skip
    directions = {kind: Direction(kind, u, LOCUS, 1.0, -1.0) for kind in ("normative", "epistemic")}
    return dependence(context, DissociationSetup(directions, {}, {}))


@pytest.mark.parametrize("cosine", [0.0, 0.6, -0.6])
def test_the_cosine_is_that_planted_within_its_interval(cosine, tmp_path) -> None:
    found = run(tmp_path, cosine, p_null=0.5)
    low, high = found.cosine_ci
    assert low - 0.05 <= cosine <= high + 0.05
    assert 0.02 < high - low < 0.3
    assert found.oblique is found.dependent is (cosine != 0)


@pytest.mark.parametrize(
    ("given", "p_null", "dependent", "end"),
    [
        ({}, 0.02, True, "more than permuted-label directions do; so they are not independent."),
        ({}, 0.5, False, "no change of the stream along one by ablating the other is shown."),  # not: "independent"
        ({"directions": "theirs.safetensors"}, 0.02, False, "along the other was not measured."),  # the run's own are
    ],
)
def test_orthogonal_directions_are_dependent_if_ablating_one_moves_the_other(
    given, p_null, dependent, end, tmp_path
) -> None:
    found = run(tmp_path, 0.0, p_null, **given)
    assert found.dependent is dependent
    assert found.moved_under_ablation == (("ablate_normative_watch_epistemic",) if dependent else ())
    (line,) = dependence_lines(Dissociation.model_construct(dependence=found))
    assert line.endswith(end)
