"""`refusal steer`: two dials at thresholds chosen and certified off the test part, and the joint rates there."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int, Shaped

from experiments.dials.counterfactuals import tabulate, write_table
from experiments.dials.operating_point import OperatingPoint, Targets, place, within_reach
from experiments.dials.policies import PolicyEvaluation, evaluate
from experiments.dials.read import DialRead, fit_read
from experiments.dials.results import BeforeAfter, DialResult, KnownFacts, SteerResult
from experiments.dials.surface import Surface, rates_of
from experiments.dials.tradeoff_record import tradeoff
from experiments.dials.write import dial_writers
from experiments.probing.read_probes import write_parquet
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import KINDS, Kind
from experiments.run.completion_file import Completion, is_right, write_completions
from experiments.run.estimates import outcome, rate
from experiments.run.inputs import RunInputs
from scoring.rates import RATES, joint_rates, rates_record
from steering.actuator import actuator_record
from steering.dial import Dial, save_dials
from steering.writer import Writer

FILES = ("dials.safetensors", "completions_steered.jsonl", "table.jsonl", "surface.parquet", "stages/steer.json")

Fields = dict[str, object]  # some fields of `SteerResult`, by name
Row = dict[str, object]  # of surface.parquet
NO_DIALS: Fields = dict.fromkeys(("certified", "frontier", "hypervolume", "least_regret"))


def steer(loaded: LoadedRun) -> None:
    """Write FILES.

    Reads are fitted on training prompts, loci chosen on validation, probabilities calibrated and thresholds chosen on
    both (training prompts scored by probes that did not see them), thresholds certified on the calibration part, and
    all rates reported on test, which is used for nothing else. Thresholds given by the configuration stand as given.
    """
    writers = dial_writers(loaded)
    reads = _reads(loaded, writers)
    dials, bought, looked_up = _set(loaded, writers, reads) if writers else ([], NO_DIALS, None)
    save_dials(dials, loaded.file("dials.safetensors"), loaded.model.fingerprint())
    test = np.flatnonzero(loaded.corpus.within("test"))
    with loaded.reporter.task("test prompts under the dials", len(test)) as advance:
        after = loaded.completer.complete(test.tolist(), dials=dials, advance=advance)
    write_completions(after, loaded.file("completions_steered.jsonl"))
    if looked_up is not None:
        same = [action == c.action for action, c in zip(looked_up[test], after, strict=True)]
        bought = bought | {"as_looked_up": float(np.mean(same))}
    found = {
        "dials": {dial.kind: _dial_result(dial, reads[dial.kind]) for dial in dials},
        "absent": [kind for kind in KINDS if kind not in writers],
        **_before_after(loaded, test, after),
        **bought,
    }
    SteerResult.model_validate(found).write(loaded.file("stages/steer.json"))


def _dial_result(dial: Dial, read: DialRead) -> DialResult:
    auroc = read.test.auroc
    return DialResult(
        read_at=read.locus,
        test_auroc=auroc.estimate,
        test_auroc_ci=(auroc.low, auroc.high),
        test_ece=read.test_ece,
        test_brier=read.test_brier,
        written_at=dial.write.locus if dial.write else None,
        actuator=actuator_record(dial.actuator),
        steps=dial.steps,
        later=dial.later,
        threshold=dial.threshold,
        band=dial.band,
    )


def _set(
    loaded: LoadedRun, writers: dict[Kind, Writer], reads: dict[Kind, DialRead]
) -> tuple[list[Dial], Fields, Shaped[np.ndarray, " prompts"]]:
    """Generate every outcome and set the dials; return them, what they buy, and every prompt's action by look-up."""
    band = loaded.config.steer.band
    table = tabulate(loaded, writers, {k: read.probability for k, read in reads.items()}, leaves=band > 0)
    whole = evaluate(loaded, table, [read.declining for read in reads.values()])
    surface, point = _placed(loaded, whole, list(reads))
    thresholds = surface.settings[point.index].tolist()
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
        )
        for (kind, writer), threshold in zip(writers.items(), thresholds, strict=True)
    ]
    write_table(table, [p.id for p in loaded.prompts], loaded.corpus.part.tolist(), loaded.file("table.jsonl"))
    write_parquet(_surface_rows(whole), loaded.file("surface.parquet"))
    declined = float(rates_of(surface.at([point.index]), whole.choice)["over_refusal"][0])
    bought: Fields = {"certified": point.certificate, **tradeoff(loaded, whole, writers, declined)._asdict()}
    return dials, bought, table.actions_at(thresholds, band)


def _reads(loaded: LoadedRun, writers: dict[Kind, Writer]) -> dict[Kind, DialRead]:
    """Fit the reads at or below the first write; an onset bias comes after every layer."""
    corpus, deepest = loaded.corpus, loaded.model.n_layers - 1
    first_write = min((w.direction.locus.layer if w.direction else deepest for w in writers.values()), default=0)
    labels = {"normative": corpus.harmful, "epistemic": corpus.uncertain}
    return {kind: fit_read(loaded, kind, labels[kind], first_write) for kind in writers}


def _placed(inputs: RunInputs, whole: PolicyEvaluation, kinds: list[Kind]) -> tuple[Surface, OperatingPoint]:
    """Choose the thresholds among those that the configuration leaves open."""
    config = inputs.config.steer
    given = {"normative": config.normative_threshold, "epistemic": config.epistemic_threshold}
    costs = within_reach(config.costs.model_dump(), kinds) if config.costs else None
    targets = Targets(within_reach(config.limits, kinds), config.confidence, costs)
    unasked = not targets.limits and targets.costs is None
    thresholds: list[list[float]] = []
    for axis, kind in enumerate(kinds):
        tried = np.unique(whole.surface.settings[:, axis]).tolist()
        fixed = given[kind] if given[kind] is not None else 0.5 if unasked else None
        thresholds.append(tried if fixed is None else [fixed])
    surface = Surface.over(whole.table, thresholds, config.band)
    return surface, place(surface, whole.choice, whole.held, inputs.corpus, targets, inputs.config.seed)


def _surface_rows(whole: PolicyEvaluation) -> list[Row]:
    """Flatten the surface: thresholds, and every rate on the prompts that choose and on test."""
    rates = {part: rates_of(whole.surface, risks) for part, risks in (("choice", whole.choice), ("test", whole.test))}
    thresholds = zip(whole.table.dials, whole.surface.settings.T, strict=True)
    columns = {f"{name}_threshold": values for name, values in thresholds}
    columns |= {f"{part}_{name}": values for part, found in rates.items() for name, values in found.items()}
    return [{name: float(values[i]) for name, values in columns.items()} for i in range(len(whole.surface.settings))]


def _before_after(inputs: RunInputs, test: Int[np.ndarray, " test"], after: list[Completion]) -> Fields:
    corpus, actions = inputs.corpus, np.array([c.action for c in after], dtype=object)
    labels, groups, plain = [inputs.prompts[i].label for i in test], corpus.groups[test], inputs.behaviour
    correct = np.array([is_right(c, inputs.prompts[row]) for row, c in zip(test, after, strict=True)], dtype=bool)
    known = np.array([inputs.prompts[i].answer is not None for i in test], dtype=bool)
    trigger = (corpus.benign & corpus.trigger)[test]
    counts = RATES["over_refusal"][1]
    declined = {
        when: outcome(did[trigger], counts) for when, did in (("before", plain.actions[test]), ("after", actions))
    }
    return {
        "before": rates_record(joint_rates(labels, list(plain.actions[test]), groups)),
        "after": rates_record(joint_rates(labels, list(actions), groups)),
        "known_facts_right": KnownFacts(
            before=_mean(plain.correct[test][known]), after=_mean(correct[known]), n=int(known.sum())
        ),
        "over_refusal_with_trigger": BeforeAfter(
            before=rate(declined["before"], groups[trigger]), after=rate(declined["after"], groups[trigger])
        ),
    }


def _mean(values: Bool[np.ndarray, " n"]) -> float | None:
    return float(values.mean()) if len(values) else None
