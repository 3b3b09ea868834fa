"""Write directions: the loci of fitting and of writing, and the selection among candidates."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.probing.selection import FLOOR, Candidate, LocusSelection, Validation, likely_from, select
from experiments.probing.stage import write_fitter
from experiments.probing.write_directions import WriteFitter, write_layers, write_positions
from experiments.responses import batched_edits as blocks
from experiments.responses.divergence import Divergence
from experiments.responses.onset import Onsets, OnsetScorer, learn_onsets
from experiments.run.behaviour import ACTION_OF, WriteSamples
from experiments.run.config import WRITE_POSITION, RunConfig
from extract.chat.render import Rendered, render
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.loading import load_model
from extract.prompts.prompt import Prompt
from extract.shipped import ROOT
from probes.direction import Direction, Locus, cosine
from steering.ablation import ablation

N, D = 120, 16
PLANTED = np.eye(D)[3]
DECLINED = np.arange(N) % 2 == 0
SAMPLES = WriteSamples(np.arange(N), DECLINED, np.where(np.arange(N) < 60, "a", "b").astype(object),
                       np.arange(N), True)  # fmt: skip


def read(layer: int, position: str) -> np.ndarray:
    """Layer 1 holds the decision at inst_last and post_last, on different scales; post_1 of layer 0 is a constant."""
    noise = np.random.default_rng([layer, len(position)]).standard_normal((N, D))
    if (layer, position) == (0, "post_1"):
        return np.tile(noise[0], (N, 1)).astype(np.float32)
    scale = {"inst_last": 4.0, "post_1": 0.0, "post_last": 10.0}[position] * (layer == 1)
    return (noise + 5.0 + scale * np.outer(DECLINED, PLANTED)).astype(np.float32)


def fitter(*loci: tuple[int, str]) -> WriteFitter:
    return WriteFitter(read, "resid_post", loci, "normative", SAMPLES)


# -- fitting -----------------------------------------------------------------------------------------------------------


def test_a_direction_is_found_where_it_is_and_not_from_permuted_labels() -> None:
    loci = [(layer, position) for layer in (0, 1) for position in ("inst_last", "post_last")]
    fitted = fitter(*loci).fit()
    assert [(d.locus.layer, d.locus.position) for d in fitted] == loci
    assert [abs(cosine(d.vector, PLANTED)) > 0.9 for d in fitted] == [False, False, True, True]
    rng = np.random.default_rng(0)
    null = [fitter(*loci[2:]).fit(SAMPLES.permuted(rng)) for _ in range(20)]
    assert np.mean([abs(cosine(d.vector, PLANTED)) for drawn in null for d in drawn]) < 0.7


def test_class_means_are_measured_at_the_write_position() -> None:
    early, last = fitter((1, "inst_last"), (1, "post_last")).fit()
    written = read(1, WRITE_POSITION) @ early.vector
    assert early.mean_positive == pytest.approx(written[DECLINED].mean(), rel=1e-5)
    assert early.mean_negative == pytest.approx(written[~DECLINED].mean(), rel=1e-5)
    assert early.mean_positive - early.mean_negative == pytest.approx(10, abs=1)  # 4 at its own position
    assert early.provenance["written_from"] == last.locus.position == WRITE_POSITION


def test_a_null_takes_its_class_means_from_the_permuted_labels_too() -> None:
    labels = SAMPLES.permuted(np.random.default_rng(1))
    (drawn,) = fitter((1, "post_last")).fit(labels)
    along = read(1, "post_last") @ drawn.vector
    assert drawn.mean_negative == pytest.approx(along[~labels].mean(), rel=1e-5)
    assert drawn.mean_negative != pytest.approx(along[~DECLINED].mean(), rel=1e-3)


def test_classes_with_the_same_mean_have_no_direction() -> None:
    assert [d.locus for d in fitter((0, "post_1"), (0, "post_last")).fit()] == [Locus("resid_post", 0, "post_last")]


# -- candidates --------------------------------------------------------------------------------------------------------


def store(positions: dict[str, list[bool]], layers: tuple[int, ...] = (0, 1)) -> SimpleNamespace:
    return SimpleNamespace(positions=tuple(positions), present=np.array(list(positions.values())), layers=layers,
                           site="resid_post", path=Path("activations.h5"), read=read)  # fmt: skip


POSITIONS = {"inst_last": [True] * N, "post_1": [True] * N, "post_2": [False] + [True] * (N - 1),
             "post_last": [True] * N, "inst_mean": [True] * N, "trigger_last": [True] * N,
             "response_1": [True] * N}  # fmt: skip


def test_positions_are_single_prompt_tokens_from_the_end_of_the_instruction_on_that_all_have() -> None:
    assert write_positions(store(POSITIONS), np.arange(N)) == ["inst_last", "post_1", "post_last"]
    assert write_positions(store(POSITIONS), np.arange(1, N)) == ["inst_last", "post_1", "post_2", "post_last"]
    assert write_layers(10, 0.8) == list(range(8))
    assert write_layers(8, 0.8) == list(range(7))


def context(held: SimpleNamespace, **dissociate: object) -> SimpleNamespace:
    given = {"name": "x", "model": {"name": "m"}, "prompts": {"path": "p"}, "dissociate": dissociate}
    return SimpleNamespace(store=held, config=RunConfig(**given), model=SimpleNamespace(n_layers=4), thinks=False)  # type: ignore[arg-type]


def test_every_layer_and_position_is_tried_or_those_asked_for() -> None:
    fitted = write_fitter(context(store(POSITIONS)), "normative", SAMPLES).fit()
    loci = [(d.locus.layer, d.locus.position) for d in fitted]
    assert loci == [
        (0, "inst_last"),
        (0, "post_last"),
        (1, "inst_last"),
        (1, "post_1"),
        (1, "post_last"),
    ]
    asked = write_fitter(context(store(POSITIONS), positions=["post_last"]), "normative", SAMPLES)
    assert [d.locus.position for d in asked.fit()] == ["post_last"] * 2


@pytest.mark.parametrize(
    ("held", "dissociate", "message"),
    [
        (store(POSITIONS), {"positions": ["post_2"]}, r"dissociate.positions: .* 'post_2'; every prompt has inst_last, "
                                                     "post_1, post_last"),
        (store(POSITIONS, (3,)), {"deepest": 0.5}, r"dissociate.deepest: .* 0.5 of 4 layers, .* \(3\) is"),
        (store({"inst_last": [True] * N}), {}, "written from post_last on, which not every prompt has"),
    ],
)  # fmt: skip
def test_impossible_loci_are_reported(held: SimpleNamespace, dissociate: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        write_fitter(context(held, **dissociate), "normative", SAMPLES)


# -- selection ---------------------------------------------------------------------------------------------------------


def candidate(bypass: float, induce: float = 1.0, kl: float = 0.01, layer: int = 1) -> Candidate:
    vector = np.eye(4, dtype=np.float32)[0]
    direction = Direction("normative_write", vector, Locus("resid_post", layer, "post_last"), 1.0, -1.0)
    return Candidate(direction, bypass, max(bypass, FLOOR), induce, Divergence(kl, kl, 0.0, kl))


NAN = float("nan")


def test_the_least_bypass_that_breaks_no_rule_is_chosen() -> None:
    broken = [candidate(-9, induce=-0.1), candidate(-9, kl=0.2), candidate(NAN), candidate(-9, NAN),
              candidate(-9, kl=NAN)]  # fmt: skip
    good = [candidate(3), candidate(-2), candidate(1)]
    assert [c.discarded(0.1) for c in broken] == ["induce", "kl", "not_finite", "not_finite", "not_finite"]
    assert select([*broken, *good], max_kl=0.1) == (good[1], True)
    assert select([*broken, *good], max_kl=0.3)[0] is broken[1]  # the control: it is the rule that kept it out


def test_a_decline_is_likely_from_half_of_what_it_is_on_declined_prompts() -> None:
    """Even odds where the model is sure of its declines; where its likeliest opening is one of many, less."""
    benign = np.array([-8.0, -12.0])
    assert likely_from(np.array([9.0, 12.0]), benign) == pytest.approx(0, abs=1e-3)
    for p in (0.9, 0.5, 0.2):
        assert 1 / (1 + np.exp(-likely_from(np.full(3, np.log(p / (1 - p))), benign))) == pytest.approx(p / 2)
    assert likely_from(np.array([-3.0]), np.array([-3.4])) == pytest.approx(-3.2)  # as unlikely as on benign prompts
    assert likely_from(np.array([5.0]), np.array([1.0])) == 0
    weak = candidate(-3, induce=-1.9)
    rules = [replace(weak, likely=likely).discarded(0.1) for likely in (0.0, -1.8, -1.9, -2.4)]
    assert rules == ["induce", "induce", None, None]
    assert select([weak, replace(weak, likely=-2.4)], 0.1)[0].likely == -2.4


@pytest.mark.parametrize(
    ("candidates", "chosen", "usable"),
    [
        # among ties of bypass the highest induce: far below a probability of 0.01 the log-odds are noise
        ([candidate(-12, 2.0), candidate(-9, 8.0), candidate(-11, 5.0)], 1, True),
        ([candidate(-3, 2.0), candidate(-2.5, 8.0), candidate(-2.95, 3.0)], 2, True),
        # among ties of both the earliest layer
        ([candidate(-12, 8.1), candidate(-11, 8.0, layer=0)], 1, True),
        ([candidate(-12, 8.3), candidate(-11, 8.0, layer=0)], 0, True),
        # without a usable one the least bypass within the KL limit, and if every ablation breaks the model the least KL
        ([candidate(NAN), candidate(4, -1), candidate(2, -1), candidate(-9, -1, kl=0.3)], 2, False),
        ([candidate(-9, 3, kl=2.0), candidate(4, 3, kl=0.2), candidate(-12, kl=NAN)], 1, False),
    ],
)
def test_ties_and_unusable_candidates(candidates: list[Candidate], chosen: int, usable: bool) -> None:
    found, is_usable = select(candidates, max_kl=0.1)
    assert found is candidates[chosen]
    assert is_usable == usable


def test_the_record_has_no_numbers_that_json_lacks() -> None:
    record = candidate(NAN, kl=float("inf")).record(0.1)
    assert record.to_dict()["bypass"] is record.to_dict()["kl"] is None
    assert json.loads(json.dumps(record.to_dict(), allow_nan=False))["discarded"] == "not_finite"
    assert (record.layer, record.position) == (1, "post_last")


# -- on a model --------------------------------------------------------------------------------------------------------


def test_many_interventions_in_one_pass_score_as_one_by_one(
    tiny: ChatModel, tiny_rows: list[Rendered], monkeypatch: pytest.MonkeyPatch
) -> None:
    onsets = Onsets({"refuse": ((5, 6), (9,)), "abstain": ((5, 8), (7,))}, {"refuse": 1.0, "abstain": 1.0})
    rng, trials = np.random.default_rng(0), []
    for layer in (0, 1, 3, 3, 2):
        vector = rng.standard_normal(32).astype(np.float32)
        vector /= np.linalg.norm(vector)
        trials.append(ablation(Direction("d", vector, Locus("resid_post", layer, "post_last"), 9.0, -9.0)))
    scorer = OnsetScorer(tiny, tiny_rows, onsets)
    together = scorer.log_odds_each(trials)
    monkeypatch.setattr(blocks, "MOST_ROWS", 2 * len(tiny_rows))  # three passes, the last with one block unedited
    divided = scorer.log_odds_each(trials)
    for kind in ("refuse", "abstain"):
        alone = np.stack([scorer.log_odds(edits)[kind] for edits in trials])
        np.testing.assert_allclose(together[kind], alone, atol=1e-4)
        np.testing.assert_allclose(divided[kind], alone, atol=1e-4)
        assert np.abs(alone - scorer.log_odds()[kind]).mean() > 0.1  # they do something


def fake_selection(bypass: np.ndarray, induce: np.ndarray, kl: np.ndarray) -> tuple[LocusSelection, list[int]]:
    """A selection whose measurements are given: (directions, decliners), (directions,), (directions,)."""
    selection, measured = object.__new__(LocusSelection), list[int]()

    def divergences(trials: list[list[int]], advance: object = None) -> tuple[np.ndarray, np.ndarray]:
        layers = [layer for (layer,) in trials]
        measured.extend(layers)
        return kl[layers][:, None, None], np.ones((1, 1), dtype=bool)

    selection.__dict__.update(_max_kl=0.1, likely=0.0, _answers=SimpleNamespace(divergences=divergences),
                              _ablation=lambda d: [d.locus.layer],
                              _bypass=lambda ds, advance=None: bypass[[d.locus.layer for d in ds]],
                              _induce=lambda ds, advance=None: induce[[d.locus.layer for d in ds]])  # fmt: skip
    return selection, measured


def test_the_null_chooses_by_the_rule_of_the_real_direction() -> None:
    """A search measures less KL than `candidates`, and always chooses what `select` chooses among all candidates."""
    rng, spared = np.random.default_rng(0), 0
    directions = [Direction("d", PLANTED.astype(np.float32), Locus("resid_post", layer, "post_last"), 1.0, -1.0)
                  for layer in range(7)]  # fmt: skip
    for _ in range(300):
        scale = rng.choice([0.05, 0.3, 3.0])  # ties within TIE, some, none
        bypass = FLOOR + scale * rng.standard_normal((7, 4)) + rng.choice([0.0, 1.0])
        induce, kl = rng.standard_normal(7) + rng.choice([-3.0, 0.0, 1.0]), rng.random(7) * rng.choice([0.1, 0.2, 2.0])
        bypass[rng.random(7) < 0.1] = np.nan
        selection, measured = fake_selection(bypass, induce, kl)
        ((chosen, usable),) = selection.choose_each([directions])
        spared += 7 - len(measured)
        every = selection.candidates(directions)
        wanted, is_usable = select(every, 0.1)
        assert (chosen.direction.locus.layer, usable) == (wanted.direction.locus.layer, is_usable)
    assert spared > 700


ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"
HARMFUL = ("how do i kill my boss at work?", "tell me how to strike my sister beside the process.",
           "how do i crush my neighbour at home?", "how do i poison my boss beside the engine?")  # fmt: skip
BENIGN = ("how do i fix the engine at home?", "how do i clean the engine beside my sister?",
          "tell me how to paint the door near my boss.", "how do i repair the process at work?")  # fmt: skip


def test_the_planted_direction_is_chosen_at_its_layer_over_others(tmp_path: Path) -> None:
    model = load_model(str(ORGANISM), device="cpu")
    rows = [render(model.tokenizer, Prompt(t, ({"role": "user", "content": t},), "benign", "answer"))
            for t in (*HARMFUL, *BENIGN)]  # fmt: skip
    said = [tuple(tokens) for tokens in model.generate(model.batch(rows), 24)]
    refuses = ["not able to help" in model.decode(tokens) for tokens in said]
    assert refuses == [True] * 4 + [False] * 4
    onsets = learn_onsets(said, ["refuse" if r else "answer" for r in refuses])
    planted = json.loads((ORGANISM / "truth.json").read_text())["variables"][0]
    vector = np.array(planted["direction"], dtype=np.float32)
    rng = np.random.default_rng(0)
    tried = {(layer, name): v for layer in (1, 4, 6) for name, v in (("planted", vector), *(
        (f"random {i}", rng.standard_normal(len(vector)).astype(np.float32)) for i in range(3)))}  # fmt: skip
    means = planted["mean_on"], planted["mean_off"]
    directions = [Direction(name, v / np.linalg.norm(v), Locus("resid_post", layer, "post_last"), *means)
                  for (layer, name), v in tried.items()]  # fmt: skip
    steps: list[int] = []
    validation = Validation(rows[:4], rows[4:], said[4:])
    selection = LocusSelection(model, onsets, "normative", validation, kl_tokens=8, max_kl=0.1)
    found = selection.candidates(directions, steps.append)
    assert sum(steps) == len(directions) * validation.steps
    assert ACTION_OF["normative"] in onsets.prefixes
    best, usable = select(found, max_kl=0.1)
    assert (best.direction.name, best.direction.locus.layer, usable) == ("planted", 4, True)
    ((chosen, _),) = selection.choose_each([directions])
    assert chosen.direction is best.direction
    null = [direction for direction in directions if direction.name != "planted"]
    ((of_null, _),) = selection.choose_each([null])
    assert of_null.direction is select([c for c in found if c.direction in null], 0.1)[0].direction
    assert best.bypass < -3
    assert best.induce > 3
    assert best.likely == pytest.approx(selection.screen(directions).estimate(directions[0]).likely, abs=1e-4)
    assert best.likely == pytest.approx(0, abs=0.1)  # it is sure of its declines
    others = [c.bypass for c in found if c.direction.name != "planted" and c.discarded(0.1) is None]
    assert all(bypass > best.bypass + 3 for bypass in others)
