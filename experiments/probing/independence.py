"""Representational independence of two directions under ablation (Wollschläger et al., arXiv 2502.17420).

Directions λ and μ are representationally independent if ablating μ leaves cos(x_l, λ) unchanged at every layer l, and
the reverse. Orthogonal directions need not be independent: later layers may compute one from the other. The ablation is
the default variant (affine, at one layer, from the last prompt token on), so earlier layers cannot change and are left
out; x_l is the stream of the last prompt token.

No change is exactly zero in a real model, and a cosine changes with the stream's norm even if the coordinate itself
does not. So the change of the projection λ·x_l is measured too, and each change is compared with two others. The first
is the change along μ itself under the same ablation (a share of 1 means one direction; both changes come from the same
prompts, those that had the coordinate). The second is the change under ablating directions fitted on permuted labels at
the same locus: a change no larger than that is what any ablation makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import einops
import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from experiments.probing.geometry_results import Independence, StreamChange
from experiments.probing.write_directions import WriteFitter
from experiments.responses.batched_edits import RepeatedPrompts, Trial
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import KINDS, Kind, write_samples
from experiments.run.inputs import RunInputs
from extract.model.chat_model import ChatModel
from extract.model.edit import site
from extract.prompts.prompt import LABELS
from probes.direction import Direction, Locus
from probes.statistics.intervals import Estimate, grouped_mean
from probes.statistics.permutation import MIN_LABELLINGS, permutation_p
from probes.statistics.seeds import named_rng
from steering.ablation import ablation

N_NULL = 49  # permuted-label directions of the null
N_PER_LABEL = 24  # held-out prompts of each label


def measured_independence(loaded: LoadedRun, chosen: Mapping[Kind, Direction]) -> dict[str, Independence] | None:
    """Ablate each chosen write direction and measure the stream along the other, on test prompts; None without two."""
    if len(chosen) < len(KINDS):
        return None
    rng, corpus = named_rng(loaded.config.seed, "independence"), loaded.corpus
    held_out = [np.flatnonzero(corpus.labelled(label) & corpus.within("test")) for label in LABELS]
    rows = np.concatenate([np.sort(rng.permutation(of_label)[:N_PER_LABEL]) for of_label in held_out])
    prompts, record = RepeatedPrompts(loaded.model, [loaded.rendered[i] for i in rows]), {}
    with loaded.reporter.task("independence under ablation", len(KINDS)) as advance:
        for one, other in (KINDS, KINDS[::-1]):
            null = _permuted_at(loaded, one, chosen[one].locus, rng)
            record[f"ablate_{one}_watch_{other}"] = independence(
                loaded.model, prompts, corpus.groups[rows], chosen[one], chosen[other], null
            )
            advance(1)
    return record


def _permuted_at(inputs: RunInputs, kind: Kind, locus: Locus, rng: np.random.Generator) -> list[Direction]:
    """Fit directions on permuted behaviour labels at one locus, as the null of ablating there."""
    samples = write_samples(inputs.behaviour, kind)
    if samples is None or samples.n_labellings < MIN_LABELLINGS:
        return []
    fitter = WriteFitter(inputs.store.read, locus.site, [(locus.layer, locus.position)], kind, samples)
    return [direction for _ in range(N_NULL) for direction in fitter.fit(samples.permuted(rng))]


def independence(
    model: ChatModel,
    prompts: RepeatedPrompts,
    groups: Shaped[np.ndarray, " prompts"],
    ablated: Direction,
    watched: Direction,
    null: Sequence[Direction],
    alpha: float = 0.05,
) -> Independence:
    """Measure the change that ablating one direction makes to the stream along another.

    Args:
        groups: group of each prompt; intervals are over groups.
        null: directions fitted at the ablated one's locus on permuted labels.

    Returns:
        For `cosine` and for `projection` (in units of the gap between the watched direction's class means): the mean
        absolute `change` with its interval, averaged over the layers from the ablated one on; its `share` of the change
        along the ablated direction itself; the 95th percentile and p of the null; and all but the share by layer.
    """
    trials = [ablation(direction) for direction in (ablated, *null)]
    layers = range(ablated.locus.layer, model.n_layers)
    changes = stream_changes(model, prompts, trials, (watched, ablated), layers)
    moved = {
        measure: StreamChange(
            **_against_null(change.mean(axis=1), groups, alpha),
            share=float(change[0].mean() / own[0].mean()) if own[0].any() else None,
            by_layer=tuple(
                StreamChange(layer=layer, **_against_null(change[:, i], groups, alpha))
                for i, layer in enumerate(layers)
            ),
        )
        for measure, (change, own) in changes.items()
    }
    return Independence(ablated=ablated.locus, watched=watched.locus, n=prompts.n_rows, n_null=len(null), **moved)


def stream_changes(
    model: ChatModel,
    prompts: RepeatedPrompts,
    trials: Sequence[Trial],
    watched: Sequence[Direction],
    layers: Sequence[int],
) -> dict[str, Float[np.ndarray, "watched trials layers prompts"]]:
    """Measure the absolute change of the stream along watched directions of one site under each trial's edits.

    Returns:
        Absolute changes of `cosine` and `projection`.
    """
    where = site(watched[0].locus.site)
    R = torch.tensor(np.stack([direction.vector for direction in watched]), device=model.device)
    changed: dict[int, torch.Tensor] = {}
    before = _along(prompts.plain_last_streams(where, layers), R).movedim(2, 0)
    for batch in prompts.passes(trials, 0):
        after = _along(prompts.last_streams(batch, where, layers), R).movedim(2, 0)
        changed.update(zip(batch.trials, (batch.split(after) - before).abs(), strict=True))
    changes = torch.stack([changed[i] for i in range(len(trials))]).cpu().double().numpy()
    cosine, projection = einops.rearrange(changes, "trials rows two layers watched -> two watched trials layers rows")
    gaps = np.array([direction.mean_positive - direction.mean_negative for direction in watched])
    return {"cosine": cosine, "projection": projection / np.abs(gaps)[:, None, None, None]}


def _along(
    streams: Float[Tensor, "layers rows d_model"], R: Float[Tensor, "watched d_model"]
) -> Float[Tensor, "2 layers rows watched"]:
    """Return the cosine and the projection of each stream with each direction."""
    projection = streams @ R.T
    norm = streams.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    return torch.stack([projection / norm, projection])


def _against_null(change: np.ndarray, groups: np.ndarray, alpha: float) -> dict[str, Estimate | float | None]:
    """Summarise changes (n_trials, n_prompts): the first trial is the ablation, the others are the null."""
    interval = grouped_mean(change[0], groups, alpha, least=0.0)
    null = change[1:].mean(axis=1)
    return {
        "change": interval,
        "null_95th_percentile": float(np.quantile(null, 0.95)) if len(null) else None,
        "p_null": float(permutation_p(null, interval.estimate)) if len(null) else None,
    }
