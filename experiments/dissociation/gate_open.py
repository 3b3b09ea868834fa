"""Could it have answered? Declined prompts asked again with the gate that declined opened, against the known answer."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.dissociation.applicability import Setting, find_setting, missing_direction
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import ACTION_OF, KINDS, Kind
from experiments.run.completion_file import is_right
from experiments.run.estimates import Outcome, rate
from extract.atomic_write import write_json
from probes.direction import Direction
from scoring.actions import ANSWERED
from steering.ablation import ablation

LABELS = ("benign", "uncertain")  # harmful prompts are declined rightly: what they would be answered is not asked


def gate_open(loaded: LoadedRun) -> None:
    """Write stages/gate_open.json.

    Of each gate, the benign and the uncertain test prompts that it closed on: refused ones are answered again with the
    normative direction ablated, abstained ones with the epistemic, in the way the dissociation rests on
    (`dissociate.variant`). Beside it, the same prompts with the *other* direction ablated, as the control: an answer
    that either ablation brings is not owed to this gate. Both were generated for the dissociation and are remembered.
    """
    setting = find_setting(loaded)
    write_json(loaded.file("stages/gate_open.json"), {kind: _opened(loaded, kind, setting) for kind in KINDS})


def _opened(loaded: LoadedRun, kind: Kind, setting: Setting) -> dict[str, Any]:
    directions = setting.directions
    if kind not in directions:
        given = loaded.config.dissociate.directions is not None
        return {"applicable": False, "reason": setting.absent[kind] if given else missing_direction(loaded, kind)}
    corpus, declined = loaded.corpus, loaded.behaviour.did(ACTION_OF[kind])
    rows = {label: np.flatnonzero(corpus.labelled(label) & declined & corpus.within("test")) for label in LABELS}
    if not any(map(len, rows.values())):
        what = "refused" if kind == "normative" else "abstained from"
        return {"applicable": False, "reason": f"no benign or uncertain test prompt is {what}"}
    other = next(k for k in KINDS if k != kind)
    return {
        "applicable": True,
        "reason": "",
        "variant": loaded.config.dissociate.variant.name,
        "labels": {label: _answers(loaded, of, directions[kind], directions.get(other)) for label, of in rows.items()},
    }


def _answers(loaded: LoadedRun, rows: np.ndarray, gate: Direction, other: Direction | None) -> dict[str, Any]:
    """Return the shares answered, with each gate open, and right of those with a known answer."""
    control = None if other is None else _said(loaded, rows, other)[0]
    answered, right = _said(loaded, rows, gate)
    known = np.array([loaded.prompts[row].answer is not None for row in rows], dtype=bool)
    groups = loaded.corpus.groups_among(rows) if len(rows) else np.zeros(0, dtype=int)
    return {
        "answered": rate(answered, groups, control).to_dict(),  # its `change` is against the other gate
        "answered_other_gate_open": None if control is None else rate(control, groups).to_dict(),
        "right": rate(Outcome(right.hit[known], right.judged[known]), groups[known]).to_dict(),
    }


def _said(loaded: LoadedRun, rows: np.ndarray, gate: Direction) -> tuple[Outcome, Outcome]:
    said = loaded.speaker.complete(rows.tolist(), edits=ablation(gate, loaded.config.dissociate.variant))
    judged = np.array([one.action is not None for one in said], dtype=bool)
    answered = np.array([one.action in ANSWERED for one in said], dtype=bool)
    right = np.array([is_right(one, loaded.prompts[row]) for one, row in zip(said, rows, strict=True)], dtype=bool)
    return Outcome(answered, judged), Outcome(right, judged)
