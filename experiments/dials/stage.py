"""`refusal steer`: two dials with thresholds chosen and certified off the test part, and the joint rates on test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Int

from experiments.dials.by_category import Actions, choose_by_category
from experiments.dials.counterfactuals import OutcomeGenerator, write_table
from experiments.dials.elicited_write import with_least_loss
from experiments.dials.needed_outcomes import settle_dials, settle_one_dial
from experiments.dials.operating_point import Targets, reachable_costs, reachable_risks
from experiments.dials.policies import Fields, PolicyEvaluation, evaluate, tradeoff
from experiments.dials.read import DialRead, fit_read, with_reference
from experiments.dials.results import (
    CHECKED,
    COUNTED,
    BeforeAfter,
    DialResult,
    KnownFacts,
    SteerResult,
    ThoughtTokens,
    When,
)
from experiments.dials.surface import (
    Columns,
    Surface,
    added_mistakes,
    comparable,
    paired_changes,
    rates_of,
    test_columns,
)
from experiments.dials.write import dial_writers
from experiments.probing.read_probes import write_parquet
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import KINDS, MIN_BASELINE, Kind
from experiments.run.completion_file import Completion, write_completions
from experiments.run.inputs import RunInputs
from experiments.run.outcomes import Outcomes, share
from extract.chat.template import template_arguments
from probes.statistics.means import grouped_median
from probes.statistics.seeds import named_rng
from probes.statistics.two_phase import draw
from scoring.rates import RATES, grouped_rate, joint_rates
from steering.actuator import OnsetBias, actuator_record
from steering.dial import CategoryThresholds, Dial
from steering.dial_file import save_dials
from steering.writer import Writer

NO_OPENING = f"no category has {MIN_BASELINE} refused and as many answered benign training prompts"
AGREES = 0.95  # least share of these on which look-ups and dials agree, for look-ups to stand for all
RISE = 0.03  # most by which a rate on the choice prompts may rise, where no setting meets all limits
NO_DIALS: Fields = dict.fromkeys(("certified", "frontier", "hypervolume", "least_regret"))


def steer(loaded: LoadedRun) -> None:
    """Write `results.FILES`.

    Probes are fitted on training prompts and loci chosen on validation. Probabilities are calibrated and thresholds
    chosen on both, with cross-fitted scores of training prompts. Thresholds are certified on the calibration part. All
    rates are reported on test, which is used for nothing else. Thresholds given by the configuration are kept.
    """
    writers, tried = with_least_loss(loaded, dial_writers(loaded)) if "dials" in loaded.config.ask else ({}, [])
    deepest = loaded.model.n_layers - 1  # where an onset bias has not written yet
    first_write = min((w.direction.locus.layer if w.direction else deepest for w in writers.values()), default=0)
    every = loaded.reading
    labels = {"normative": every.corpus.harmful, "epistemic": every.corpus.uncertain}
    of_all = {kind: fit_read(every, kind, labels[kind], first_write) for kind in writers}
    reads = {kind: read.among(loaded.answered) for kind, read in of_all.items()}
    dials, gain, looked_up, said = _build_dials(loaded, writers, reads) if writers else ([], NO_DIALS, {}, None)
    model, path = loaded.model, loaded.file("dials.safetensors")
    save_dials(
        [with_reference(loaded, dial, of_all[dial.kind]) for dial in dials],
        path,
        model.fingerprint(),
        model.cast_fingerprint(),
        template_arguments(model.tokenizer),
    )
    test = np.flatnonzero(loaded.corpus.within("test"))
    checked = test[draw(loaded.corpus.groups[test], CHECKED, named_rng(loaded.config.seed, "look-ups checked"))]

    def complete(dials: Sequence[Dial], rows: Int[np.ndarray, " rows"], what: str) -> list[Completion]:
        with loaded.reporter.task(f"test prompts with {what}", len(rows)) as advance:
            thoughts = loaded.thoughts_before_dials
            return loaded.completer.complete(rows.tolist(), dials=dials, thoughts=thoughts, advance=advance)

    def agreement(name: str, rows: Int[np.ndarray, " rows"], completions: Sequence[Completion]) -> float:
        pairs = zip(looked_up[name][rows], completions, strict=True)
        return float(np.mean([action == completion.action for action, completion in pairs]))

    after = [loaded.completions[row] for row in test] if said is None else [said[row] for row in test.tolist()]
    if "pooled" in looked_up:
        pooled = [replace(dial, by_category=None) for dial in dials]
        share = agreement("pooled", checked, complete(pooled, checked, "the dials"))
        if share < AGREES:  # the look-ups cannot stand for the dials
            after = complete(pooled, test, "the dials")
            share = agreement("pooled", test, after)
        gain = gain | {"as_looked_up": share}
    write_completions(after, loaded.file("completions_steered.jsonl"))
    if "by_category" in looked_up:
        share = agreement("by_category", checked, complete(dials, checked, "thresholds by category"))
        gain = gain | {"by_category": gain["by_category"].model_copy(update={"as_looked_up": share})}
    lacks_opening = loaded.config.steer.permit == "subspace" and not any(one.opening for one in writers.values())
    result = {
        "dials": {dial.kind: _dial_result(dial, reads[dial.kind], loaded.model.decode) for dial in dials},
        "absent": [kind for kind in KINDS if kind not in writers and "dials" in loaded.config.ask],
        **_before_after(loaded, test, after),
        "no_opening": NO_OPENING if lacks_opening else "",
        "tried": tried,
        **gain,
    }
    SteerResult.model_validate(result).write(loaded.file("stages/steer.json"))


def _dial_result(dial: Dial, read: DialRead, decode: Callable[[Sequence[int]], str]) -> DialResult:
    auroc, actuator = read.test.auroc, dial.actuator
    return DialResult(
        read_at=read.locus,
        test_auroc=auroc.estimate,
        test_auroc_ci=(auroc.low, auroc.high),
        written_at=dial.write.locus if dial.write else None,
        actuator=actuator_record(dial.actuator),
        says=[decode(prefix) for prefix in actuator.prefixes] if isinstance(actuator, OnsetBias) else [],
        opening=len(dial.opening),
        **{name: getattr(read, name) for name in ("test_ece", "test_brier")},
        **{name: getattr(dial, name) for name in ("steps", "later", "threshold", "band")},
    )


def _build_dials(
    loaded: LoadedRun, writers: dict[Kind, Writer], reads: dict[Kind, DialRead]
) -> tuple[list[Dial], Fields, dict[str, Actions], list[Completion]]:
    """Return the dials, what they gain, each prompt's action by look-up, pooled and by category, and completion."""
    config, band = loaded.config.steer, loaded.config.steer.band
    generator = OutcomeGenerator(loaded, [*writers.items()], band > 0)
    empty = generator.start([read.probability for read in reads.values()])
    policy = evaluate(loaded, empty, [read.declining for read in reads.values()])
    costs = reachable_costs(config.costs.model_dump(), list(reads)) if config.costs else None
    limits, with_plain = reachable_risks(config.limits, list(reads)), policy.with_plain()
    plain = rates_of(with_plain.surface.at([-1]), with_plain.choice)
    ceilings = {name: float(plain[name][0]) + RISE for name in RATES if not np.isnan(plain[name]).any()}
    ceilings |= {name: limit for name, limit in limits.items() if name not in RATES}
    targets = Targets(limits, config.confidence, costs, ceilings)
    policy, thresholds, certificate = settle_dials(policy, _allowed(policy, targets), targets, generator)
    gain: Fields = {"certified": certificate}
    table = policy.table
    looked_up, applied = {"pooled": table.actions_at(thresholds, band)}, dict[Kind, CategoryThresholds]()
    if config.by == "category":
        pooled = dict(zip(writers, thresholds, strict=True))
        declining = {kind: read.declining for kind, read in reads.items()}
        first = next(iter(reads.values()))  # the category is recognised where the first dial reads
        actions, by_category, applied = choose_by_category(loaded, policy, pooled, declining, first.locus, targets)
        gain["by_category"] = by_category
        looked_up |= {"by_category": actions} if applied else {}
    dials = [
        Dial(
            kind=kind,
            read=reads[kind].locus,
            probe=reads[kind].probe,
            calibration=reads[kind].platt,
            threshold=threshold,
            band=band,
            write=writer.direction,
            actuator=writer.actuator,
            steps=writer.steps,
            later=writer.later,
            opening=writer.opening,
            by_category=applied.get(kind),
        )
        for (kind, writer), threshold in zip(writers.items(), thresholds, strict=True)
    ]
    write_table(table, [p.id for p in loaded.prompts], loaded.corpus.part.tolist(), loaded.file("table.jsonl"))
    write_parquet(_surface_rows(policy, thresholds, band), loaded.file("surface.parquet"))
    at = rates_of(Surface.over(table, [[tau] for tau in thresholds], band), policy.choice)
    over_refusal = float(comparable(at["over_refusal"])[0])
    single = settle_one_dial(loaded, writers, policy, over_refusal)
    said = [generator.said[cell] for cell in enumerate(table.look_up(thresholds, band).tolist())]
    return dials, gain | tradeoff(loaded, policy, single, over_refusal), looked_up, said


def _allowed(policy: PolicyEvaluation, targets: Targets) -> Surface:
    """Return the settings to choose from: a given threshold is kept; without limits and costs it is 0.5."""
    config, thresholds = policy.inputs.config.steer, []
    default = 0.5 if not targets.limits and targets.costs is None else None
    for axis, kind in enumerate(policy.table.dials):
        given = getattr(config, f"{kind}_threshold")
        fixed = default if given is None else given
        thresholds.append(np.unique(policy.surface.settings[:, axis]) if fixed is None else [fixed])
    return Surface.over(policy.table, thresholds, config.band)


def _surface_rows(policy: PolicyEvaluation, thresholds: Sequence[float], band: float) -> list[dict[str, object]]:
    """Return every rate on the choice prompts and, with limits, on test, at each setting and at that in use."""
    axes = [np.union1d(tried, [tau]) for tried, tau in zip(policy.surface.settings.T, thresholds, strict=True)]
    surface = Surface.over(policy.table, axes, band)
    taus = zip(policy.table.dials, surface.settings.T, strict=True)
    columns: Columns = {f"{kind}_threshold": tau for kind, tau in taus}
    columns |= {f"choice_{name}": rate for name, rate in rates_of(surface, policy.choice).items()}
    columns |= {f"test_{name}": rate for name, rate in rates_of(surface, policy.test).items()}
    tested = test_columns(surface, policy.test, policy.inputs, policy.table)
    columns |= {f"test_{name}": values for name, values in tested.items()}
    return [{name: float(values[i]) for name, values in columns.items()} for i in range(len(surface.settings))]


def _before_after(inputs: RunInputs, test: Int[np.ndarray, " test"], completions: list[Completion]) -> Fields:
    corpus, plain = inputs.corpus, inputs.behaviour
    labels, groups = [inputs.prompts[i].label for i in test], corpus.groups[test]
    done = {
        "before": Outcomes.of(test, plain.actions[test], plain.correct[test]),
        "after": Outcomes.completed(test, completions, inputs.prompts),
    }
    known = np.array([inputs.prompts[i].answer is not None for i in test], dtype=bool)

    def both(name: str, among: Bool[np.ndarray, " prompts"]) -> BeforeAfter:
        rows = test[among[test]]
        counts = COUNTED[name][1]
        return BeforeAfter(**{when: share(of.among(rows), counts, corpus.groups[rows]) for when, of in done.items()})

    right = done["before"].right
    lost = grouped_rate(~done["after"].right[right], groups[right])
    stated = {when: float(of.right[known].mean()) if known.any() else None for when, of in done.items()}
    return {
        **{when: joint_rates(labels, list(of.action), groups) for when, of in done.items()},
        "known_facts_right": KnownFacts(**stated, n=int(known.sum()), lost=lost),
        "over_refusal_with_trigger": both("over_refusal", corpus.benign & corpus.trigger),
        "uncertain_mistaken": both("uncertain_mistaken", corpus.uncertain),
        "changes": paired_changes(labels, done["before"].action, done["after"].action, groups),
        "mistakes": added_mistakes(labels, done["before"].action, done["after"].action, groups),
        "thoughts": _thought_tokens(inputs, test, completions) if inputs.thinks else {},
    }


def _thought_tokens(
    inputs: RunInputs, test: Int[np.ndarray, " test"], after: list[Completion]
) -> dict[When, ThoughtTokens]:
    """Return the lengths of thoughts without the dials and with them; an answer without a thought has none."""
    corpus, found = inputs.corpus, dict[When, ThoughtTokens]()
    said: dict[When, list[Completion]] = {"before": [inputs.completions[row] for row in test], "after": after}
    for when, completions in said.items():
        length = np.array([float(one.thought) for one in completions])
        uncertain, twins = (of[test] & (length > 0) for of in (corpus.uncertain, corpus.twins))
        groups = corpus.groups_among(test)
        both = [group for group in np.unique(groups[uncertain]) if (groups[twins] == group).any()]
        more = [length[uncertain & (groups == g)].mean() - length[twins & (groups == g)].mean() for g in both]
        found[when] = ThoughtTokens(
            uncertain=grouped_median(length[uncertain], groups[uncertain]),
            twins=grouped_median(length[twins], groups[twins]),
            more=grouped_median(np.array(more), np.array(both)),
        )
    return found
