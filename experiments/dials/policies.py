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

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from experiments.dials.counterfactuals import Counterfactuals, tabulate
from experiments.dials.operating_point import CERTIFIED_ON
from experiments.dials.read import CHOICE
from experiments.dials.results import RiskRates, Setting
from experiments.dials.surface import MEASURED, RISKS, Risk, Surface, axes_of, comparable, rates_of, risk_of
from experiments.dials.tradeoff import REFERENCE, frontier
from experiments.dials.write import direction_writer, onset_bias_writer
from experiments.probing.write_directions import fit_write
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import KINDS, Behaviour, Kind, WriteSamples, write_samples
from experiments.run.completion_file import is_right
from experiments.run.inputs import RunInputs
from extract.chat.render import render
from extract.errors import UserError
from extract.prompts.prompt import Prompt
from probes.statistics.tradeoffs import candidate_thresholds, hypervolume
from steering.actuator import OnsetBias
from steering.writer import Writer

NAME = "either"


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


def setting_at(policy: PolicyEvaluation, index: int) -> Setting:
    """Return a setting with its rates on the choice prompts and on test."""
    here = policy.surface.at([index])
    return Setting(
        thresholds={name: float(tau) for name, tau in zip(policy.table.dials, here.settings[0], strict=True)},
        choice=_rates(here, policy.choice),
        test=_rates(here, policy.test),
    )


def _rates(here: Surface, risks: Mapping[str, Risk]) -> RiskRates:
    found = {name: float(rate[0]) for name, rate in rates_of(here, risks).items()}
    return {name: None if np.isnan(rate) else rate for name, rate in found.items()}


def matched_setting(policy: PolicyEvaluation, most: float) -> int:
    """Return the setting with the fewest other mistakes among those with over-refusal of at most `most`.

    Both are measured on the choice prompts. Where every setting exceeds `most`, the one with the least over-refusal.
    """
    points = comparable(axes_of(rates_of(policy.surface, policy.choice)))
    declined, others = points[:, 0], points[:, 1:].sum(axis=1)
    return int(np.lexsort((declined, others.round(9), np.maximum(declined - most, 0).round(9)))[0])


def either_samples(behaviour: Behaviour) -> WriteSamples | None:
    """Join the samples of both write directions, each in its own strata; None where the model never declines."""
    found = [(kind, samples) for kind in KINDS if (samples := write_samples(behaviour, kind))]
    if not found:
        return None
    strata = [f"{kind}/{name}" for kind, samples in found for name in samples.strata]
    rows = np.concatenate([samples.rows for _, samples in found])
    return WriteSamples(
        rows,
        np.concatenate([samples.declined for _, samples in found]),
        np.array(strata, dtype=object),
        behaviour.corpus.groups_among(rows),
        all(samples.within_label for _, samples in found),
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
    found = []
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
            found.append(LineResponses(line, np.array([c.action for c in completions], dtype=object), right))
    return found, ""
