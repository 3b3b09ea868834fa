"""`refusal steer`: a first pair of dials, and the three joint rates before and after them on test prompts."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.behaviour import KINDS, Kind
from experiments.completions import write_completions
from experiments.context import Context, is_right
from experiments.manifest import write_json
from experiments.reading import contrast_of, fit_grid
from experiments.scoring import joint_rates, rates_record
from probes.direction import Direction, Locus, load_directions
from probes.grid import LOGISTIC, choose
from probes.logistic import fit_platt
from probes.metrics import brier, expected_calibration_error
from steering.dial import Dial, save_dials


def steer(context: Context) -> None:
    """Write dials.safetensors, completions_steered.jsonl and stages/steer.json.

    Probes are fitted on training prompts, loci chosen on validation, probabilities calibrated on calibration prompts,
    rates counted on test. Thresholds are in calibrated probability; 0.5 is more likely than not.
    """
    found = load_directions(context.file("directions.safetensors"))
    writes: dict[Kind, Direction] = {k: found[f"{k}_write"] for k in KINDS if f"{k}_write" in found}
    first_write = min((d.locus.layer for d in writes.values()), default=0)
    dials, records = [], {}
    for kind, direction in writes.items():
        dial, records[kind] = _dial(context, kind, direction, first_write)
        dials.append(dial)
    save_dials(dials, context.file("dials.safetensors"), context.model.fingerprint())
    test = np.flatnonzero(context.corpus.within("test"))
    with context.reporter.task("test prompts under the dials", len(test)) as advance:
        after = context.speaker.complete(test.tolist(), dials=dials, advance=advance)
    write_completions(after, context.file("completions_steered.jsonl"))
    labels, groups = [context.prompts[i].label for i in test], context.corpus.groups[test]
    before = joint_rates(labels, list(context.behaviour.actions[test]), groups)
    correct = np.array([is_right(c, context.prompts[row]) for row, c in zip(test, after, strict=True)])
    known = np.array([context.prompts[i].answer is not None for i in test])
    write_json(
        context.file("stages/steer.json"),
        {
            "dials": records,
            "absent": [kind for kind in KINDS if kind not in writes],
            "before": rates_record(before),
            "after": rates_record(joint_rates(labels, [c.action for c in after], groups)),
            "known_facts_right": {
                "before": _mean(context.behaviour.correct[test][known]), "after": _mean(correct[known]),
                "n": int(known.sum()),
            },
        },
    )  # fmt: skip


def _dial(context: Context, kind: Kind, write: Direction, first_write: int) -> tuple[Dial, dict[str, Any]]:
    """Fit the read of one dial, at or below the first write layer, against every prompt of other labels."""
    corpus, store = context.corpus, context.store
    positive = corpus.harmful if kind == "normative" else corpus.uncertain
    contrast = contrast_of(corpus, kind, positive, ~positive)
    layers = [layer for layer in store.layers if layer <= first_write]
    positions = [p for p in store.positions if store.present[store.positions.index(p)].all()]
    grid, cells = fit_grid(context, [contrast], layers, positions, f"fitting the {kind} dial")
    cell = choose(cells)
    activations = store.read(cell.layer, cell.position)
    probe = grid.fit(activations, kind, C=float(cell.scores[LOGISTIC].C[0]))
    score = probe.decision_function(activations[contrast.rows])
    calibration = contrast.within("calibration")
    platt = fit_platt(score[calibration], contrast.y[calibration])
    probability, y = platt.probability(score), contrast.y
    dial = Dial(
        kind=kind,
        read=Locus(store.site, cell.layer, cell.position),
        probe=probe,
        calibration=platt,
        threshold=getattr(context.config.steer, f"{kind}_threshold"),
        band=context.config.steer.band,
        write=write,
    )
    test, auroc = contrast.within("test"), cell.scores[LOGISTIC].test.auroc
    return dial, {
        "read": vars(dial.read),
        "write": vars(write.locus),
        "threshold": dial.threshold,
        "band": dial.band,
        "test_auroc": auroc.estimate,
        "test_auroc_ci": [auroc.low, auroc.high],
        "test_ece": expected_calibration_error(y[test], probability[test]),
        "test_brier": brier(y[test], probability[test]),
    }


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None
