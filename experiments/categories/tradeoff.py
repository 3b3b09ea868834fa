"""Three ways of lowering over-refusal, on the same held-out prompts: what each gains and what it costs.

- one direction: of harmful refused against answered prompts, set towards the answering mean;
- subspace: the span of the tasks' over-refusal directions, set towards their answering means (rank-k affine);
- trajectories: each prompt moved towards its recognised task's answered mean (`trajectories`).

Each is tried at several strengths; a strength of 1 reaches the answering mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Int

from experiments.categories.fits import FoldFit
from experiments.categories.members import Category
from experiments.categories.results import STRENGTHS, WAYS, TradeoffOutcomes, way_name
from experiments.categories.trajectories import OTHER, Trajectories, fit_trajectories
from experiments.probing.write_directions import fit_write
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.setting import Setting
from experiments.run.behaviour import WriteSamples
from experiments.run.completion_file import Completion
from extract.model.edit import Edit, site
from extract.progress import Advance
from probes.direction import Direction, Locus
from probes.statistics.seeds import named_rng
from probes.subspace import Subspace
from scoring.actions import OPENED
from steering.ablation_variant import TokenScope
from steering.interventions import DeviceCopies, place, set_projections

RECOGNISED = "recognised"
MOST_HARMFUL = 200  # refused harmful prompts on which the loss is counted


def measure_tradeoff(
    loaded: LoadedRun, tasks: Sequence[Category], folds: np.ndarray, fits: Sequence[FoldFit]
) -> TradeoffOutcomes | None:
    """Answer refused benign and refused harmful prompts under each way, with what is fitted on the other folds.

    Args:
        folds: of the tasks' prompts; harmful prompts are divided into folds with the groups that they belong to.
    """
    benign = np.sort(np.concatenate([task.decliners for task in tasks]))
    refused = np.sort(loaded.behaviour.decliners("normative", "train", "validation", "calibration", "test"))
    fold_of = _every_fold(loaded, folds)
    rng = named_rng(loaded.config.seed, "harmful prompts of the trade-off")
    harmful = np.sort(rng.permutation(refused)[:MOST_HARMFUL])
    if not len(harmful):
        return None
    answered: dict[str, np.ndarray] = {}
    angles = []
    n = len(WAYS) * len(STRENGTHS) * (len(benign) + len(harmful))
    with loaded.reporter.task("ways of lowering over-refusal", n) as advance:
        for fold, fit in enumerate(fits):
            tested = np.concatenate([benign[fold_of[benign] == fold], harmful[fold_of[harmful] == fold]])
            training = fold_of != fold
            normative = _normative(loaded, refused, training, fit.span.locus)
            angles.append(_angle(normative, fit.span))
            for name, done in _answers(loaded, tasks, fit, normative, training, tested, advance).items():
                answered.setdefault(name, np.zeros(len(loaded.corpus), dtype=bool))[tested] = done
    recognised = answered.pop(RECOGNISED, None)
    return TradeoffOutcomes(
        benign=tuple(benign.tolist()),
        harmful=tuple(harmful.tolist()),
        benign_answered={name: tuple(of[benign].tolist()) for name, of in answered.items()},
        harmful_answered={name: tuple(of[harmful].tolist()) for name, of in answered.items()},
        benign_recognised=() if recognised is None else tuple(recognised[benign].tolist()),
        harmful_recognised=() if recognised is None else tuple(recognised[harmful].tolist()),
        angles=tuple(angles),
    )


def _answers(
    loaded: LoadedRun,
    tasks: Sequence[Category],
    fit: FoldFit,
    normative: Direction,
    training: Bool[np.ndarray, " prompts"],
    tested: Int[np.ndarray, " tested"],
    advance: Advance,
) -> dict[str, Bool[np.ndarray, " tested"]]:
    """Return which tested prompts are answered under each way, and which are recognised as of a task."""
    tokens = loaded.config.dissociate.variant.tokens
    one = Subspace.of(normative)
    edits = {way_name("one direction", s): _towards(one, s, tokens) for s in STRENGTHS}
    edits |= {way_name("subspace", s): _towards(fit.span, s, tokens) for s in STRENGTHS}
    done = loaded.completer.complete_each(tested.tolist(), [Setting(e) for e in edits.values()], advance)
    answered = {name: _opened(completions) for name, completions in zip(edits, done, strict=True)}
    names = {task.name for task in tasks}
    others = [row for row in np.flatnonzero(training).tolist() if loaded.prompts[row].category not in names]
    moved = fit_trajectories(loaded, tasks, training, np.array(others, dtype=int), tested)
    if moved is not None:
        answered[RECOGNISED] = np.array([moved.task[row] != OTHER for row in tested.tolist()], dtype=bool)
        answered |= {way_name("trajectories", s): _along(loaded, moved, s, tested, advance) for s in STRENGTHS}
    return answered


def _along(
    loaded: LoadedRun, moved: Trajectories, strength: float, tested: Int[np.ndarray, " tested"], advance: Advance
) -> Bool[np.ndarray, " tested"]:
    """Return which tested prompts are answered when each is moved along its recognised task's trajectory."""
    opened: dict[int, bool] = {}
    for task in sorted(set(moved.task.values())):
        rows = [row for row in tested.tolist() if moved.task[row] == task]
        completions = loaded.completer.complete(rows, edits=moved.edits(task, strength), advance=advance)
        opened |= dict(zip(rows, _opened(completions).tolist(), strict=True))
    return np.array([opened[row] for row in tested.tolist()], dtype=bool)


def _opened(completions: Sequence[Completion]) -> Bool[np.ndarray, " rows"]:
    return np.array([one.action in OPENED for one in completions], dtype=bool)


def _normative(loaded: LoadedRun, refused: np.ndarray, training: np.ndarray, locus: Locus) -> Direction:
    """Return the direction of refused harmful against answered benign training prompts."""
    declined = refused[training[refused]]
    compared = np.flatnonzero(loaded.corpus.requests & loaded.behaviour.answered & training)
    rows = np.concatenate([declined, compared])
    strata = np.full(len(rows), "all", dtype=object)
    samples = WriteSamples(
        rows, np.arange(len(rows)) < len(declined), strata, loaded.corpus.groups_among(rows), within_label=False
    )
    direction = fit_write(loaded.store.read, locus, "normative", samples)
    if direction is None:
        raise ValueError(f"refused harmful and answered prompts have the same mean at {locus}")
    return direction


def _every_fold(loaded: LoadedRun, folds: np.ndarray) -> np.ndarray:
    """Return the fold of every prompt: that of its group; other groups in turn, in random order."""
    groups = loaded.corpus.groups
    of_group: Mapping[int, int] = {int(g): int(f) for g, f in zip(groups, folds, strict=True) if f >= 0}
    left = sorted({int(g) for g in groups} - set(of_group))
    rng, n = named_rng(loaded.config.seed, "folds of other prompts"), int(folds.max()) + 1
    given = dict(zip(rng.permutation(left).tolist(), [i % n for i in range(len(left))], strict=True))
    return np.array([of_group.get(int(g), given.get(int(g))) for g in groups], dtype=int)


def _towards(span: Subspace, strength: float, tokens: TokenScope) -> list[Edit]:
    """Set the projections on a span towards its answering means, by a share of the way."""
    R, goal = DeviceCopies(span.basis), DeviceCopies(np.asarray(span.mean_negative, dtype=np.float32))
    solve = DeviceCopies(np.eye(span.rank, dtype=np.float32))
    wanted = ", ".join(repr(float(value)) for value in span.mean_negative)
    return [
        place(
            site(span.locus.site),
            span.locus.layer,
            tokens,
            lambda x: set_projections(x, R.on(x.device), goal.on(x.device), solve.on(x.device), strength),
            f"{strength:g} of the way to {wanted} in {span.digest}",
        )
    ]


def _angle(direction: Direction, span: Subspace) -> float:
    """Return the angle of a direction to a span, in degrees."""
    inside = float(np.linalg.norm(span.basis.astype(np.float64) @ direction.vector))
    return float(np.degrees(np.arccos(min(1.0, inside))))
