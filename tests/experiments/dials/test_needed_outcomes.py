"""Outcomes are generated as far as results rest on them, which are those of the whole table."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments.dials import needed_outcomes
from experiments.dials.counterfactuals import Counterfactuals, reachable_outcomes
from experiments.dials.needed_outcomes import settle_dials, settle_one_dial
from experiments.dials.operating_point import Targets, choose_thresholds
from experiments.dials.policies import (
    PolicyEvaluation,
    costs_of,
    evaluate,
    evaluate_fixed,
    expected_costs,
    least_regret,
    matched_setting,
    setting_at,
)
from experiments.dials.results import NONE_WORSE
from experiments.dials.stage import _allowed, _surface_rows
from experiments.dials.surface import cheapest, cost_shares, rates_of
from experiments.run.config import SteerConfig
from experiments.run.corpus import Corpus
from experiments.run.outcomes import Outcomes
from extract.progress import Reporter
from tests.experiments.dials.test_operating_point import corpus_of

pytestmark = pytest.mark.slow

COSTS = {"over_refusal": 1, "missed_harm": 10, "overconfidence": 2}
CEILINGS = {"over_refusal": 0.35, "missed_harm": 0.6, "overconfidence": 0.6}
CASES = {  # spread of the reads, of outcomes that are what the gates decide the share, `steer`, most outcomes of all
    "clear": (0.6, 1.0, {}, 0.55),
    "clear, loose limits": (
        0.6,
        1.0,
        {"max_over_refusal": 0.3, "max_missed_harm": 0.3, "max_overconfidence": 0.4},
        0.65,
    ),
    "unruly, a dead band": (0.9, 0.9, {"band": 0.1}, 0.6),
    "blurred, costs": (2.0, 0.95, {"costs": COSTS}, 0.85),
    "blurred, one threshold given": (2.0, 1.0, {"normative_threshold": 0.37}, 0.8),
    "poor": (3.4, 0.9, {}, 0.9),
    "poor, none worse": (3.4, 0.9, {"max_over_refusal": 0.01}, 0.95),
    "clear, none worse": (0.6, 0.7, {"max_over_refusal": 0.01}, 0.95),
    "no limits": (1.2, 1.0, {f"max_{name}": None for name in SteerConfig().limits}, 0.8),
}


@dataclass
class Whole:
    """Stands in for the model: outcomes come from a whole table."""

    table: Counterfactuals
    loaded: Any
    generated: int = 0

    def generate(self, table: Counterfactuals, cells: np.ndarray, advance: object) -> Counterfactuals:
        self.generated += int((cells & ~table.known).sum())
        known = table.known | cells
        actions = np.where(known, self.table.actions, None)
        return replace(table, actions=actions, right=self.table.right & known, generated=known)

    def start(self) -> Counterfactuals:
        return replace(self.table, generated=np.zeros(self.table.right.shape, dtype=bool))


def made_up(spread: float, obeyed: float, steer: dict[str, Any], *_: float) -> tuple[Any, Counterfactuals]:
    corpus, rng = corpus_of(60), np.random.default_rng(0)
    read = [1 / (1 + np.exp(-(4 * mine - 2 + spread * rng.normal(size=len(corpus)))))
            for mine in (corpus.harmful, corpus.uncertain)]  # fmt: skip
    outcomes = reachable_outcomes(2, dead_band="band" in steer)
    did = [("refuse", "abstain")[gates.index(1)] if 1 in gates else "answer" for gates in outcomes]
    actions = np.tile(np.array(did, dtype=object), (len(corpus), 1))
    unruly = rng.random(actions.shape) > obeyed
    actions[unruly] = rng.choice(np.array(["refuse", "abstain", "answer", None], dtype=object), unruly.sum())
    known = np.array([prompt.answer is not None for prompt in corpus.prompts])
    table = Counterfactuals(
        ("normative", "epistemic"), outcomes, np.stack(read), actions, known[:, None] & (actions == "answer")
    )
    plain = np.where(corpus.harmful, "refuse", "answer").astype(object)
    config = SimpleNamespace(seed=0, steer=SteerConfig(**steer), generate=SimpleNamespace(batch_size=32))
    behaviour = SimpleNamespace(actions=plain, correct=known)
    return SimpleNamespace(
        config=config, corpus=corpus, prompts=list(corpus.prompts), behaviour=behaviour, reporter=Reporter(quiet=True)
    ), table


def chosen(policy: PolicyEvaluation, thresholds: list[float]) -> list[Any]:
    """Every setting that is compared, with its rates on the choice prompts and on test."""
    surface, choice, costs = policy.surface, policy.choice, costs_of(policy.inputs, policy)
    places = [*cheapest(surface, choice, cost_shares(costs))]
    if thresholds:
        places += np.flatnonzero((surface.settings == thresholds).all(axis=1)).tolist()
        over_refusal = float(rates_of(surface.at(places[-1:]), choice)["over_refusal"][0])
        places.append(matched_setting(surface, choice, over_refusal))
    plain = policy.inputs.behaviour
    fixed = evaluate_fixed(policy.inputs, [Outcomes.of(np.arange(len(plain.actions)), plain.actions, plain.correct)])
    compared = expected_costs(policy.inputs, {"two_dials": policy}, fixed).to_dict()
    regret = least_regret(policy.inputs, policy).to_dict()
    del regret["regret"]  # against the best of all settings there are
    return [*(setting_at(policy, i).to_dict() for i in places), compared, regret]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_chosen_and_certified_is_as_from_the_whole_table(case) -> None:
    inputs, table = made_up(*case)
    corpus: Corpus = inputs.corpus
    whole = evaluate(inputs, table, [corpus.harmful, corpus.uncertain])
    costs = inputs.config.steer.costs and inputs.config.steer.costs.model_dump()
    targets = Targets(inputs.config.steer.limits, 0.95, costs, CEILINGS if "max_over_refusal" in case[2] else {})
    allowed = _allowed(whole, targets)
    index, certificate = choose_thresholds(allowed, whole.choice, whole.certification, corpus, targets, 0)
    model = Whole(table, inputs)
    empty = replace(whole, table=model.start())
    with pytest.raises(ValueError, match="over_refusal: outcomes were not generated at some of these settings"):
        rates_of(whole.surface, empty.choice)  # the control
    policy, thresholds, found = settle_dials(empty, _allowed(empty, targets), targets, model)
    assert thresholds == allowed.settings[index].tolist()
    assert found == certificate
    assert (found.rule == NONE_WORSE) == (case[2].get("max_over_refusal") == 0.01)
    assert model.generated < case[-1] * table.actions.size, model.generated / table.actions.size
    on_grid = thresholds if "normative_threshold" not in case[2] else []
    assert chosen(policy, on_grid) == chosen(whole, on_grid)
    rows = _surface_rows(policy, thresholds, inputs.config.steer.band)  # every prompt has its outcome at all of them
    assert len(rows) >= len(policy.surface.settings) > 1


def test_one_dial_is_compared_at_thresholds_around_what_its_places_rest_on(monkeypatch) -> None:
    inputs, table = made_up(1.2, 1.0, {})
    dials = evaluate(inputs, table, [inputs.corpus.harmful, inputs.corpus.uncertain])
    declined = np.where(inputs.corpus.harmful, "refuse", "abstain").astype(object)
    opened = {"late": np.full(len(declined), "answer"), "early": np.where(np.arange(len(declined)) % 5, "answer", None)}
    made = {name: Counterfactuals(("either",), ((1,), (-1,)), table.probability.max(axis=0)[None],
                                  np.column_stack([declined, did]).astype(object), np.zeros((len(did), 2), dtype=bool))
            for name, did in opened.items()}  # fmt: skip
    models = {name: Whole(one, inputs) for name, one in made.items()}
    monkeypatch.setattr(needed_outcomes, "either_writers", lambda *_: list(models))
    monkeypatch.setattr(needed_outcomes, "OutcomeGenerator", lambda _loaded, writers, _band: models[writers[0][1]])
    for model in models.values():
        model.start = lambda _, model=model: replace(
            model.table, generated=np.zeros(model.table.right.shape, dtype=bool)
        )
    policy, writer = settle_one_dial(inputs, {}, dials, 0.05)
    whole = evaluate(inputs, made[writer], [~inputs.corpus.benign])
    assert writer == "late"  # the other leaves a fifth of what it permits unjudged
    assert 0 < model.generated < made[writer].actions.size
    costs = cost_shares(costs_of(inputs, dials))

    def compared(one: PolicyEvaluation) -> list[float]:
        places = [matched_setting(one.surface, one.choice, 0.05), *cheapest(one.surface, one.choice, costs)]
        return one.surface.settings[places, 0].tolist()

    assert compared(policy) == compared(whole)
