"""Evaluation of the compared policies: two dials, one dial, a system line, the plain model.

One dial is one threshold on both reads and one write direction for both ways of declining. It reads the greater of the
two dials' probabilities, so the comparison is of knobs and not of probes: one linear probe of "harmful or uncertain"
would do worse and make two dials look better. It writes as the two dials do (actuator, strength, steps, layers); where
they bias openings, it biases the openings of both. The write direction is fitted on declined (either way) against
answered prompts, within the strata of the two dials' own write directions, at the locus of one of them. On a model with
one shared knob it is that knob; on a model with two it lies between them. A system line is one more line in the system
message, one point of the trade-off a line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import nan

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from experiments.dials.counterfactuals import Counterfactuals, tabulate
from experiments.dials.operating_point import CERTIFIED_ON, expected_cost, reachable_costs
from experiments.dials.read import CHOICE
from experiments.dials.results import (
    ExpectedCosts,
    Hypervolume,
    LeastRegret,
    MatchedSettings,
    RatedThresholds,
    RiskRates,
    SystemLine,
    SystemLines,
)
from experiments.dials.surface import AXES, MEASURED, RISKS, Risk, Surface, axes_of, comparable, rates_of, risk_of
from experiments.dials.tradeoff import (
    COST_KEYS,
    COST_RATIOS,
    REFERENCE,
    cost_saved,
    frontier,
    frontier_volume,
    least_losses,
)
from experiments.dials.write import direction_writer, onset_bias_writer
from experiments.probing.write_directions import fit_write
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import KINDS, Behaviour, Kind, WriteSamples, write_samples
from experiments.run.completion_file import is_right
from experiments.run.inputs import RunInputs
from extract.chat.render import render
from extract.errors import UserError
from extract.prompts.prompt import Prompt
from probes.statistics.intervals import Estimate
from probes.statistics.tradeoffs import candidate_thresholds, hypervolume
from scoring.rates import joint_rates
from steering.actuator import OnsetBias
from steering.writer import Writer

NAME = "either"
Fields = dict[str, object]  # some fields of `SteerResult`, by name


@dataclass(frozen=True)
class PolicyEvaluation:
    """A table with its surface, and every risk counted on the choice, certification and test prompts."""

    table: Counterfactuals
    surface: Surface
    right: Bool[np.ndarray, " prompts"]  # the plain model states the known answer
    inputs: RunInputs

    def risks(self, *parts: str, names: Sequence[str] = MEASURED) -> dict[str, Risk]:
        corpus = self.inputs.corpus
        among = corpus.within(*parts)
        return {name: risk_of(name, self.table, corpus, self.right, among) for name in names}

    @cached_property
    def choice(self) -> dict[str, Risk]:
        return self.risks(*CHOICE)

    @cached_property
    def certification(self) -> dict[str, Risk]:
        return self.risks(CERTIFIED_ON, names=RISKS)

    @cached_property
    def test(self) -> dict[str, Risk]:
        return self.risks("test")

    @cached_property
    def front(self) -> Int[np.ndarray, " kept"]:
        """Pareto-optimal settings on the choice prompts, as indices into the surface."""
        return frontier(self.surface, self.choice)

    def with_plain(self) -> PolicyEvaluation:
        """Return the policy with one setting more, the last: no dial, so the plain model (its thresholds are NaN)."""
        table, plain, n = self.table, self.inputs.behaviour, len(self.table.outcomes)
        off = np.full((1, len(table.dials)), np.nan)
        outcomes = np.vstack([self.surface.outcome, np.full((1, len(plain.actions)), n, dtype=np.int8)])
        extended = replace(
            table,
            outcomes=(*table.outcomes, ()),
            actions=np.column_stack([table.actions, plain.actions]),
            right=np.column_stack([table.right, plain.correct]),
        )
        return replace(self, table=extended, surface=Surface(np.vstack([self.surface.settings, off]), outcomes))

    def choice_hypervolume(self) -> float:
        """Return the hypervolume of the frontier on the choice prompts."""
        return hypervolume(axes_of(rates_of(self.surface.at(self.front), self.choice)), REFERENCE)


def evaluate(
    inputs: RunInputs, table: Counterfactuals, declining: Sequence[Bool[np.ndarray, " prompts"]]
) -> PolicyEvaluation:
    """Evaluate a table at the candidate thresholds of the choice prompts.

    Args:
        declining: the prompts that each dial should decline.
    """
    chosen = inputs.corpus.rated & inputs.corpus.within(*CHOICE)
    thresholds = [candidate_thresholds(p[chosen], y[chosen]) for p, y in zip(table.probability, declining, strict=True)]
    surface = Surface.over(table, thresholds, inputs.config.steer.band)
    return PolicyEvaluation(table, surface, inputs.behaviour.correct, inputs)


def evaluate_one_dial(
    loaded: LoadedRun, writers: Mapping[Kind, Writer], probability: Float[np.ndarray, " prompts"]
) -> tuple[PolicyEvaluation, Writer] | None:
    """Build the one-dial baseline; of several write loci, the one with the largest hypervolume on the choice prompts.

    Args:
        probability: the probability that it reads.
    """
    candidates = either_writers(loaded, writers)
    if not candidates:
        return None
    made = []
    for writer in candidates:
        table = tabulate(loaded, {NAME: writer}, {NAME: probability}, dead_band=loaded.config.steer.band > 0)
        made.append((evaluate(loaded, table, [~loaded.corpus.benign]), writer))
    return max(made, key=lambda each: each[0].choice_hypervolume())


def evaluate_fixed(
    inputs: RunInputs, points: Sequence[LineResponses], rows: Int[np.ndarray, " rows"]
) -> PolicyEvaluation:
    """Evaluate responses that depend on no threshold, one point each.

    Args:
        rows: the prompts they answer, into the corpus.
    """
    n, k = len(inputs.prompts), len(points)
    did, stated = np.full((n, k), None, dtype=object), np.zeros((n, k), dtype=bool)
    for column, point in enumerate(points):
        did[rows, column], stated[rows, column] = point.actions, point.right
    table = Counterfactuals((), tuple(() for _ in range(k)), np.zeros((0, n)), did, stated)
    surface = Surface(np.zeros((k, 0)), np.repeat(np.arange(k, dtype=np.int8)[:, None], n, axis=1))
    return PolicyEvaluation(table, surface, inputs.behaviour.correct, inputs)


def setting_at(policy: PolicyEvaluation, index: int) -> RatedThresholds:
    """Return a setting with its rates on the choice prompts and on test."""
    here = policy.surface.at([index])
    return RatedThresholds(
        thresholds={name: float(tau) for name, tau in zip(policy.table.dials, here.settings[0], strict=True)},
        choice=_rates(here, policy.choice),
        test=_rates(here, policy.test),
    )


def _rates(here: Surface, risks: Mapping[str, Risk]) -> RiskRates:
    rates = {name: float(rate[0]) for name, rate in rates_of(here, risks).items()}
    return {name: None if np.isnan(rate) else rate for name, rate in rates.items()}


def matched_setting(policy: PolicyEvaluation, most: float) -> int:
    """Return the setting with the fewest other mistakes among those with over-refusal of at most `most`.

    Both are measured on the choice prompts. Where every setting exceeds `most`, the one with the least over-refusal.
    """
    points = comparable(axes_of(rates_of(policy.surface, policy.choice)))
    declined, others = points[:, 0], points[:, 1:].sum(axis=1)
    return int(np.lexsort((declined, others.round(9), np.maximum(declined - most, 0).round(9)))[0])


def either_samples(behaviour: Behaviour) -> WriteSamples | None:
    """Join the samples of both write directions, each in its own strata; None where the model never declines."""
    by_kind = [(kind, samples) for kind in KINDS if (samples := write_samples(behaviour, kind))]
    if not by_kind:
        return None
    strata = [f"{kind}/{name}" for kind, samples in by_kind for name in samples.strata]
    rows = np.concatenate([samples.rows for _, samples in by_kind])
    return WriteSamples(
        rows,
        np.concatenate([samples.declined for _, samples in by_kind]),
        np.array(strata, dtype=object),
        behaviour.corpus.groups_among(rows),
        all(samples.within_label for _, samples in by_kind),
    )


def either_writers(inputs: RunInputs, writers: Mapping[Kind, Writer]) -> list[Writer]:
    """Return the candidate writers: a direction at each locus where one of the two writes, or all their openings.

    A writer at the normative dial's locus also opens what that dial opens, so that thresholds are compared, not writes.

    There are none if the model never declines, or the run leaves this baseline out.
    """
    if not inputs.config.steer.one_dial:
        return []
    config, samples = inputs.config.steer, either_samples(inputs.behaviour)
    biases = [writer.actuator for writer in writers.values() if isinstance(writer.actuator, OnsetBias)]
    if biases:
        return [onset_bias_writer(config, [prefix for bias in biases for prefix in bias.prefixes])]
    if samples is None:
        return []
    places = dict.fromkeys(writer.direction.locus for writer in writers.values() if writer.direction)
    later = inputs.store.layers if config.layers == "later" else ()
    fitted = [fit_write(inputs.store.read, locus, "normative", samples, later) for locus in places]
    opening = {writer.direction.locus: writer.opening for writer in writers.values() if writer.direction}
    return [
        replace(direction_writer(config, replace(direction, name=f"{NAME}_write")), opening=opening[locus])
        for locus, direction in zip(places, fitted, strict=True)
        if direction is not None
    ]


@dataclass(frozen=True)
class LineResponses:
    """The responses under one system line; an empty one is none."""

    line: str
    actions: Shaped[np.ndarray, " rows"]  # object: action names, None where unjudged
    right: Bool[np.ndarray, " rows"]  # the known answer is stated


def with_line(prompt: Prompt, line: str) -> Prompt:
    """Return the prompt with a line at the start of its system message; without one, a system message is added."""
    first = prompt.messages[0]
    if first["role"] == "system":
        return replace(prompt, messages=({**first, "content": f"{line}\n{first['content']}"}, *prompt.messages[1:]))
    return replace(prompt, messages=({"role": "system", "content": line}, *prompt.messages))


def ask_under_lines(
    loaded: LoadedRun, lines: Sequence[str], rows: Int[np.ndarray, " rows"]
) -> tuple[list[LineResponses], str]:
    """Ask some prompts again with each system line; return the responses, or the reason why there are none."""
    asked = [loaded.prompts[row] for row in rows]
    responses = []
    try:
        rendered = {line: [render(loaded.model.tokenizer, with_line(p, line)) for p in asked] for line in lines}
    except UserError as error:
        return [], f"the chat template takes no system message ({error}); model.system=merge puts it into the user turn"
    with loaded.reporter.task("test prompts under system lines", len(lines) * len(asked)) as advance:
        for line, given in rendered.items():
            prompts = [with_line(p, line) for p in asked]
            completer = replace(loaded.completer, prompts=prompts, rendered=given)
            completions = completer.complete(range(len(asked)), advance=advance)
            right = np.array([is_right(c, p) for c, p in zip(completions, asked, strict=True)], dtype=bool)
            responses.append(LineResponses(line, np.array([c.action for c in completions], dtype=object), right))
    return responses, ""


def tradeoff(loaded: LoadedRun, dials: PolicyEvaluation, writers: Mapping[Kind, Writer], most: float) -> Fields:
    """Compare the dials with one dial, with system lines and with the plain model; return fields of `SteerResult`.

    Args:
        most: the dials' over-refusal on the choice prompts, at which the policies are also compared.
    """
    test = np.flatnonzero(loaded.corpus.rated & loaded.corpus.within("test"))
    single = evaluate_one_dial(loaded, writers, dials.table.probability.max(axis=0))
    lines, reason = ask_under_lines(loaded, loaded.config.steer.system_lines, test)
    shown = {"two_dials": dials} | ({"one_dial": single[0]} if single else {})
    without = loaded.behaviour
    plain = evaluate_fixed(
        loaded, [LineResponses("", without.actions, without.correct)], np.arange(len(loaded.prompts))
    )
    written = single[1].direction if single else None
    best = {name: setting_at(one, matched_setting(one, most)) for name, one in shown.items()}
    return {
        "frontier": {name: [setting_at(one, index) for index in one.front] for name, one in shown.items()},
        "system_lines": SystemLines(reason=reason, points=[_of_line(loaded, line, test) for line in lines]),
        "hypervolume": _hypervolumes(shown, plain, evaluate_fixed(loaded, lines, test) if lines else None),
        "expected_costs": expected_costs(loaded, shown, plain),
        "one_dial_written_at": written.locus if written else None,
        "matched": MatchedSettings.model_validate({"over_refusal_at_most": most, **best}),
        "least_regret": least_regret(loaded, dials),
    }


def _hypervolumes(
    shown: Mapping[str, PolicyEvaluation], plain: PolicyEvaluation, lines: PolicyEvaluation | None
) -> Hypervolume:
    """Return the hypervolume of every policy; the plain model is a point of each, since a dial can be off."""
    extended = {name: one.with_plain() for name, one in shown.items()}
    fronts = {name: np.append(shown[name].front, len(one.surface.settings) - 1) for name, one in extended.items()}
    volumes = {name: frontier_volume(one.surface.at(fronts[name]), one.test) for name, one in extended.items()}
    if lines is not None:
        volumes["system_lines"] = frontier_volume(lines.with_plain().surface, lines.with_plain().test)
    volumes["plain"] = frontier_volume(plain.surface, plain.test)
    estimates = {name: volume.estimate for name, volume in volumes.items()}
    return Hypervolume.model_validate(
        {
            "axes": AXES,
            "reference": REFERENCE,
            "n": {name: len(risk.rows) for name, risk in plain.test.items()},
            **volumes,
            "two_minus": {
                name: Estimate(estimates["two_dials"] - volume, nan, nan)
                for name, volume in estimates.items()
                if name != "two_dials"
            },
        }
    )


def expected_costs(inputs: RunInputs, shown: Mapping[str, PolicyEvaluation], plain: PolicyEvaluation) -> ExpectedCosts:
    """Compare least expected costs on test of two dials with those of the other policies; each dial can be off."""
    costs = _costs(inputs, shown["two_dials"])
    policies = {name: one.with_plain() for name, one in shown.items()} | {"plain": plain}
    losses = {name: least_losses(one.surface, one.choice, one.test, costs) for name, one in policies.items()}
    groups, two = inputs.corpus.groups, losses["two_dials"]
    saved = {name: cost_saved(two, other, groups) for name, other in losses.items() if other is not two}
    return ExpectedCosts(
        costs=costs,
        ratios=list(COST_RATIOS),
        policies={name: None if np.isnan(cost := each.expected_cost()) else cost for name, each in losses.items()},
        saved=saved,
    )


def _costs(inputs: RunInputs, dials: PolicyEvaluation) -> dict[str, float]:
    """Return the given costs that the dials can save, or equal ones."""
    given = inputs.config.steer.costs
    return reachable_costs(dict.fromkeys(COST_KEYS, 1.0) if given is None else given.model_dump(), dials.table.dials)


def least_regret(inputs: RunInputs, dials: PolicyEvaluation) -> LeastRegret:
    """Return the cheapest setting on the choice prompts, its cost on test, and its regret against the least there."""
    costs = _costs(inputs, dials)
    on_choice = expected_cost(rates_of(dials.surface, dials.choice), costs)
    near = np.abs(dials.surface.settings - 0.5).sum(axis=1)
    index = int(np.lexsort((near, on_choice.round(9)))[0])
    on_test = expected_cost(rates_of(dials.surface, dials.test), costs)
    here = setting_at(dials, index)
    return LeastRegret(
        thresholds=here.thresholds,
        choice=here.choice,
        test=here.test,
        costs=costs,
        cost=float(on_test[index]),
        regret=float(on_test[index] - on_test.min()),
    )


def _of_line(inputs: RunInputs, line: LineResponses, rows: Int[np.ndarray, " rows"]) -> SystemLine:
    labels = [inputs.prompts[row].label for row in rows]
    facts = np.array([inputs.prompts[row].answer is not None for row in rows], dtype=bool)
    right = float(line.right[facts].mean()) if facts.any() else None
    rates = joint_rates(labels, list(line.actions), inputs.corpus.groups[rows])
    return SystemLine(line=line.line, rates=rates, known_facts_right=right)
