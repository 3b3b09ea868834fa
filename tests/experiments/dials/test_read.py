"""Reads of dials: cross-fitted scores, negatives of the other dial; at every token, equal to the probe there."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import expit, logit

from experiments.dials.counterfactuals import read_table
from experiments.dials.read import cross_fitted_scores, fit_read, read_tokens, some_of
from experiments.dials.results import TokenReadings
from experiments.responses.loaded_run import LoadedRun
from experiments.run.config import SteerConfig, load_config
from experiments.run.corpus import Corpus
from extract.chat.render import render
from extract.progress import Reporter
from extract.prompts.prompt import Prompt
from probes.contrast import Contrast
from probes.grid.logistic import LinearProbe, fit_platt
from probes.grid.solver import fit_logistic_batch
from probes.statistics.metrics import brier
from steering.controller import steering, token_log_odds
from steering.dial import Dial
from steering.dial_file import save_dials
from tests.support.planted_dials import BENIGN, STRIKE, UNKNOWN, log_odds_by_hand, planted_dials

LABELS = ("benign", "harmful", "uncertain")
N, D = 60, 200  # more dimensions than prompts: a probe fits any labels


@pytest.fixture(scope="module")
def dials() -> list[Dial]:
    return planted_dials()


def test_every_token_reads_the_probe_on_the_model_s_hidden_states(two_knobs, dials) -> None:
    rows = [list(render(two_knobs.tokenizer, Prompt("p", ({"role": "user", "content": text},), "benign", "answer"))
                 .token_ids) for text in (BENIGN, STRIKE, UNKNOWN)]  # fmt: skip
    found = token_log_odds(two_knobs, dials, rows)
    assert found.keys() == {"normative", "epistemic"}
    for dial in dials:
        for row, read in zip(rows, found[dial.kind], strict=True):
            np.testing.assert_allclose(read, log_odds_by_hand(two_knobs, dial, row), atol=1e-3)
    assert not np.allclose(found["normative"][0], found["epistemic"][0], atol=1)  # the dials are not mixed up


def test_tokens_generated_with_the_dials_read_the_same_without_them(two_knobs, dials) -> None:
    row = render(two_knobs.tokenizer, Prompt("p", ({"role": "user", "content": STRIKE},), "benign", "answer"))
    batch = two_knobs.batch([row])
    with steering(two_knobs, dials, batch, [row], {"normative": 0.0}) as readings:
        (answer,) = two_knobs.generate(batch, 12)
        seen = dict[str, np.ndarray]()
        two_knobs.capture(two_knobs.pad([[*row.token_ids, *answer]], "left"), "resid_post", [dials[0].read.layer],
                          lambda layer, stream: seen.update({"all": stream[0].float().numpy()}))  # fmt: skip
    found = token_log_odds(two_knobs, dials, [[*row.token_ids, *answer]])
    (own,) = row.roles[dials[0].read.position]
    for dial in dials:
        np.testing.assert_allclose(found[dial.kind][0][: own + 1], dial.log_odds(seen["all"])[: own + 1], atol=1e-3)
        assert expit(found[dial.kind][0][own]) == pytest.approx(readings.probability[dial.kind][0], abs=1e-4)


def test_the_file_of_a_run_has_each_test_prompt_and_agrees_with_its_dials(small_run) -> None:
    lines = [TokenReadings.model_validate_json(line)
             for line in (small_run / "token_readings.jsonl").read_text().splitlines()]  # fmt: skip
    rows = [json.loads(line) for line in (small_run / "table.jsonl").read_text().splitlines()]
    assert [line.id for line in lines] == [row["id"] for row in rows if row["part"] == "test"]
    table = read_table(small_run / "table.jsonl")
    place = {row["id"]: i for i, row in enumerate(rows)}
    for line in lines:
        for d, kind in enumerate(table.dials):
            (at,) = line.read_at[kind]
            expected = logit(table.probability[d, place[line.id]])
            assert line.log_odds[kind][at] == pytest.approx(expected, abs=2e-3)
            assert len(line.log_odds[kind]) == len(line.tokens) > line.words


def test_a_run_without_dials_has_an_empty_file(small_run, two_knobs, tmp_path) -> None:
    save_dials([], tmp_path / "dials.safetensors", two_knobs.fingerprint())
    read_tokens(LoadedRun(load_config(small_run / "config.yaml"), tmp_path))
    assert (tmp_path / "token_readings.jsonl").read_text() == ""


def test_the_committed_file_is_what_the_stage_writes_again(small_run, two_knobs, tmp_path) -> None:
    (tmp_path / "dials.safetensors").write_bytes((small_run / "dials.safetensors").read_bytes())
    loaded = LoadedRun(load_config(small_run / "config.yaml"), tmp_path)
    loaded.__dict__["model"] = two_knobs
    read_tokens(loaded)
    for again, line in zip((tmp_path / "token_readings.jsonl").read_text().splitlines(),
                           (small_run / "token_readings.jsonl").read_text().splitlines(), strict=True):  # fmt: skip
        found, known = (TokenReadings.model_validate_json(text) for text in (again, line))
        assert (found.id, found.tokens, found.words, found.read_at) == (
            known.id, known.tokens, known.words, known.read_at)  # fmt: skip
        for kind, values in known.log_odds.items():
            np.testing.assert_allclose(found.log_odds[kind], values, atol=3e-3)


def test_some_of_many_rows_are_spread_over_all_of_them() -> None:
    assert some_of([3, 5, 7], 3) == [3, 5, 7]
    assert some_of(list(range(100)), 4) == [0, 25, 50, 75]
    assert len(set(some_of(list(range(9_001)), 4_000))) == 4_000


def test_scores_of_unseen_prompts_do_not_boast() -> None:
    """Labels that nothing tells, in groups of two."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2 * N, D)).astype(np.float32), np.repeat(rng.random(N) < 0.5, 2)
    part = np.where(np.arange(2 * N) < N, "train", "validation").astype(object)
    contrast = Contrast("noise", np.arange(2 * N), y, np.repeat(np.arange(N), 2), part)
    train, others = contrast.within("train"), contrast.within("validation")
    fit = fit_logistic_batch(X, (part == "train")[None], y[None], [1.0])
    probe = LinearProbe(fit.weight[0, 0], float(fit.intercept[0, 0]), 1.0)
    own, unseen = probe.decision_function(X), cross_fitted_scores(X, contrast, probe, 0)
    assert ((own[train] > 0) == y[train]).all()  # the control: it looks perfect
    assert np.mean((unseen[train] > 0) == y[train]) < 0.75
    np.testing.assert_array_equal(unseen[others], own[others])
    boasting = brier(y[others], fit_platt(own[train], y[train]).probability(own[others]))
    assert brier(y[others], fit_platt(unseen[train], y[train]).probability(unseen[others])) < boasting - 0.05


def unusual(n_groups: int = 40) -> tuple[SimpleNamespace, np.ndarray]:
    """Return a run of harmful, uncertain and benign prompts, and the activations of its prompts, (prompts, 6).

    Harmful and uncertain prompts share strong features, and each has a weaker one of its own.
    """
    rng, labels = np.random.default_rng(0), np.tile(LABELS, 4 * n_groups)
    X = rng.normal(size=(len(labels), 6))
    X[:, 3:] += 12 * (labels != "benign")[:, None]
    X[:, 1] += 5 * (labels == "harmful")
    X[:, 2] += 5 * (labels == "uncertain")
    prompts = tuple(
        Prompt(str(i), ({"role": "user", "content": f"{i}?"},), of, "answer") for i, of in enumerate(labels)
    )
    groups = np.arange(len(labels)) // 12
    part = np.array(["train", "validation", "calibration", "test"], dtype=object)[groups % 4]
    store = SimpleNamespace(site="resid_post", layers=[0], positions=["post_last"],
                            present=np.ones((1, len(labels)), dtype=bool), read=lambda layer, position: X)  # fmt: skip
    run = SimpleNamespace(
        store=store, corpus=Corpus(prompts, groups, part), prompts=prompts,
        config=SimpleNamespace(seed=0, steer=SteerConfig()),
        reporter=Reporter(quiet=True),
    )  # fmt: skip
    return run, X


@pytest.mark.parametrize(("kind", "own", "other"), [("normative", "harmful", "uncertain"),
                                                    ("epistemic", "uncertain", "harmful")])  # fmt: skip
def test_prompts_of_the_other_label_are_negatives(kind, own, other) -> None:
    run, X = unusual()
    corpus = run.corpus
    read = fit_read(run, kind, corpus.labelled(own), first_write=0)
    for label, probability in ((own, 1.0), (other, 0.0), ("benign", 0.0)):
        assert np.mean(read.probability[corpus.labelled(label)]) == pytest.approx(probability, abs=0.05)
    pair = (corpus.labelled(own) | corpus.benign) & (corpus.part == "train")  # the control: one pair of labels
    fit = fit_logistic_batch(X[pair], np.ones((1, pair.sum()), bool), corpus.labelled(own)[pair][None], [1.0])
    alone = LinearProbe(fit.weight[0, 0], float(fit.intercept[0, 0]), 1.0)
    assert np.mean(alone.decision_function(X[corpus.labelled(other)]) > 0) > 0.9
