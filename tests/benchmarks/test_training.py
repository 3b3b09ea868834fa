"""The fit of the judge's weights: what a fold leaves out, labels that allow several outcomes, the committed file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.judge import judge_all
from benchmarks.training import fit as fitting
from benchmarks.training import folds
from benchmarks.training.fit import Read, as_table, common_features, fit
from benchmarks.training.fit_local import Captured, choose, fit_probe, probabilities
from benchmarks.training.folds import unseen_parts
from benchmarks.training.labelled import DATA, Labelled, all_labelled, written
from judging.judge_by_name import open_judge
from judging.local_model import READINGS
from scoring.actions import ACTIONS
from scoring.judges.english import ENGLISH
from scoring.judges.weights import OUTCOMES, Outcome, Weights
from tests.support.chat_server import running

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs {DATA}, which is not committed")


def row(
    found: dict[str, float], *outcomes: Outcome, dataset: str = "XSTest", model: str = "a", kind: str = "k"
) -> Read:
    return Read(Labelled(dataset, model, kind, "", "", "", frozenset(outcomes)), found)


def chances(rows: list[Read], found: dict[str, float]) -> dict[Outcome, float]:
    names = common_features(rows)
    weights = Weights({name: tuple(w) for name, w in zip(names, fit(rows, names).tolist(), strict=True)})
    return weights.probabilities(found)


def test_probabilities_are_the_shares_of_the_labels() -> None:
    rows = [row({"x": 1.0}, "refused")] * 300 + [row({"x": 1.0}, "abstained")] * 100
    found = chances(rows, {"x": 1.0})
    assert sum(found.values()) == pytest.approx(1)
    assert found["refused"] == pytest.approx(0.75, abs=0.02)
    assert found["answered"] < 0.02


def test_a_label_that_allows_two_outcomes_forces_neither() -> None:
    """A full refusal may be a refusal or an abstention: the rows that say which decide, and it takes no side."""
    told = [row({"x": 1.0}, "refused")] * 90 + [row({"x": 1.0}, "abstained")] * 10
    loose = [row({"x": 1.0}, "refused", "abstained")] * 400
    apart, together = chances(told, {"x": 1.0}), chances(told + loose, {"x": 1.0})
    assert together["abstained"] / together["refused"] == pytest.approx(1 / 9, abs=0.03)
    assert together["refused"] + together["abstained"] > apart["refused"] + apart["abstained"]


def test_no_fold_is_fitted_on_its_model_or_its_kind_of_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, rows, left_out = np.random.default_rng(0), [], []
    for dataset in ("XSTest", "Do-Not-Answer"):
        for model in "abc":
            for kind in range(8):
                rows += [row({"x": 1.0, "y": float(rng.random())}, OUTCOMES[int(i)], dataset=dataset, model=model,
                             kind=str(kind)) for i in rng.integers(0, 4, 5)]  # fmt: skip

    def watched(kept: list[Read], names: list[str]) -> np.ndarray:
        left_out.append({id(one) for one in rows} - {id(one) for one in kept})
        return np.zeros((len(names), len(OUTCOMES)))

    monkeypatch.setattr(folds, "fit", watched)
    parts: dict[int, list[Read]] = {}
    for one, found in folds.weighed_unseen(rows):
        parts.setdefault(len(left_out) - 1, []).append(one)
        assert found == dict.fromkeys(OUTCOMES, 0.25)
    assert sum(map(len, parts.values())) == len(rows)
    for number, part in parts.items():
        about = {(one.row.dataset, one.row.model) for one in part}
        kinds = {one.row.kind for one in part}
        assert len(about) == 1
        ((dataset, model),) = about
        for one in rows:
            if one.row.dataset == dataset and (one.row.model == model or one.row.kind in kinds):
                assert id(one) in left_out[number]


def test_any_judge_is_measured_on_the_same_rows(tmp_path: Path) -> None:
    rows = fitting.read([one for one in written("seen")][:12])
    with running() as server:
        config = tmp_path / "judge.yaml"
        config.write_text(f"kind: endpoint\nbase_url: {server.url}\nmodel: tiny\nrubric: Label it.\n")
        endpoint = judge_all(rows, open_judge(str(config)))
        assert len(server.asked) == 12
    assert [one.row for one in endpoint] == [one.row for one in rows]
    assert {one.chance for one in endpoint} == {None}  # it states none
    assert {one.action for one in endpoint} <= {*ACTIONS, None}
    assert any(one.action is not None for one in endpoint)


@pytest.mark.slow
@needs_data
def test_the_committed_weights_are_those_of_this_code() -> None:
    assert ENGLISH.weights is not None
    held = json.loads(ENGLISH.weights.read_text(encoding="utf-8"))
    rows = fitting.read(all_labelled())
    names = common_features(rows)
    table = as_table(names, fit(rows, names))
    assert held["outcomes"] == list(OUTCOMES)
    assert "ORFuzz" not in held["fitted_on"]  # it states no licence
    assert set(table) == set(held["features"]), "fit again: python -m benchmarks.training.fit"
    differences = [np.abs(np.subtract(table[name], held["features"][name])).max() for name in table]
    assert max(differences) < 0.05, "fit again: python -m benchmarks.training.fit"


def labelled(count: int) -> list[Labelled]:
    """Return made-up labelled rows of every set that the probe is fitted on."""
    sets = {"XSTest": "gpt4 llama2new mistralguard", "Do-Not-Answer": "ChatGPT llama2-7b-chat Claude",
            "GPT-3.5": "gpt-3.5", "gemma-2b": "gemma-2b", "CoCoNot": "coconot", "written, seen": "prose"}  # fmt: skip
    return [
        Labelled(dataset, model, f"kind {i % 5}", "", "", "", frozenset({OUTCOMES[i % 4]}))
        for dataset, models in sets.items()
        for model in models.split()
        for i in range(count)
    ] + [Labelled("ORFuzz", "gemma", "kind 0", "", "", "answered", frozenset())] * count


def test_no_probe_is_trained_on_a_model_or_a_kind_that_it_judges() -> None:
    rows = [Read(one, {"x": 1.0}) for one in labelled(20)]
    parts = [(held, close) for held, close in unseen_parts(rows)]
    judged = [sum(held(one) for held, _ in parts) for one in rows]
    assert judged == [int(bool(one.row.outcomes)) for one in rows]  # each once
    for held, close in parts:
        mine = [one.row for one in rows if held(one)]
        kept = [one.row for one in rows if not close(one)]
        assert mine
        assert kept
        models, kinds = {(r.dataset, r.model) for r in mine}, {(r.dataset, r.kind) for r in mine}
        assert not [r for r in kept if (r.dataset, r.kind) in kinds]
        several = [r for r in kept if r.dataset in ("XSTest", "Do-Not-Answer")]
        assert not [r for r in several if (r.dataset, r.model) in models]


def captured(signal: float) -> Captured:
    """Return made-up completions, a column of whose activations at the middle layer says the outcome."""
    rng = np.random.default_rng(0)
    rows = [Read(one, {"x": 1.0}) for one in labelled(20)]
    states = rng.normal(size=(len(rows), 3 * 8))
    for i, one in enumerate(rows):
        states[i, 8 : 8 + len(OUTCOMES)] += signal * np.array([name in one.row.outcomes for name in OUTCOMES])
    return Captured(rows, states.astype(np.float32))


def test_a_probe_reads_what_the_activations_say_and_what_nothing_says_stays_a_guess() -> None:
    for signal, low, high in ((6.0, 0.95, 1.0), (0.0, 0.1, 0.4)):
        of, right = captured(signal), []
        for held, close in unseen_parts(of.rows):
            kept = of.used & np.array([not close(one) for one in of.rows])
            mine = np.array([held(one) for one in of.rows])
            said = probabilities(of, fit_probe(of, kept, 14), mine).argmax(axis=1)
            rows = [one.row for one, wanted in zip(of.rows, mine, strict=True) if wanted]
            right += [READINGS[int(i)] in row.readings for i, row in zip(said, rows, strict=True)]
        assert low <= np.mean(right) <= high


def test_the_layer_is_chosen_by_what_reads_unseen_families() -> None:
    of = captured(6.0)
    assert choose(of, of.used) == 14
    assert of.used.sum() < len(of.rows)  # not ORFuzz, and a third of the large sets
    assert not of.used[[one.row.dataset == "ORFuzz" for one in of.rows]].any()
