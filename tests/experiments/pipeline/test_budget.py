"""A run cut to fit a time: the least cuts that suffice, in the ladder's order, each with its cost in a sentence."""

import re
import time
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from experiments.dials.write import either_writers
from experiments.dissociation.power import own_effect_power
from experiments.pipeline.budget import (
    LADDER,
    QUESTIONS_LADDER,
    can_be_divided,
    fit_answers,
    fit_questions,
    fit_time,
    left_out,
    powers,
    question_powers,
)
from experiments.pipeline.graph import continued
from experiments.pipeline.machine import Machine
from experiments.pipeline.plan import mean_lengths
from experiments.pipeline.results import write_results
from experiments.pipeline.stages import run
from experiments.probing.stage import candidate_layers
from experiments.report.results import RunResults
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import KINDS, Behaviour
from experiments.run.config import QUESTIONS, BudgetConfig, RunConfig, load_config, with_value
from experiments.run.corpus import Corpus, divide
from experiments.run.inputs import RunInputs
from extract.errors import UserError
from extract.model.chat_model import ChatModel
from extract.model.loading import load_model
from extract.progress import Reporter
from extract.prompts.sources import read_prompts
from extract.shipped import ROOT
from refusal.cli.options import minutes
from tests.support.finished_run import copy_run

LABELS = [300, 150, 150]
QUICK = ROOT / "configs" / "quickstart.yaml"
EVERY = [*QUESTIONS_LADDER, *LADDER]
SLOW = pytest.mark.slow


@pytest.fixture
def config() -> RunConfig:
    return load_config(QUICK, ["generate.max_new_tokens=64"])


def prompts_and_null(config: RunConfig) -> float:
    """Return a made-up duration: minutes for each prompt, null direction and token."""
    limit = config.generate.limit or max(LABELS)
    prompts = sum(min(limit, n) for n in LABELS)
    return prompts * config.generate.max_new_tokens / 1000 + config.dissociate.n_null_onset / 10


def test_cuts_stop_as_soon_as_the_run_fits(config: RunConfig) -> None:
    assert fit_time(config, EVERY, LABELS, prompts_and_null, prompts_and_null(config)) == config
    shorter = fit_time(config, EVERY, LABELS, prompts_and_null, prompts_and_null(config) - 1)
    kept = shorter.dissociate.n_null_onset, shorter.generate.max_new_tokens, shorter.generate.limit
    assert kept == (99, 64, None)
    assert shorter.dissociate.variants  # before the null in the ladder, but it would save nothing here


@pytest.mark.parametrize("most", [60.0, 40.0, 30.0, 15.0, 10.0])
def test_less_time_leaves_no_more_of_anything_and_the_run_fits(config: RunConfig, most: float) -> None:
    more, less = (fit_time(config, EVERY, LABELS, prompts_and_null, budget) for budget in (1.2 * most, most))
    assert prompts_and_null(less) <= most
    for key in ("dissociate.n_null_onset", "generate.max_new_tokens", "triggers.patched", "dissociate.n_onset"):
        assert attrgetter(key)(less) <= attrgetter(key)(more)
    assert (less.generate.limit or 999) <= (more.generate.limit or 999)


@pytest.mark.parametrize(("most", "read", "answered"), [(850, None, 200), (700, 200, 130), (500, 130, 60), (0, 20, 20)])
def test_where_time_is_short_fewer_prompts_are_read(
    config: RunConfig, most: float, read: int | None, answered: int
) -> None:
    """A minute for each prompt that is read, and half of one for each that is answered."""

    def lasts(tried: RunConfig) -> float:
        limits = tried.read_limit or max(LABELS), tried.generate.limit or max(LABELS)
        return sum(min(limits[0], n) + min(limits[1], n) / 2 for n in LABELS)

    cut = fit_time(config, LADDER, LABELS, lasts, most)
    assert (cut.prompts.read, cut.generate.limit) == (read, answered)


def test_where_no_cut_makes_it_fit_all_are_made(config: RunConfig) -> None:
    least = fit_time(config, EVERY, LABELS, prompts_and_null, 0.0)  # 60 prompts of 24 tokens and 19 directions
    assert (least.generate.limit, least.dissociate.n_null_onset, least.dissociate.every) == (20, 19, 1)


def test_prompts_are_not_cut_to_so_few_that_no_run_can_be_made_of_them(config: RunConfig) -> None:
    def works(tried: RunConfig) -> bool:
        return tried.generate.limit is None or tried.generate.limit >= 130

    assert fit_time(config, EVERY, LABELS, prompts_and_null, 10.0).generate.limit == 90  # the control
    assert fit_time(config, EVERY, LABELS, prompts_and_null, 12.0, works).generate.limit == 130
    assert fit_time(config, EVERY, LABELS, prompts_and_null, 0.0, works).generate.limit == 130


def test_parts_and_folds_are_tried_before_prompts_are_cut() -> None:
    path = "prompts.path=organisms/taught/smollm2-natural/prompts.jsonl"
    tried = [load_config(ROOT / "configs/real.yaml", [path, f"prompts.limit={n}"]) for n in (4, 20)]
    corpora = [divide(read_prompts(each.prompts, each.seed), each.prompts, each.seed) for each in tried]
    assert [can_be_divided(*each) for each in zip(corpora, tried, strict=True)] == [False, True]


def test_the_null_keeps_as_many_directions_as_its_level_needs() -> None:
    strict = load_config(QUICK, ["dissociate.alpha=0.01"])
    cut = fit_time(strict, EVERY, LABELS, lambda c: c.dissociate.n_null_onset, 98)
    assert cut.dissociate.n_null_onset == 99


@pytest.mark.parametrize(("every", "layers"), [(1, [1, 2, 4, 5]), (2, [2, 5]), (3, [4]), (9, [5])])
def test_write_directions_are_tried_at_every_so_many_th_layer(every: int, layers: list[int]) -> None:
    config = load_config(QUICK, [f"dissociate.every={every}"])
    store, model = SimpleNamespace(layers=(1, 2, 4, 5, 7)), SimpleNamespace(n_layers=8)
    loaded: Any = SimpleNamespace(config=config, store=store, model=model)
    assert candidate_layers(loaded) == layers  # those below .8 of 8 layers


def test_every_cut_is_a_key_of_the_configuration_and_is_told(config: RunConfig) -> None:
    """Each kind of cut changes the sentences; what costs power says how much."""
    prompts = read_prompts(config.prompts, config.seed)
    corpus = divide(prompts, config.prompts, config.seed)
    told = {}
    for key, lower in reversed(EVERY):
        if key not in told and key != "generate.limit":  # of prompts: below
            told[key] = left_out(config, with_value(config, key, lower), corpus, corpus)
    assert [key for key, sentences in told.items() if len(sentences) != 1] == []
    assert left_out(config, config, corpus, corpus) == ()
    few = config.model_copy(update={"dissociate": config.dissociate.model_copy(update={"n_null_onset": 19})})
    assert left_out(config, few, corpus, corpus) == (  # the power is .99 ** 19: none of 19 may exceed the effect
        "19 of 199 permuted-label directions: p is not below 0.05, and an effect that 1% of them exceed is shown with "
        "a power of 83% instead of 100%.",
    )


def test_fewer_prompts_say_what_power_they_cost(config: RunConfig) -> None:
    whole = divide(read_prompts(config.prompts, 0), config.prompts, 0)
    few = with_value(config, "generate.limit", 60)
    after = whole.drawn(60, None, 0)
    assert after.counts() == {"benign": 120, "harmful": 60, "uncertain": 60}
    (sentence,) = left_out(config, few, whole, after)
    n, of, harmful, all_harmful, uncertain, all_uncertain = (
        int(number) for number in re.findall(r"\d+", sentence.replace(",", ""))
    )
    assert (n, of) == (len(after), len(whole))
    assert harmful < all_harmful
    assert uncertain < all_uncertain
    read = left_out(config, with_value(few, "prompts.read", 130), whole, after)
    assert sentence.startswith(f"{n} of {of:,} prompts are answered; the others are only read. ")
    assert read == (
        "Read probes are fitted and tested on at most 130 prompts of each label for each question.",
        sentence.replace("; the others are only read", ""),
    )
    no_dual_use = with_value(few, "generate.limit_dual_use", 0)
    assert left_out(config, no_dual_use, whole, after)[0].startswith("At most 0 prompts of dual use are answered")
    more, less = ([line for line in powers(config, corpus) if "one-or-two" in line] for corpus in (whole, after))
    for all_of, some in zip(more, less, strict=True):
        assert int(all_of.rpartition(" ")[2][:-1]) >= int(some.rpartition(" ")[2][:-1])


@pytest.mark.parametrize("text", ["", "15", "m", "0m", "-5m", "1.2.3m", "15 minutes", "30m1h"])
def test_times_and_what_is_none(text: str) -> None:
    assert [minutes(time) for time in ("15m", "90s", "2h", "1h30m", "0.5h")] == [15.0, 1.5, 120.0, 90.0, 30.0]
    with pytest.raises(UserError, match="is no time; give hours, minutes or seconds"):
        minutes(text)


@pytest.mark.slow
def test_a_budget_is_chosen_once_for_a_run_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = load_config(QUICK, ["prompts.limit=40"])
    first = fit_answers(config, "report", 600, Reporter())
    assert first.budget is not None
    assert first.budget.left_out == ()
    assert "within the budget; nothing is left out" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"there are 0\.0"):
        fit_answers(config, "report", 600, Reporter(quiet=True, started=time.monotonic() - 36_000))
    assert continued(config, tmp_path, 600) is None
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(first.model_dump(mode="json")))
    assert continued(config, tmp_path, 600) == first
    assert continued(config, tmp_path, 599) is None
    assert continued(load_config(QUICK), tmp_path, 600) is None


def test_one_dial_is_left_out_where_the_run_says_so(config: RunConfig) -> None:
    without = config.model_copy(update={"steer": config.steer.model_copy(update={"one_dial": False})})
    writers = dict.fromkeys(KINDS)
    assert either_writers(SimpleNamespace(config=without), writers) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("loading", "message"),
    [
        ("{}", r"^the weights take 7\.\d MB, and two cores have 1\.0 MB of memory"),
        # weights that are made smaller or spread are not refused: the time is the next thing looked at
        pytest.param(
            "{quantization: {quant_method: bitsandbytes, load_in_4bit: true}}",
            "the fewest prompts takes",
            marks=SLOW,
        ),
        pytest.param("{max_memory: {cpu: 1GiB}}", "the fewest prompts takes", marks=SLOW),
    ],
)
def test_too_little_memory_is_refused_before_the_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, loading: str, message: str
) -> None:
    small = Machine("two cores", "by hand", 1e11, 1e10, 10**6, (0.0, 0.0), 4)
    monkeypatch.setattr("experiments.pipeline.plan.measure_device", lambda device: small)
    with pytest.raises(UserError, match=message):
        fit_answers(load_config(QUICK, [f"model.loading={loading}"]), "report", 1e-4, Reporter(quiet=True))


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("generate.max_new_tokens=2048", "generate.max_new_tokens"),  # a thought would be cut off, and no answer judged
        ("extract.positions=[inst_last]", "dissociate.positions"),
    ],
)
def test_what_a_run_cannot_do_without_is_not_cut(given: str, key: str) -> None:
    config = load_config(QUICK, [given])

    def lasts(tried: RunConfig) -> float:
        return prompts_and_null(tried) + len(tried.dissociate.positions or "12")

    cut = fit_time(config, EVERY, LABELS, lasts, 0.1)
    assert attrgetter(key)(cut) == attrgetter(key)(config)
    assert cut.generate.limit == 20


@pytest.mark.slow
def test_what_was_left_out_is_in_the_results(tmp_path: Path) -> None:
    run = copy_run("small_run", tmp_path / "run", load_model(str(ROOT / "organisms" / "zoo" / "two-knobs")))
    config = load_config(run / "config.yaml")
    for cut in (None, BudgetConfig(minutes=8, of="", left_out=("60 of 90 prompts.",))):
        write_results(RunInputs(config.model_copy(update={"budget": cut}), run))
        assert RunResults.read(run / "results.json").left_out == (cut.left_out if cut else ())


def test_a_question_s_power_is_that_of_what_the_model_declines() -> None:
    config = load_config(QUICK)
    corpus = divide(read_prompts(config.prompts, 0), config.prompts, 0)

    def power(declines: str) -> dict[Any, float]:
        declined = {"harmful": corpus.harmful, "all": corpus.harmful | True, "none": corpus.harmful & False}[declines]
        actions = np.where(declined, "refuse", "answer").astype(object)
        return question_powers(config, corpus, Behaviour(corpus, actions, np.zeros(len(corpus), dtype=bool)))

    assert power("none")["one-or-two"] == 0
    assert power("harmful")["one-or-two"] > 0.9
    assert power("all")["dials"] > 0.9  # over-refusal
    assert power("none")["dials"] > 0.9  # missed harm
    few = (
        own_effect_power(config.dissociate, 22),
        own_effect_power(config.dissociate, 36),
        own_effect_power(config.dissociate, 22, 0.0177),
    )
    assert few == pytest.approx((0.70, 0.92, 0.45), abs=0.02)  # the last at half of the prompts


@pytest.mark.slow
def test_the_questions_are_fitted_to_the_answers(
    tmp_path: Path, two_knobs: ChatModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = {"flops": 1e9, "bandwidth": np.inf, "launch": (0.0, 0.0), "of_model": True}
    monkeypatch.setattr("experiments.pipeline.plan.measured_speed", lambda *given, **_: replace(given[4], **slow))
    given = ["prompts.limit=120", "extract.layers=[2, 4]", "extract.positions=[post_last]"]
    config = load_config(QUICK, given)
    cut = fit_answers(config, "report", 2.0, Reporter(quiet=True))
    assert cut.budget is not None
    assert not cut.budget.answered
    assert cut.ask == config.ask
    opened = list[LoadedRun]()
    for stage in ("extract", "respond"):
        run(cut, tmp_path, until=stage, model=None if opened else two_knobs, opened=opened)
    assert opened[1].model is two_knobs
    assert opened[1].kept is opened[0].kept  # the second goes on from what the first has read
    fitted = fit_questions(RunInputs(cut, tmp_path), "report", Reporter(quiet=True))
    assert fitted.budget is not None
    assert fitted.budget.answered
    assert {question for question in QUESTIONS if question not in fitted.ask}  # two minutes are too few for all
    why = re.search(
        r"is not begun: cut to the least it takes up to (\S+) more minutes", " ".join(fitted.budget.left_out)
    )
    assert why is not None
    assert 0.1 < float(why[1]) < 2
    assert fitted.generate == cut.generate
    assert run(fitted, tmp_path, until="respond", model=two_knobs) == []  # the answers stay

    tokens = np.array([len(said.token_ids) for said in RunInputs(cut, tmp_path).completions])
    declining = RunInputs(cut, tmp_path).behaviour.declining
    assert mean_lengths(RunInputs(cut, tmp_path)) == (tokens[declining].mean(), tokens[~declining].mean())

    answers_all = RunInputs(with_value(cut, "budget.minutes", 1e6), tmp_path)
    nothing = np.full(len(answers_all.prompts), "answer", dtype=object)
    answers_all.__dict__["behaviour"] = replace(answers_all.behaviour, actions=nothing)
    fitted = fit_questions(answers_all, "report", Reporter(quiet=True))
    assert set(fitted.ask) == {"word-or-intent", "dials"}  # there is time for all
    assert mean_lengths(answers_all) == (tokens.mean(), tokens.mean())  # no decline among them
    assert fitted.budget is not None
    assert "one-or-two is not begun: its power is 0%." in fitted.budget.left_out


@dataclass(frozen=True)
class TenEach:
    """Ten minutes for each question."""

    config: RunConfig
    machine: None = None

    def plan(self, *_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(minutes=lambda _: (0.0, 10.0 * len(self.config.ask)))


@dataclass(frozen=True)
class PlannedRun:
    """Ten minutes of questions, and twenty more where abstentions are elicited."""

    config: RunConfig
    machine: None = None

    def plan(self, *_: object, **__: object) -> SimpleNamespace:
        elicited = self.config.elicit.when == "auto" and "one-or-two" in self.config.ask
        return SimpleNamespace(minutes=lambda _: (0.0, 10.0 + 20.0 * elicited))


@pytest.mark.parametrize("abstains", [False, True])
def test_one_or_two_is_left_out_first_where_the_model_declines_in_one_way_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstains: bool
) -> None:
    monkeypatch.setattr("experiments.pipeline.budget.estimate", lambda config, *_, **__: TenEach(config))
    cut = BudgetConfig(minutes=25, of="", left_out=())
    inputs = RunInputs(load_config(QUICK).model_copy(update={"budget": cut}), tmp_path)
    actions = np.where(inputs.corpus.harmful, "refuse", "answer").astype(object)
    actions[inputs.corpus.uncertain & (np.arange(len(actions)) % 2 == 0) & abstains] = "abstain"
    actions[inputs.corpus.benign & (np.arange(len(actions)) % 2 == 0)] = "refuse"  # the dials have something to gain
    inputs.__dict__["behaviour"] = Behaviour(inputs.corpus, actions, np.zeros(len(actions), dtype=bool))
    late = fit_questions(inputs, "report", Reporter(quiet=True, started=time.monotonic() - 600))
    assert len(late.ask) == 1  # ten minutes went before: the first rates, loading
    fitted = fit_questions(inputs, "report", Reporter(quiet=True))
    assert len(fitted.ask) == 2
    assert ("one-or-two" in fitted.ask) == abstains


@pytest.mark.parametrize(
    ("minutes", "limit", "abstains", "when"),
    [
        (60, None, False, "auto"),
        (20, None, False, "never"),  # rather nothing elicited than a question left out
        (60, 12, False, "never"),  # too few uncertain prompts, even if half of them were abstained from
        (20, 12, True, "auto"),  # a model that abstains by itself is not asked
    ],
)
def test_what_a_budget_has_no_time_or_power_for_is_not_elicited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: int, limit: int | None, abstains: bool, when: str
) -> None:
    monkeypatch.setattr("experiments.pipeline.budget.estimate", lambda config, *_, **__: PlannedRun(config))
    cut = BudgetConfig(minutes=minutes, of="", left_out=())
    inputs = RunInputs(load_config(QUICK).model_copy(update={"budget": cut, "ask": QUESTIONS[:1]}), tmp_path)
    if limit is not None and not abstains:
        few = np.flatnonzero(inputs.corpus.uncertain)[limit:]
        rows = np.setdiff1d(np.arange(len(inputs.corpus)), few)
        some = [inputs.prompts[row] for row in rows]
        given = {"prompts": some, "corpus": Corpus(tuple(some), inputs.corpus.groups[rows], inputs.corpus.part[rows])}
        inputs.__dict__ |= given
    actions = np.where(inputs.corpus.harmful, "refuse", "answer").astype(object)
    actions[inputs.corpus.uncertain & (np.arange(len(actions)) % 2 == 0) & abstains] = "abstain"
    inputs.__dict__["behaviour"] = Behaviour(inputs.corpus, actions, np.zeros(len(actions), dtype=bool))
    fitted = fit_questions(inputs, "report", Reporter(quiet=True))
    assert (fitted.elicit.when, fitted.ask) == (
        when,
        QUESTIONS[:1] if (minutes, abstains) != (20, True) else fitted.ask,
    )
    assert fitted.budget is not None
    said = "No system line elicits abstentions, so that there is no verdict on those." in fitted.budget.left_out
    assert said == (when == "never")
