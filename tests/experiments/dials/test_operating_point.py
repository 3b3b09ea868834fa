"""Thresholds are chosen on choice prompts, certified on others, and limits that cannot be certified are reported."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from experiments.dials.counterfactuals import Counterfactuals, reachable_outcomes
from experiments.dials.operating_point import Targets, choose_thresholds, reachable_costs, reachable_risks
from experiments.dials.results import LARGEST_MARGIN, LEAST_RISE, NONE_WORSE
from experiments.dials.surface import AXES, MEASURED, RISKS, Risk, Surface, expected_cost, rates_of, risk_of
from experiments.run.corpus import Corpus
from extract.prompts.prompt import Prompt
from probes.statistics.tradeoffs import candidate_thresholds
from tests.support.draws import draws

RIGHT = {"benign": "answer", "harmful": "refuse", "uncertain": "abstain"}


def corpus_of(n: int, parts: tuple[str, ...] = ("train", "calibration", "test")) -> Corpus:
    """N prompts of each label in each part, each a group of its own; every second benign one has a known answer."""
    prompts = []
    for p, label, i in product(parts, RIGHT, range(n)):
        answer = "paris" if label == "benign" and i % 2 else None
        said = ({"role": "user", "content": f"{p} {label} {i}"},)
        prompts.append(Prompt(f"{p}-{label}-{i}", said, label, RIGHT[label], answer=answer))
    part = np.repeat(np.array(parts, dtype=object), len(RIGHT) * n)
    return Corpus(tuple(prompts), np.arange(len(prompts)), part)


def table_of(corpus: Corpus, spread: float = 1.2, seed: int = 0) -> Counterfactuals:
    """A model that does what its gates say, and reads that overlap."""
    rng = np.random.default_rng(seed)
    outcomes = reachable_outcomes(2, dead_band=False)
    read = [1 / (1 + np.exp(-(4 * mine - 2 + spread * rng.normal(size=len(corpus)))))
            for mine in (corpus.harmful, corpus.uncertain)]  # fmt: skip
    actions = np.tile(np.array(["refuse", "abstain", "answer"], dtype=object), (len(corpus), 1))
    right = np.zeros(actions.shape, dtype=bool)
    right[:, 2] = [p.answer is not None for p in corpus.prompts]
    return Counterfactuals(("normative", "epistemic"), outcomes, np.stack(read), actions, right)


def sample(n: int, **how: float) -> tuple[Corpus, Counterfactuals]:
    corpus = corpus_of(n)
    return corpus, table_of(corpus, **how)


def risks(table: Counterfactuals, corpus: Corpus, part: str, names: tuple[str, ...] = MEASURED) -> dict[str, Risk]:
    right = np.array([p.answer is not None for p in corpus.prompts])
    return {name: risk_of(name, table, corpus, right, corpus.within(part)) for name in names}


def surface_of(table: Counterfactuals, corpus: Corpus) -> Surface:
    chosen, y_of = corpus.within("train"), (corpus.harmful, corpus.uncertain)
    thresholds = [candidate_thresholds(p[chosen], y[chosen], 24) for p, y in zip(table.probability, y_of, strict=True)]
    return Surface.over(table, thresholds)


def placed(corpus: Corpus, table: Counterfactuals, wanted: Targets, surface: Surface | None = None):
    surface = surface or surface_of(table, corpus)
    choice, held = risks(table, corpus, "train"), risks(table, corpus, "calibration", RISKS)
    return surface, *choose_thresholds(surface, choice, held, corpus, wanted, 0)


def test_rates_are_those_of_counting() -> None:
    corpus, table = sample(40)
    found = rates_of(Surface.over(table, [[0.4], [0.7]]), risks(table, corpus, "test"))
    actions, test = table.actions_at([0.4, 0.7]), corpus.within("test")
    benign, harmful, uncertain = (actions[test & corpus.labelled(label)] for label in RIGHT)
    known = np.array([p.answer is not None for p in corpus.prompts]) & test
    stated = table.right[np.arange(len(table.right)), table.look_up([0.4, 0.7])]
    assert {name: rate[0] for name, rate in found.items()} == {
        "over_refusal": np.mean(benign != "answer"),
        "missed_harm": np.mean(harmful == "answer"),
        "overconfidence": np.mean(uncertain == "answer"),
        "uncertain_refused": np.mean(uncertain == "refuse"),
        "uncertain_mistaken": np.mean(uncertain != "abstain"),
        "facts_lost": np.mean(~stated[known]),
    }
    assert found["uncertain_refused"][0] > 0


def test_what_could_not_be_judged_is_no_answer_and_no_success() -> None:
    corpus, table = sample(10)
    table.actions[corpus.harmful] = None
    surface, held = Surface.over(table, [[0.5], [0.5]]), risks(table, corpus, "calibration")
    assert np.isnan(rates_of(surface, held)["missed_harm"][0])
    assert surface.failures(held["missed_harm"], held["missed_harm"].rows)[0] == 10


def test_limits_that_prompts_bear_out_are_certified_together() -> None:
    corpus = corpus_of(150)
    surface, _, certificate = placed(corpus, table_of(corpus), Targets(dict.fromkeys(RISKS, 0.2), 0.95, None))
    assert (certificate.rule, certificate.jointly) == (LARGEST_MARGIN, list(RISKS))
    assert all(risk.certified and risk.at_most <= 0.2 for risk in certificate.risks.values())
    assert 0 < certificate.settings_certified < certificate.settings_tried == len(surface.settings)


def test_too_few_prompts_are_told_with_the_number_it_would_take() -> None:
    corpus = corpus_of(40)
    wanted = Targets({"over_refusal": 0.2, "missed_harm": 0.01, "facts_lost": 0.1}, 0.95, None)
    *_, certificate = placed(corpus, table_of(corpus, spread=0.2), wanted)
    found = certificate.risks
    assert certificate.jointly == ["over_refusal"]
    harm = found["missed_harm"]
    assert (harm.certified, harm.n_needed, harm.n) == (False, 299, 40)
    assert harm.best_reachable == pytest.approx(1 - 0.05 ** (1 / 40))
    assert found["facts_lost"].n == 20


@pytest.mark.parametrize(
    ("limit", "ceiling", "rule"),
    [(0.001, 0.3, NONE_WORSE), (0.001, 0.0, LEAST_RISE), (0.001, None, LARGEST_MARGIN), (0.9, 0.3, LARGEST_MARGIN)],
    ids=["none within the limits", "all worse", "no ceilings", "some within the limits"],
)
def test_where_no_setting_meets_all_limits_the_fewest_mistakes_with_no_rate_worse(limit, ceiling, rule) -> None:
    corpus, table = sample(100, spread=2.5)
    ceilings = {} if ceiling is None else dict.fromkeys(AXES, ceiling)
    wanted = Targets(dict.fromkeys(RISKS, limit), 0.95, None, ceilings)
    surface, index, certificate = placed(corpus, table, wanted)
    assert certificate.rule == rule
    if rule == LEAST_RISE:
        rates = rates_of(surface, risks(table, corpus, "train"))
        highest = np.max([rates[name] for name in AXES], axis=0)
        assert 0 < highest[index] == highest.min() < highest.max()
    if rule == NONE_WORSE:
        rates = rates_of(surface, risks(table, corpus, "train"))
        safe = np.all([rates[name] <= ceiling for name in AXES], axis=0)
        assert 0 < safe.sum() < len(safe)
        added = sum(rates[name] for name in AXES)
        assert safe[index]
        assert added[index] == pytest.approx(added[safe].min())
        assert added[index] > added.min()  # the best of all makes a rate worse


def test_given_thresholds_are_tried_alone() -> None:
    corpus, table = sample(100)
    surface = Surface.over(table, [[0.9], [0.05]])
    *_, certificate = placed(corpus, table, Targets({"over_refusal": 0.05}, 0.95, None), surface)
    assert (certificate.rule, certificate.settings_tried, certificate.settings_certified) == ("given", 1, 0)
    risk = certificate.risks["over_refusal"]
    assert not risk.certified
    assert risk.n_at_this_rate is None  # it declines far more than that


def test_a_risk_or_cost_that_no_dial_can_move_rightly_has_no_say() -> None:
    limits = dict.fromkeys(RISKS, 0.1)
    assert reachable_risks(limits, ("normative", "epistemic")) == limits
    assert set(reachable_risks(limits, ("normative",))) == set(RISKS) - {"overconfidence"}
    assert set(reachable_risks(limits, ("epistemic",))) == {"over_refusal", "overconfidence", "facts_lost"}
    costs = {"over_refusal": 1.0, "missed_harm": 2.0, "overconfidence": 3.0}
    assert reachable_costs(costs, ("normative",)) == reachable_costs(costs, ("normative", "epistemic")) == costs
    assert reachable_costs(costs, ("epistemic",)) == {"over_refusal": 1.0, "overconfidence": 3.0}


def test_low_overconfidence_is_not_bought_by_refusing() -> None:
    """A model that never abstains: only a refusal keeps it from answering what it does not know."""
    corpus, table = sample(100, spread=0.3)
    table.actions[table.actions == "abstain"] = "answer"
    suspected = np.where(corpus.uncertain, 0.4, table.probability[0])  # between benign and harmful prompts
    bought = replace(table, probability=np.stack([suspected, table.probability[1]]))
    limits = {"over_refusal": 0.2, "missed_harm": 0.2, "overconfidence": 0.2}
    refused = {}
    for name, wanted in (("without", limits), ("with", limits | {"uncertain_refused": 0.1})):
        surface, index, certificate = placed(corpus, bought, Targets(wanted, 0.95, None))
        refused[name] = certificate.risks["uncertain_refused"].failures
        assert rates_of(surface.at([index]), risks(bought, corpus, "train"))["missed_harm"][0] < 0.1
    assert refused == {"without": 100, "with": 0}


def test_a_limit_that_no_setting_meets_is_recorded_with_the_best_rate() -> None:
    corpus, table = sample(60)
    table.actions[corpus.uncertain] = "refuse"
    wanted = Targets({"over_refusal": 0.2, "uncertain_refused": 0.1}, 0.95, None)
    *_, certificate = placed(corpus, table, wanted)
    assert certificate.settings_within_limits == 0
    assert certificate.risks["uncertain_refused"].best_on_choice == 1.0
    assert certificate.risks["over_refusal"].best_on_choice == 0.0
    *_, met = placed(corpus, table_of(corpus), wanted)
    assert met.settings_within_limits


def test_refusing_uncertain_prompts_saves_no_cost() -> None:
    """Answered firmly or refused, an uncertain prompt costs the same; abstaining is the only gain."""
    (corpus, table), costs = sample(30), {"overconfidence": 1.0}
    spent = {}
    for did in ("answer", "refuse", "abstain"):
        made = replace(table, actions=np.where(corpus.uncertain[:, None], did, table.actions).astype(object))
        rates = rates_of(Surface.over(made, [[0.5], [0.5]]), risks(made, corpus, "test"))
        spent[did] = expected_cost(rates, costs)[0]
    assert spent == {"answer": 1.0, "refuse": 1.0, "abstain": 0.0}
    assert AXES == ("over_refusal", "missed_harm", "uncertain_mistaken")


def test_costs_choose_among_what_is_certified() -> None:
    corpus, table = sample(150)
    limits = {"over_refusal": 0.25, "missed_harm": 0.25}
    taus = {}
    for name, costs in (("harm", {"over_refusal": 1, "missed_harm": 20, "overconfidence": 1}),
                        ("decline", {"over_refusal": 20, "missed_harm": 1, "overconfidence": 1})):  # fmt: skip
        surface, index, certificate = placed(corpus, table, Targets(limits, 0.95, costs))
        assert certificate.rule == "least cost"
        assert all(certificate.risks[risk].certified for risk in limits)
        taus[name] = surface.settings[index, 0]
    assert taus["harm"] < taus["decline"]


def test_certification_never_moves_thresholds_without_costs() -> None:
    corpus, table = sample(60)
    wanted = Targets(dict.fromkeys(RISKS, 0.2), 0.95, None)
    surface, index, _ = placed(corpus, table, wanted)
    spoiled = table_of(corpus)
    spoiled.actions[corpus.within("calibration")] = "other"
    _, other, _ = placed(corpus, spoiled, wanted, Surface(surface.settings, surface.outcome))
    assert other == index


def test_where_the_first_pair_fails_costs_take_the_cheapest_within_the_limits() -> None:
    """It is another pair than the first of the path, and each of its limits is certified alone."""
    corpus, table = sample(60)
    failing = table_of(corpus)
    failing.actions[corpus.within("calibration") & corpus.benign] = "refuse"
    limits = {"over_refusal": 0.2, "missed_harm": 0.3}
    surface = surface_of(table, corpus)
    places = {}
    for name, costs in (("without", None), ("with", {"over_refusal": 30.0, "missed_harm": 1.0})):
        _, index, certificate = placed(corpus, failing, Targets(limits, 0.95, costs), surface)
        places[name] = index
        assert certificate.settings_certified == 0
        assert certificate.jointly == []
        assert not certificate.risks["over_refusal"].certified
    assert places["with"] != places["without"]
    rates = rates_of(surface.at([places["with"]]), risks(table, corpus, "train"))
    assert all(rates[name][0] <= limit for name, limit in limits.items())


def _certified(seed: int, limits: Mapping[str, float]) -> tuple[bool, bool]:
    """Run once on a small sample; say whether it certifies, and whether falsely so by the many prompts of `test`."""
    small, many = corpus_of(60, ("train", "calibration")), corpus_of(800, ("test",))
    table, truth = table_of(small, 2.0, seed), table_of(many, 2.0, seed + 10_000)
    p = table.probability[:, small.within("train")]
    surface = Surface.over(table, [np.quantile(each, np.linspace(0, 1, 17)) for each in p])
    costs = {"over_refusal": 1.0, "missed_harm": 1.0, "overconfidence": 1.0}
    choice, held = risks(table, small, "train"), risks(table, small, "calibration", RISKS)
    index, certificate = choose_thresholds(surface, choice, held, small, Targets(limits, 0.9, costs), seed)
    true = rates_of(Surface.over(truth, surface.settings[index][:, None]), risks(truth, many, "test"))
    sure = bool(certificate.jointly)
    return sure, sure and any(true[name][0] > limits[name] for name in limits)


@draws(20, 150)
def test_certificates_hold_at_their_nominal_rate(n_draws) -> None:
    """The controls, in which data are used twice, are in tests/probes/statistics/test_certify.py."""
    found = np.array([_certified(seed, {"over_refusal": 0.25, "missed_harm": 0.2}) for seed in range(n_draws)])
    assert 0.1 < found[:, 0].mean() < 0.95
    assert found[:, 1].mean() <= 0.1 + 2 * np.sqrt(0.1 * 0.9 / n_draws)
