"""Elicited abstentions: two sorts of refusals must show one verdict, each direction set to its cell's answers."""

from typing import get_args

import numpy as np
import pytest

from experiments.dissociation.elicited_judge import BETWEEN_LABELS, CELLS, agreed, judge_cells, judge_elicited
from experiments.dissociation.elicited_measure import (
    ABLATE,
    ADD,
    ADD_NULL,
    CellEffects,
    CellKey,
    RunCondition,
    _ablated,
)
from experiments.dissociation.elicited_text import elicited_tables
from experiments.dissociation.judge import _with_elicited, judge_effects
from experiments.dissociation.results import Elicited, MeasuredEffects, MeasuredElicited, NullRecord
from experiments.dissociation.verdict import Effect
from experiments.dissociation.verdict_rules import DissociationVerdict
from experiments.elicited.condition import LINE, asked_rows
from experiments.elicited.elicit import elicit
from experiments.elicited.results import Elicitation
from experiments.probing.results import WriteRecord
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import KINDS, MIN_STRATUM, Kind
from experiments.run.corpus import TESTED
from experiments.run.outcomes import NOTHING, PLAIN, Key, Outcomes, read_outcomes, write_outcomes
from extract.model.edit import Edit
from probes.direction import Direction, Locus
from tests.support.eliciting import MANY, eliciting

pytestmark = pytest.mark.slow

N, E = KINDS
OWN: dict[tuple[Kind, CellKey], float] = {(N, (PLAIN, N)): 1, (N, (LINE, N)): 1, (E, (LINE, E)): 1}
ALL = {(kind, cell): 1.0 for kind in KINDS for cell in ((PLAIN, N), (LINE, N), (LINE, E))}
ALONE = 121  # a group whose uncertain prompts are tested without their twins
WITHOUT = {key: 0.0 for key in OWN}


@pytest.mark.parametrize("plain", get_args(DissociationVerdict))
def test_a_verdict_is_one_that_both_sorts_of_refusals_show(plain: DissociationVerdict) -> None:
    for line in get_args(DissociationVerdict):
        found = agreed(plain, line)
        assert found == agreed(line, plain)
        if found != "inconclusive":
            assert found in (plain, line)
        if plain != line:
            assert (found == "graded_dissociation") == ({plain, line} == {"double_dissociation", "graded_dissociation"})
            assert found in ("graded_dissociation", "inconclusive")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory, two_knobs) -> LoadedRun:
    with pytest.MonkeyPatch.context() as patched:
        run = eliciting(tmp_path_factory.mktemp("elicited"), two_knobs, patched)()
        elicit(run)
    return run


def measured(
    loaded: LoadedRun, effects: dict[tuple[Kind, CellKey], float], gain: float = 0.0
) -> tuple[MeasuredEffects, MeasuredElicited, dict[Key, Outcomes]]:
    """Each direction stops a share of the declines of each cell; added, it gains a share of uncertain prompts."""
    corpus, places, outcomes = loaded.corpus, asked_rows(loaded.corpus), dict[Key, Outcomes]()
    under_line = read_outcomes(loaded.file("outcomes.parquet/elicit.parquet"), [p.id for p in loaded.prompts])
    plain = Outcomes.of(np.arange(len(corpus)), loaded.behaviour.actions)
    for name, of in ((PLAIN, plain), (LINE, under_line[LINE, NOTHING].among(places))):
        for kind in KINDS:
            share = np.zeros(len(of.rows))
            for cell, action, label in ((N, "refuse", corpus.harmful), (E, "abstain", corpus.uncertain)):
                share[(of.action == action) & label[of.rows]] = effects.get((kind, (name, cell)), 0.0)
            stopped = np.random.default_rng(0).random(len(of.rows)) < share
            outcomes[name, ABLATE[kind]] = Outcomes.of(of.rows, np.where(stopped, "answer", of.action))
    tested = np.flatnonzero((corpus.uncertain | corpus.twins) & corpus.within(*TESTED))
    tested = tested[~(corpus.twins[tested] & (corpus.groups[tested] == ALONE))]
    gained = corpus.uncertain[tested] & (np.arange(len(tested)) % 10 < 10 * gain)
    outcomes[PLAIN, ADD] = Outcomes.of(tested, np.where(gained, "abstain", "answer"))
    outcomes |= {(PLAIN, ADD_NULL.format(i)): Outcomes.of(tested, ["answer"] * len(tested)) for i in range(19)}

    def null(kind: Kind, cell: CellKey) -> NullRecord:
        return NullRecord.of(9.0 if effects.get((kind, cell)) else 0.0, (1.0,) * 99)

    nulls = {k: {c: {b: null(k, (c, b)) for b in (KINDS if c == LINE else (N,))} for c in (PLAIN, LINE)} for k in KINDS}
    absent: dict[Kind, str] = {E: "abstention on uncertain is absent"}
    return (
        MeasuredEffects(directions=(N,), unsound=(), absent=absent, null={}, dependence=None, side_effects={}),
        MeasuredElicited(null=nulls),
        outcomes,
    )


def judged(loaded: LoadedRun, effects: dict[tuple[Kind, CellKey], float], gain: float = 0.0) -> Elicited:
    return judge_elicited(loaded, *measured(loaded, effects, gain), level=0.05, null_level=0.05)


@pytest.mark.parametrize(
    ("effects", "verdict", "said"),
    [
        (OWN, "double_dissociation", "shown with plain refusals and with refusals under the line alike"),
        (ALL, "shared_knob", "ablating either direction stops both ways of declining"),
        (WITHOUT, "no_effect", "no ablation of one direction at its chosen layer"),
        # the normative direction does nothing under the line, so that it spares the abstentions says nothing
        (OWN | {(N, (LINE, N)): 0.0}, "inconclusive", "with refusals under the line: single dissociation epistemic"),
        # the epistemic direction stops refusals under the line alone
        (OWN | {(E, (LINE, N)): 1.0}, "inconclusive", "with plain refusals: double dissociation"),
        (OWN | {(E, (PLAIN, N)): 1.0}, "inconclusive", "with refusals under the line: double dissociation"),
    ],
)
def test_three_cells_decide_and_the_sentence_says_of_what(loaded: LoadedRun, effects, verdict: str, said: str) -> None:
    found = judged(loaded, effects)
    assert found.verdict == verdict
    assert any(reason.startswith(said) for reason in found.reasons), found.reasons
    assert found.reasons[-1] == f"the abstentions are elicited by “{MANY}”, and this is no verdict on the plain model"
    shown = {(e.ablated, (e.condition, e.behaviour)): round(e.estimate) for e in found.effects}
    assert shown == {key: effects.get(key, 0) for key in ALL}
    corpus, behaviour = loaded.corpus, loaded.behaviour
    n = {(e.condition, e.behaviour): e.n for e in found.effects}
    assert n[PLAIN, N] == len(behaviour.decliners(N, *TESTED))
    assert n[LINE, N] + found.turned[N].n == (corpus.harmful & corpus.within(*TESTED)).sum()


def test_refusals_that_become_abstentions_are_counted_apart_and_said(loaded: LoadedRun) -> None:
    plain, elicited, outcomes = measured(loaded, OWN)
    of = outcomes[LINE, ABLATE[E]]
    outcomes[LINE, ABLATE[E]] = Outcomes.of(of.rows, np.where(of.action == "refuse", "abstain", of.action))
    found = judge_elicited(loaded, plain, elicited, outcomes, level=0.05, null_level=0.05)
    turned = {(e.ablated, e.what): e.turned.estimate for e in found.effects}
    assert [key for key, share in turned.items() if share] == [(E, "refusals under the line")]
    assert turned[E, "refusals under the line"] == 1.0
    assert (
        found.reasons[-1]
        == "ablating the epistemic direction turns 100% of the refusals under the line into abstentions"
    )
    columns, rows = elicited_tables(found)["Declines that stop, plainly and under the line (95 %)"]
    shown = dict(
        zip(columns.split("|"), next(row for row in rows if row[:2] == [E, "refusals under the line"]), strict=True)
    )
    assert shown["change kind"].startswith("100%")
    assert shown["as large"] == "99 of 99"
    asked = Elicitation.read(path := loaded.file("stages/elicit.json"))
    asked.model_copy(update={"direction": WriteRecord(available=True, within_label=False)}).write(path)
    between = judge_elicited(loaded, plain, elicited, outcomes, level=0.05, null_level=0.05)
    asked.write(path)  # other tests read it
    assert (BETWEEN_LABELS in found.reasons, BETWEEN_LABELS in between.reasons) == (False, True)


def test_it_is_the_verdict_only_where_the_plain_model_gives_none(loaded: LoadedRun) -> None:
    plain, elicited, outcomes = measured(loaded, OWN)
    elicited.write(loaded.file("stages/elicited.json"))
    ids = [prompt.id for prompt in loaded.prompts]
    here = {key: of for key, of in outcomes.items() if key != (PLAIN, ABLATE[N])}
    write_outcomes(loaded.file("outcomes.parquet/elicited.parquet"), ids, here)
    of_effects = {(PLAIN, ABLATE[N]): outcomes[PLAIN, ABLATE[N]]}
    of_effects[PLAIN, NOTHING] = Outcomes.of(np.arange(len(ids)), loaded.behaviour.actions)
    result = judge_effects(loaded, plain, of_effects)
    assert result.verdict == "not_applicable"
    found = _with_elicited(loaded, result, plain, of_effects)
    assert (found.verdict, found.basis) == ("double_dissociation", "elicited")
    assert found.reasons[-1] == "the plain model: abstention on uncertain is absent"
    kept = _with_elicited(loaded, result.model_copy(update={"verdict": "no_effect"}), plain, of_effects)
    assert (kept.verdict, kept.basis, kept.elicited) == ("no_effect", "wording", found.elicited)
    nothing = MeasuredElicited(reason="under the line it abstains from 3")
    nothing.write(loaded.file("stages/elicited.json"))
    assert _with_elicited(loaded, result, plain, of_effects).elicited.reasons == (nothing.reason,)


def test_transfer_is_what_uncertain_prompts_gain_more_than_their_twins(loaded: LoadedRun) -> None:
    for gain, p in ((0.5, 0.05), (0.0, 1.0)):
        abstain, decline = judged(loaded, OWN, gain).transfer
        assert (abstain.action, decline.action) == ("abstain", "decline")
        assert abstain.estimate == pytest.approx(gain, abs=0.15)
        assert (abstain.p_null, abstain.n_null, abstain.twins) == (p, 19, 0.0)
        assert (abstain.low > 0) == (gain > 0)
        groups = loaded.corpus.groups[(loaded.corpus.uncertain | loaded.corpus.twins) & loaded.corpus.within(*TESTED)]
        assert ALONE in groups
        assert (abstain.n, abstain.n_groups) == ((groups != ALONE).sum(), len({*groups}) - 1)
        assert abstain.low < abstain.estimate < abstain.high


def test_what_is_edited_is_set_to_the_answered_prompts_of_its_cell(loaded: LoadedRun) -> None:
    vector = np.eye(128, dtype=np.float32)[3]
    direction = Direction("epistemic_write", vector, Locus("resid_post", 4, "post_last"), 5.0, 2.0, {}, {4: (7.0, 3.0)})
    streams = np.random.default_rng(0).normal(size=(len(loaded.prompts), 128))
    loaded.__dict__["write_activations"] = lambda layer: streams
    plain, line = RunCondition.plain(loaded), RunCondition.of_line(loaded, Elicitation(line=MANY))
    assert line.here(E, direction, E) is direction
    assert plain.here(N, direction, N) is direction
    under, of_label = line.loaded, list[bool]()
    for condition, kind, behaviour, label in (
        (plain, E, N, loaded.corpus.harmful),
        (line, N, E, under.corpus.uncertain),
        (line, N, N, under.corpus.harmful),
        (line, E, N, under.corpus.harmful),
    ):
        of, streams = condition.loaded, condition.loaded.write_activations(4)
        parts = ("validation",) if kind == behaviour else ("train", "validation")  # on which it is not fitted
        known = of.behaviour.answered & of.corpus.rated
        of_label.append((known & label & of.corpus.within(*parts)).sum() >= MIN_STRATUM)
        own = known & label & of.corpus.within(*parts) if of_label[-1] else known & of.corpus.within("validation")
        moved, mean = condition.here(kind, direction, behaviour), streams[own][:, 3].mean()
        assert (moved.mean_negative, moved.mean_positive) == pytest.approx((mean, mean + 3.0), rel=1e-4)
        assert moved.later_means[4] == pytest.approx((mean + 4.0, mean), rel=1e-4)
    assert of_label == [False, True, False, False]  # no harmful prompt is answered here
    assert len(line.turned)
    assert not np.isin(line.turned, line.decliners(N)).any()
    mirrored = line.mirrored
    assert not np.isin(mirrored.decliners(E), line.decliners(E)).any()
    assert mirrored.onsets.prefixes["refuse"] == ()  # of completions of one token, which answers share


@pytest.mark.parametrize(("available", "within"), [(True, True), (True, False), (False, False)])
def test_permuted_labels_contrast_what_the_direction_under_the_line_does(loaded: LoadedRun, available, within) -> None:
    written = WriteRecord(available=available, within_label=within)
    line = RunCondition.of_line(loaded, Elicitation(line=MANY, direction=written))
    assert line.loaded.behaviour.by_label == ({E} if available and not within else set())


def test_every_cell_is_ablated_with_its_own_edits(loaded: LoadedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the outcomes and in the onset effects alike, which the null has, too."""
    given, scored = dict[tuple[Kind, CellKey], str](), dict[tuple[Kind, CellKey], str]()
    both = {of.name: of for of in (RunCondition.plain(loaded), RunCondition.of_line(loaded, Elicitation(line=MANY)))}
    for seed, of in enumerate(both.values()):
        streams = np.random.default_rng(seed).normal(size=(len(of.loaded.prompts), 128))
        monkeypatch.setitem(of.loaded.__dict__, "write_activations", lambda layer, own=streams: own)
    locus = Locus("resid_post", 4, "post_last")
    by_kind = {kind: Direction(kind, np.eye(128, dtype=np.float32)[i], locus, 5.0, 2.0) for i, kind in enumerate(KINDS)}
    wanted = {(kind, (name, b)): both[name].edits(kind, by_kind[kind], b)[0].key for kind in KINDS for name, b in CELLS}

    def outcomes(self: RunCondition, rows: np.ndarray, named: dict[str, list[Edit]], task: str) -> dict[Key, Outcomes]:
        b = N if self.loaded.corpus.harmful[rows].all() else E
        kind_of = {name: kind for kind, name in ABLATE.items()}
        given.update({(kind_of[name], (self.name, b)): edits[0].key for name, edits in named.items()})
        return {}

    class Scorer:
        def __init__(self, cell: CellKey) -> None:
            self.cell = cell

        def falls(self, trials: list[list[Edit]]) -> dict[Kind, np.ndarray]:
            scored[now, self.cell] = trials[0][0].key
            return {self.cell[1]: np.zeros(len(trials))}

    monkeypatch.setattr(RunCondition, "outcomes", outcomes)
    _ablated([*both.values()], by_kind)
    for now in KINDS:
        CellEffects([*both.values()], {cell: Scorer(cell) for cell in CELLS}).falls(now, [by_kind[now]])
    assert len({*wanted.values()}) > 4
    assert scored == wanted
    assert given == {key: edit for key, edit in wanted.items() if key != (N, (PLAIN, N))}  # what it does there is known


@pytest.mark.simulation
@pytest.mark.parametrize("stop", [0.02, 0.5])
def test_shuffled_labels_give_a_verdict_no_more_often_than_the_level(stop: float) -> None:
    """Both directions stop the same share of every cell, and p is uniform, as of labels that are shuffled."""
    rng, positive = np.random.default_rng(1), 0
    for _ in range(300):
        each = {key: Effect(rng.random(60) < stop, float(rng.random()), 199) for key in ALL}
        groups = dict.fromkeys(((PLAIN, N), (LINE, N), (LINE, E)), 60)
        verdicts = [of.verdict for of in judge_cells(each, groups, margin=0.15, alpha=0.05).values()]
        positive += agreed(*verdicts) not in ("inconclusive", "no_effect")
    assert positive <= 3
