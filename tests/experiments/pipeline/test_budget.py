"""A run cut to fit a time: the least cuts that suffice, in the ladder's order, each with its cost in a sentence."""

import re
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from experiments.dials.write import either_writers
from experiments.pipeline.budget import LADDER, can_be_divided, fit_budget, fit_time, left_out
from experiments.pipeline.graph import continued
from experiments.pipeline.machine import Machine
from experiments.pipeline.results import write_results
from experiments.report.results import RunResults
from experiments.run.config import BudgetConfig, RunConfig, load_config, with_value
from experiments.run.corpus import divide
from experiments.run.inputs import RunInputs
from extract.errors import UserError
from extract.model.loading import load_model
from extract.progress import Reporter
from extract.prompts.sources import read_prompts
from extract.shipped import ROOT
from refusal.cli.options import minutes
from tests.support.finished_run import copy_run

LABELS = [300, 150, 150]
QUICK = ROOT / "configs" / "quickstart.yaml"
LEAST, SLOW = "the least run takes", pytest.mark.slow


@pytest.fixture
def config() -> RunConfig:
    return load_config(QUICK, ["generate.max_new_tokens=64"])


def prompts_and_null(config: RunConfig) -> float:
    """Return a made-up duration: minutes for each prompt, null direction and token."""
    limit = config.generate.limit or max(LABELS)
    prompts = sum(min(limit, n) for n in LABELS)
    return prompts * config.generate.max_new_tokens / 1000 + config.dissociate.n_null_onset / 10


def test_cuts_stop_as_soon_as_the_run_fits(config: RunConfig) -> None:
    assert fit_time(config, 24, LABELS, prompts_and_null, prompts_and_null(config)) == config
    shorter = fit_time(config, 24, LABELS, prompts_and_null, prompts_and_null(config) - 1)
    kept = shorter.dissociate.n_null_onset, shorter.generate.max_new_tokens, shorter.generate.limit
    assert kept == (99, 64, None)
    assert shorter.dissociate.variants  # before the null in the ladder, but it would save nothing here


@pytest.mark.parametrize("most", [60.0, 40.0, 30.0, 15.0, 10.0])
def test_less_time_leaves_no_more_of_anything_and_the_run_fits(config: RunConfig, most: float) -> None:
    more, less = (fit_time(config, 24, LABELS, prompts_and_null, budget) for budget in (1.2 * most, most))
    assert prompts_and_null(less) <= most
    for key in ("dissociate.n_null_onset", "generate.max_new_tokens", "triggers.patched", "dissociate.n_onset"):
        assert attrgetter(key)(less) <= attrgetter(key)(more)
    assert (less.generate.limit or 999) <= (more.generate.limit or 999)
    assert len(less.extract.layers or range(24)) <= len(more.extract.layers or range(24))


def test_what_no_cut_makes_fit_is_refused_with_the_least_time_it_takes(config: RunConfig) -> None:
    whole = fit_time(config, 24, LABELS, prompts_and_null, 3.4)  # 60 prompts of 24 tokens and 19 directions: 3.34
    with pytest.raises(UserError, match=r"the least run takes about 3\.3 minutes .* and there are 3\.2"):
        fit_time(config, 24, LABELS, prompts_and_null, 3.2)
    assert whole.generate.limit == 20


def test_prompts_are_not_cut_to_so_few_that_no_run_can_be_made_of_them(config: RunConfig) -> None:
    def works(tried: RunConfig) -> bool:
        return tried.generate.limit is None or tried.generate.limit >= 130

    assert fit_time(config, 24, LABELS, prompts_and_null, 10.0).generate.limit == 90  # the control
    assert fit_time(config, 24, LABELS, prompts_and_null, 12.0, works).generate.limit == 130
    with pytest.raises(UserError, match="the least run takes about"):
        fit_time(config, 24, LABELS, prompts_and_null, 10.0, works)


def test_parts_and_folds_are_tried_before_prompts_are_cut() -> None:
    path = "prompts.path=organisms/taught/smollm2-natural/prompts.jsonl"
    tried = [load_config(ROOT / "configs/real.yaml", [path, f"prompts.limit={n}"]) for n in (4, 20)]
    corpora = [divide(read_prompts(each.prompts, each.seed), each.prompts, each.seed) for each in tried]
    assert [can_be_divided(*each) for each in zip(corpora, tried, strict=True)] == [False, True]


def test_the_null_keeps_as_many_directions_as_its_level_needs() -> None:
    strict = load_config(QUICK, ["dissociate.alpha=0.01"])
    cut = fit_time(strict, 24, LABELS, lambda c: c.dissociate.n_null_onset, 99)
    assert cut.dissociate.n_null_onset == 99
    with pytest.raises(UserError, match="the least run"):
        fit_time(strict, 24, LABELS, lambda c: c.dissociate.n_null_onset, 98)


def test_layers_are_thinned_evenly_and_never_to_fewer_than_six() -> None:
    def layers(n: int, least: int, given: str = "null") -> tuple[int, ...] | None:
        config = load_config(QUICK, [f"extract.layers={given}"])
        return fit_time(config, n, LABELS, lambda c: len(c.extract.layers or range(n)), least).extract.layers

    assert layers(30, 7) == (3, 7, 11, 15, 19, 23, 27)
    assert layers(30, 6) == (4, 9, 14, 19, 24, 29)
    assert layers(16, 8) == (1, 3, 5, 7, 9, 11, 13, 15)
    with pytest.raises(UserError, match=r"the least run takes about 8\.0 minutes"):
        layers(8, 7)
    assert layers(30, 7, "[1, 3, 5, 7, 9, 11, 13]") == (1, 3, 5, 7, 9, 11, 13)


def test_every_cut_is_a_key_of_the_configuration_and_is_told(config: RunConfig) -> None:
    """Each kind of cut changes the sentences; what costs power says how much."""
    prompts = read_prompts(config.prompts, config.seed)
    corpus = divide(prompts, config.prompts, config.seed)
    told = {}
    for key, lower in LADDER:
        attrgetter(key)(config)
        if key not in told and key != "generate.limit":  # of prompts: below
            value = (3, 7) if key == "extract.layers" else tuple(lower) if isinstance(lower, list) else lower
            section, name = key.split(".")
            changed = getattr(config, section).model_copy(update={name: value})
            told[key] = left_out(config, config.model_copy(update={section: changed}), corpus, corpus, 8)
    assert [key for key, sentences in told.items() if len(sentences) != 1] == []
    assert left_out(config, config, corpus, corpus, 8) == ()
    few = config.model_copy(update={"dissociate": config.dissociate.model_copy(update={"n_null_onset": 19})})
    assert left_out(config, few, corpus, corpus, 8) == (  # the power is .99 ** 19: none of 19 may exceed the effect
        "19 of 199 permuted-label directions: p is not below 0.05, and an effect that 1% of them exceed is shown with "
        "a power of 83% instead of 100%.",
    )


def test_fewer_prompts_say_what_power_they_cost(config: RunConfig) -> None:
    whole = divide(read_prompts(config.prompts, 0), config.prompts, 0)
    few = with_value(config, "generate.limit", 60)
    after = whole.drawn(60, None, 0)
    assert after.counts() == {"benign": 120, "harmful": 60, "uncertain": 60}
    first, harmful, uncertain = left_out(config, few, whole, after, 8)
    assert first == f"{len(after)} of {len(whole)} prompts are answered; the others are only read."
    no_dual_use = with_value(few, "generate.limit_dual_use", 0)
    assert left_out(config, no_dual_use, whole, after, 8)[0].startswith(
        "At most 0 prompts of dual use are answered; they"
    )
    for sentence, label in ((harmful, "harmful"), (uncertain, "uncertain")):
        assert f"independent {label} prompts" in sentence
        n, of, *_, power, whole_power = (int(number) for number in re.findall(r"\d+", sentence))
        assert n < of
        assert power < whole_power <= 100


@pytest.mark.parametrize("text", ["", "15", "m", "0m", "-5m", "1.2.3m", "15 minutes", "30m1h"])
def test_times_and_what_is_none(text: str) -> None:
    assert [minutes(time) for time in ("15m", "90s", "2h", "1h30m", "0.5h")] == [15.0, 1.5, 120.0, 90.0, 30.0]
    with pytest.raises(UserError, match="is no time; give hours, minutes or seconds"):
        minutes(text)


@pytest.mark.slow
def test_a_budget_is_chosen_once_for_a_run_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = load_config(QUICK, ["prompts.limit=40"])
    first = fit_budget(config, tmp_path, "report", 600, Reporter())
    assert first.budget is not None
    assert first.budget.left_out == ()
    assert "within the budget; nothing is left out" in capsys.readouterr().err
    assert continued(config, tmp_path, 600) is None
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(first.model_dump(mode="json")))
    assert continued(config, tmp_path, 600) == first
    assert continued(config, tmp_path, 599) is None
    assert continued(load_config(QUICK), tmp_path, 600) is None


def test_one_dial_is_left_out_where_the_run_says_so(config: RunConfig) -> None:
    without = config.model_copy(update={"steer": config.steer.model_copy(update={"one_dial": False})})
    assert either_writers(SimpleNamespace(config=without), {}) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("loading", "message"),
    [
        ("{}", r"^the weights take 7\.\d MB, and two cores have 1\.0 MB of memory"),
        # weights that are made smaller or spread are not refused: the least run is the next thing that is looked at
        pytest.param(
            "{quantization: {quant_method: bitsandbytes, load_in_4bit: true}}", "the least run takes", marks=SLOW
        ),
        pytest.param("{max_memory: {cpu: 1GiB}}", "the least run takes", marks=SLOW),
    ],
)
def test_too_little_memory_is_refused_before_the_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loading: str, message: str
) -> None:
    small = Machine("two cores", "by hand", 1e11, 1e10, 10**6, (0.0, 0.0), 4)
    monkeypatch.setattr("experiments.pipeline.plan.measure_device", lambda device: small)
    with pytest.raises(UserError, match=message):
        fit_budget(load_config(QUICK, [f"model.loading={loading}"]), tmp_path, "report", 1e-4, Reporter(quiet=True))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("generate.max_new_tokens=2048", "generate.max_new_tokens"),  # a thought would be cut off, and no answer judged
        ("dissociate.layers=later", "extract.layers"),  # which writes at every layer
        ("steer.layers=later", "extract.layers"),
        ("extract.positions=[inst_last]", "dissociate.positions"),
    ],
)
def test_what_a_run_cannot_do_without_is_not_cut(given: str, key: str) -> None:
    config = load_config(QUICK, [given])

    def lasts(tried: RunConfig) -> float:
        layers, positions = tried.extract.layers or range(24), tried.dissociate.positions or "12"
        return prompts_and_null(tried) + len(layers) + len(positions)

    with pytest.raises(UserError, match="the least run") as caught:
        fit_time(config, 24, LABELS, lasts, 0.1)
    least = float(str(caught.value).split()[5])
    cut = fit_time(config, 24, LABELS, lasts, least + 0.06)  # the message rounds
    assert attrgetter(key)(cut) == attrgetter(key)(config)
    assert cut.generate.limit == 20


@pytest.mark.slow
def test_what_was_left_out_is_in_the_results(tmp_path: Path) -> None:
    run = copy_run("small_run", tmp_path / "run", load_model(str(ROOT / "organisms" / "zoo" / "two-knobs")))
    config = load_config(run / "config.yaml")
    for cut in (None, BudgetConfig(minutes=8, of="", left_out=("60 of 90 prompts.",))):
        write_results(RunInputs(config.model_copy(update={"budget": cut}), run))
        assert RunResults.read(run / "results.json").left_out == (cut.left_out if cut else ())
