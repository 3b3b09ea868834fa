"""The verdict on refusals and elicited abstentions, from what elicited_measure.py measured; uses no model.

Both directions are ablated in three cells: plain refusals, abstentions under the line and refusals under the line. The
rules of `verdict_rules` are applied twice, to the abstentions with either sort of refusals, and a verdict is one that
both show. Plain refusals alone do not do: a direction that leaves the abstentions alone may do nothing at all under the
line, and the epistemic one has no behaviour of its own without it, so that sparing plain refusals says little. Nor do
refusals under the line alone, which say nothing of how the plain model refuses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int

from experiments.dissociation.elicited_measure import ABLATE, ADD, ADD_NULL, CellKey
from experiments.dissociation.results import (
    EffectRecord,
    Elicited,
    MeasuredEffects,
    MeasuredElicited,
    TransferEffect,
)
from experiments.dissociation.verdict import MANY_TURNED, TURNS, Effect, Verdict, corrected_p, judge_dissociation
from experiments.dissociation.verdict_rules import REASONS, DissociationVerdict, EffectKey, other_kind
from experiments.elicited.condition import LINE, asked_rows, under
from experiments.elicited.results import Elicitation
from experiments.run.behaviour import ACTION_OF, DECLINES, KINDS, MIN_BASELINE, MIN_GROUPS, Kind
from experiments.run.corpus import PARTS, TESTED
from experiments.run.inputs import RunInputs
from experiments.run.outcomes import PLAIN, Key, Outcomes
from probes.statistics.intervals import Estimate, clopper_pearson, mean_over_groups
from probes.statistics.means import mean_interval
from scoring.actions import DECLINED, OPENED

REFUSALS: dict[str, str] = {PLAIN: "plain refusals", LINE: "refusals under the line"}
CELLS: tuple[CellKey, ...] = ((PLAIN, "normative"), (LINE, "normative"), (LINE, "epistemic"))
BETWEEN_LABELS = (
    "the direction of abstentions contrasts uncertain prompts with their twins, as the one within labels stops nothing "
    "on validation prompts; its null has no such second try"
)
GRADED: frozenset[DissociationVerdict] = frozenset({"double_dissociation", "graded_dissociation"})
GAINED: Mapping[str, Collection[str]] = {"abstain": {"abstain"}, "decline": DECLINED}
Rows = Int[np.ndarray, " rows"]


def judge_elicited(
    inputs: RunInputs,
    plain: MeasuredEffects,
    measured: MeasuredElicited,
    outcomes: Mapping[Key, Outcomes],
    level: float,
    null_level: float,
) -> Elicited:
    """Judge what was measured at the configured margin; intervals are at 1 - level, and p-values at another level."""
    elicitation = Elicitation.read(inputs.file("stages/elicit.json"))
    if measured.reason:
        return Elicited(elicitation=elicitation, reasons=(measured.reason,))
    cells, turned = _cells(inputs, elicitation.line, plain.parts, measured.parts)
    effects = {
        (kind, (condition, behaviour)): Effect.of(
            outcomes[condition, ABLATE[kind]].among(rows),
            measured.null.get(kind, {}).get(condition, {}).get(behaviour),
            inputs.corpus.groups_among(rows),
        )
        for kind in KINDS
        for (condition, behaviour), rows in cells.items()
    }
    groups = {cell: inputs.corpus.independent_groups(rows) for cell, rows in cells.items()}
    missing, margin = (measured.unsound, measured.weak), inputs.config.dissociate.margin
    verdicts = judge_cells(effects, groups, *missing, margin=margin, alpha=level, null_alpha=null_level)
    verdict = agreed(*(of.verdict for of in verdicts.values()))
    power = [
        replace(each, quantity=f"{each.quantity}, {REFUSALS[condition]}")
        for condition, of in verdicts.items()
        for each in of.power
    ]
    records = tuple(_records(inputs, outcomes, effects, cells, measured, level))
    changed = tuple(_changed(records))
    written = elicitation.direction
    between = (BETWEEN_LABELS,) if written.available and not written.within_label else ()
    return Elicited(
        elicitation=elicitation,
        verdict=verdict,
        reasons=(*_reasons(elicitation, verdict, verdicts), *changed, *between),
        by_refusals={condition: of.verdict for condition, of in verdicts.items()},
        contrasts=dict(verdicts[PLAIN].contrasts),
        power=tuple(power),
        effects=records,
        turned={
            kind: _share(inputs, outcomes[LINE, ABLATE[kind]].among(turned).hits(OPENED), turned, level)
            for kind in KINDS
        },
        transfer=tuple(_transfer(inputs, outcomes)),
    )


# -- the verdict -------------------------------------------------------------------------------------------------------


def agreed(plain: DissociationVerdict, line: DissociationVerdict) -> DissociationVerdict:
    """Return the verdict that both sorts of refusals show: of a double and a graded dissociation the graded one."""
    if plain == line:
        return plain
    return "graded_dissociation" if {plain, line} == GRADED else "inconclusive"


def judge_cells(
    effects: Mapping[tuple[Kind, CellKey], Effect],
    groups: Mapping[CellKey, int],
    unsound: Sequence[Kind] = (),
    weak: Sequence[Kind] = (),
    *,
    margin: float,
    alpha: float,
    null_alpha: float | None = None,
) -> dict[str, Verdict]:
    """Judge abstentions under the line against the refusals of each condition; see `judge_dissociation`."""
    verdicts = dict[str, Verdict]()
    for condition, refusals in REFUSALS.items():
        of: dict[Kind, CellKey] = {"normative": (condition, "normative"), "epistemic": (LINE, "epistemic")}
        n, n_groups = len(effects["normative", of["normative"]].stopped), groups[of["normative"]]
        if n < MIN_BASELINE or n_groups < MIN_GROUPS:
            few = f"{n} {refusals} in {n_groups} independent groups, {MIN_BASELINE} in {MIN_GROUPS} are needed"
            verdicts[condition] = Verdict("inconclusive", (f"there are {few}",))
            continue
        table: dict[EffectKey, Effect] = {(kind, b): effects[kind, cell] for kind in KINDS for b, cell in of.items()}
        verdicts[condition] = judge_dissociation(
            table,
            {b: groups[cell] for b, cell in of.items()},
            {},
            unsound,
            weak=weak,
            margin=margin,
            alpha=alpha,
            null_alpha=null_alpha,
        )
    return verdicts


def _reasons(elicitation: Elicitation, verdict: DissociationVerdict, verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    """Yield what was shown, of which abstentions; where both sorts of refusals do not agree, what each shows."""
    if verdict == "inconclusive":
        shown = {
            condition: of.reasons
            if of.verdict == "inconclusive"
            else (f"{of.verdict.replace('_', ' ')} ({of.reasons[0]})",)
            for condition, of in verdicts.items()
        }
        alike = [reason for reason in shown[PLAIN] if reason in shown[LINE]]
        for condition, reasons in shown.items():
            yield from (f"with {REFUSALS[condition]}: {reason}" for reason in reasons if reason not in alike)
        yield from alike
    else:
        yield REASONS[verdict]
        yield from dict.fromkeys(reason for of in verdicts.values() for reason in of.reasons[1:])
        yield "shown with plain refusals and with refusals under the line alike"
    yield f"the abstentions are elicited by “{elicitation.line}”, and this is no verdict on the plain model"


def _changed(records: Sequence[EffectRecord]) -> Iterator[str]:
    """Yield each ablation that turns many declines of one kind into the other, so that they count as not stopped."""
    for of in records:
        if of.turned is not None and round(of.turned.estimate, 9) >= MANY_TURNED:
            yield TURNS.format(of.ablated, of.turned.estimate, of.what, DECLINES[other_kind(of.behaviour)])


# -- effects -----------------------------------------------------------------------------------------------------------


def _cells(
    inputs: RunInputs, line: str, plain_parts: Sequence[str], parts: Sequence[str]
) -> tuple[dict[CellKey, Rows], Rows]:
    """Return the decliners of each cell, by the run's rows, and harmful prompts abstained from under the line."""
    of_line, places = under(inputs, line).behaviour, asked_rows(inputs.corpus)
    both = PARTS if set(plain_parts) == set(parts) == set(PARTS) else TESTED  # both directions were tested on these
    corpus = of_line.corpus
    turned = np.flatnonzero(corpus.harmful & of_line.did("abstain") & corpus.within(*parts))
    cells = {
        (condition, kind): inputs.behaviour.decliners(kind, *both)
        if condition == PLAIN
        else places[of_line.decliners(kind, *parts)]
        for condition, kind in CELLS
    }
    return cells, places[turned]


def _share(inputs: RunInputs, hits: np.ndarray, rows: Rows, level: float) -> Estimate:
    n = inputs.corpus.independent_groups(rows)
    share = mean_over_groups(hits, inputs.corpus.groups_among(rows)) if len(rows) else 0.0
    return clopper_pearson(share * n, n, level).counted(len(rows))


def _records(
    inputs: RunInputs,
    outcomes: Mapping[Key, Outcomes],
    effects: Mapping[tuple[Kind, CellKey], Effect],
    cells: Mapping[CellKey, Rows],
    measured: MeasuredElicited,
    level: float,
) -> Iterator[EffectRecord]:
    corrected = corrected_p(effects)
    for (kind, (condition, behaviour)), effect in effects.items():
        rows = cells[condition, behaviour]
        own = inputs.behaviour.actions_of(behaviour) if condition == PLAIN else {ACTION_OF[behaviour]}
        n_groups, became = inputs.corpus.independent_groups(rows), outcomes[condition, ABLATE[kind]].among(rows)
        yield EffectRecord.of(
            effect.interval(n_groups, level).counted(len(effect.stopped)),
            turned=_share(inputs, became.hits(DECLINED - own), rows, level),
            n_groups=n_groups,
            ablated=kind,
            behaviour=behaviour,
            condition=condition,
            p_null=effect.p_null,
            p_corrected=corrected.get((kind, (condition, behaviour))),
            null=measured.null.get(kind, {}).get(condition, {}).get(behaviour),
        )


# -- transfer ----------------------------------------------------------------------------------------------------------


def _transfer(inputs: RunInputs, outcomes: Mapping[Key, Outcomes]) -> Iterator[TransferEffect]:
    """Yield how many more uncertain prompts than twins are gained without the line, over the groups that have both."""
    added = outcomes[PLAIN, ADD]
    drawn = [of for name, of in outcomes.items() if name[1].startswith(ADD_NULL.format(""))]
    corpus, rows = inputs.corpus, added.rows
    uncertain, groups = corpus.uncertain[rows], corpus.groups[rows]
    both = np.intersect1d(groups[uncertain], groups[~uncertain])

    def gained(of: Outcomes, counted: Collection[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return what is gained of the uncertain prompts, and of the twins, by group."""
        before = np.isin(inputs.behaviour.actions[rows].astype(str), list(counted))
        more = of.among(rows).hits(counted).astype(float) - before
        by_group = [[more[label & (groups == group)].mean() for group in both] for label in (uncertain, ~uncertain)]
        return np.array(by_group[0]), np.array(by_group[1])

    for action, counted in GAINED.items() if len(both) else ():
        (of_uncertain, of_twins), null = gained(added, counted), [np.subtract(*gained(of, counted)) for of in drawn]
        more = of_uncertain - of_twins
        as_much = sum(float(each.mean()) >= float(more.mean()) - 1e-12 for each in null)
        yield TransferEffect.of(
            mean_interval(more, -2.0, 2.0).counted(int(np.isin(groups, both).sum()), both),
            action=action,
            uncertain=float(of_uncertain.mean()),
            twins=float(of_twins.mean()),
            p_null=(1 + as_much) / (1 + len(null)) if null else None,
            n_null=len(null),
        )
