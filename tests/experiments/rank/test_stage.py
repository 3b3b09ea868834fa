"""The rank on running models whose mechanism is known: organisms, and one whose refusal is made redundant."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.grading.cases import thinned
from experiments.dissociation.judge import dissociate
from experiments.dissociation.results import Dissociation
from experiments.pipeline import stages
from experiments.pipeline.graph import hash_inputs, stages_of
from experiments.rank.results import RankEstimate, Ranks
from experiments.responses import loaded_run
from experiments.run.config import RunConfig, load_config
from experiments.run.inputs import RunInputs
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.edit import Edit, Pass
from extract.model.loading import open_model
from extract.model.loading_options import ModelConfig
from extract.progress import Reporter
from extract.shipped import ROOT
from probes.direction import Subspace
from steering.direction_file import load_directions

ZOO = ROOT / "organisms" / "zoo"
LIGHT = ("extract.positions=[post_last]", "dissociate.n_selection=12", "dissociate.deepest=0.7",
         "generate.max_new_tokens=12")  # fmt: skip


def configured(*overrides: str) -> RunConfig:
    return load_config(Path("configs/quickstart.yaml"), overrides)


def test_it_is_one_a_number_or_auto() -> None:
    assert [configured(*given).dissociate.rank for given in ((), ("dissociate.rank=3",))] == [1, 3]
    for wrong in ("0", "9", "many"):
        with pytest.raises(UserError, match=r"dissociate\.rank"):
            configured(f"dissociate.rank={wrong}")


def test_it_is_searched_where_it_is_asked_for_and_changes_no_other_measurement() -> None:
    auto, margin = "dissociate.rank=auto", "dissociate.margin=0.2"
    plain, auto, margin = (configured(*given) for given in ((), (auto,), (auto, margin)))
    reads = [{stage.name: stage.reads for stage in stages_of(config)}["dissociate"] for config in (plain, auto)]
    assert reads == [("effects", "elicited"), ("effects", "elicited", "rank")]

    def changed(config: RunConfig, other: RunConfig) -> set[str]:
        one, two = (hash_inputs(each, stages_of(each), "source") for each in (config, other))
        return {name for name, value in two.items() if one[name] != value}

    assert changed(plain, auto) == {"rank", "dissociate", "results", "report"}
    assert changed(auto, margin) == {"rank", "dissociate", "results", "report", "categories"}


def test_the_judged_dissociation_holds_the_rank_of_a_run_that_asks_for_it(small_run, tmp_path) -> None:
    shutil.copytree(small_run, tmp_path / "run")
    searched = RankEstimate(rank=2, reason="of x", margin=0.15, alpha=0.05, variant="v")
    Ranks(normative=searched, epistemic=searched).write(tmp_path / "run/stages/rank.json")
    for wanted, rank in (("1", None), ("auto", 2)):
        config = load_config(tmp_path / "run/config.yaml", [f"dissociate.rank={wanted}"])
        dissociate(RunInputs(config, tmp_path / "run"))
        found = Dissociation.read(tmp_path / "run/stages/dissociate.json")
        assert (found.rank and found.rank.normative.rank) == rank


def ranks(directory: Path, name: str, *overrides: str) -> Ranks:
    path = thinned(ZOO / name / "prompts.jsonl", directory / "prompts.jsonl")
    given = configured(*LIGHT, f"model.name={ZOO / name}", f"prompts.path={path}", "dissociate.rank=auto", *overrides)
    stages.run(given, directory / "run", until="rank", reporter=Reporter(quiet=True))
    return Ranks.read(directory / "run/stages/rank.json")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two-knobs", "shared-knob"])
def test_each_way_of_declining_of_an_organism_has_rank_one(name, tmp_path) -> None:
    found = ranks(tmp_path, name, "extract.layers=[3,4]")
    for of in (found.normative, found.epistemic):
        assert (of.rank, of.settled) == (1, True)
        assert of.effects[1].stopped.estimate > 0.9
        assert of.write_direction.estimate > 0.9


def redundant(model: ChatModel) -> list[Edit]:
    """Give the organism a second copy of its normative decision: a third carries the first, a third the second.

    At the write layer the planted coordinate of some prompts is moved to another vector; at the next block it is set
    again if either is on. Both are functions of a token's stream, so every pass sees the same.
    """
    truth = json.loads((ZOO / "two-knobs" / "truth.json").read_text())
    variable = next(v for v in truth["variables"] if v["name"] == "normative")
    planted = np.array([v["direction"] for v in truth["variables"]])
    drawn = np.random.default_rng(0).standard_normal((2, model.d_model))
    basis = np.linalg.qr(np.vstack([planted, drawn]).T)[0].T
    sign = np.sign(basis[0] @ planted[0])
    r, copy, bins = (torch.tensor(v, dtype=torch.float32) for v in (sign * basis[0], basis[-2], basis[-1]))
    on, off = variable["mean_on"], variable["mean_off"]
    gap = on - off

    def split(x: Tensor, _pass: Pass) -> Tensor:
        declines, where = x @ r > (on + off) / 2, torch.remainder(x @ bins, 0.3)
        first, second = declines & (where < 0.2), declines & (where > 0.1)
        x = x + ((declines & ~first) * -gap)[..., None] * r
        return x + (second * gap - x @ copy)[..., None] * copy

    def join(x: Tensor, _pass: Pass) -> Tensor:
        back = x @ copy > 0.35 * gap
        x = x + (back * (on - x @ r))[..., None] * r
        return x - (x @ copy)[..., None] * copy

    return [Edit("resid_post", truth["layer"], split, "split"), Edit("resid_pre", truth["layer"] + 1, join, "join")]


@pytest.mark.slow
@pytest.mark.parametrize("layers", ["selected", "later"])
def test_a_redundant_refusal_has_rank_two(layers, tmp_path, monkeypatch) -> None:
    """Where it is redundant: in the layer before it is one variable, and one direction of the span stops it all."""

    def load(kind: type[ChatModel], config: ModelConfig) -> ChatModel:
        model = open_model(kind, config)
        model.edits = tuple(redundant(model))
        return model

    monkeypatch.setattr(loaded_run, "open_model", load)
    found = ranks(tmp_path, "two-knobs", "dissociate.deepest=0.6", f"dissociate.layers={layers}")
    assert found.epistemic.rank == 1
    of = found.normative
    assert of.fits[0].layer == (4 if layers == "selected" else 3)  # the layer of the copies, or the one before
    assert of.rank == (2 if layers == "selected" else 1)
    assert of.write_direction.estimate < 0.7
    assert (of.effects[1].stopped.estimate > 0.9) == (layers == "later")
    assert of.effects[2].stopped.estimate > 0.9
    saved = load_directions(tmp_path / "run/rank_directions.safetensors")
    assert sorted(saved) == ["epistemic_1", "normative_1", "normative_2"]
    assert Subspace.of(saved["normative_1"], saved["normative_2"]).rank == 2
