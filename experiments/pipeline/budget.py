"""Fits a run into a time: leaves out what costs much time and little power, and says what each cut costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path
from typing import Any

import numpy as np

from experiments.dissociation.power import contrast_power, null_power
from experiments.run.config import RunConfig, load_config, with_value
from experiments.run.corpus import Corpus
from experiments.run.manifest import inputs_hash
from extract.errors import UserError
from extract.progress import Reporter

USUAL_TOKENS = 64  # of an answer; a run that asks for more needs them, as a model that thinks first does
LEAST_LAYERS = 6  # of a run; fewer would say little of where a decision is written
OWN, OTHER = 0.6, 0.1  # effects of ablating on the own and the other behaviour, for the power of fewer prompts
BEYOND = 0.01  # share of null directions whose effect is larger than a real one's, for the power of fewer of them


@dataclass(frozen=True)
class Cut:
    """A lower value of one key of the configuration."""

    key: str
    value: Any


LADDER = (  # from what says least about the verdicts to what their power rests on
    Cut("dissociate.variants", False),
    Cut("triggers.attributed", 8),
    Cut("triggers.patched", 16),
    Cut("triggers.erased", 20),
    Cut("dissociate.n_null_generation", 5),
    Cut("dissociate.positions", ("post_last",)),
    Cut("dissociate.n_null_onset", 99),
    Cut("steer.system_lines", ()),
    Cut("steer.one_dial", False),
    Cut("generate.max_new_tokens", 48),
    Cut("extract.layers", 2),
    Cut("dissociate.n_null_onset", 39),
    Cut("generate.max_new_tokens", 32),
    Cut("dissociate.n_side_effects", 24),
    Cut("dissociate.n_null_generation", 0),
    Cut("extract.layers", 4),
    Cut("triggers.attributed", 0),
    Cut("triggers.patched", 0),
    Cut("triggers.erased", 0),
    Cut("prompts.limit_dual_use", 40),
    Cut("prompts.limit", 130),
    Cut("generate.max_new_tokens", 24),
    Cut("dissociate.n_null_onset", 19),
    Cut("prompts.limit", 90),
    Cut("dissociate.n_selection", 8),
    Cut("dissociate.n_onset", 20),
    Cut("prompts.limit_dual_use", 10),
    Cut("prompts.limit", 60),
    Cut("prompts.limit", 40),
    Cut("dissociate.n_side_effects", 12),
    Cut("extract.layers", 5),
    Cut("prompts.limit", 28),
    Cut("dissociate.n_selection", 4),
    Cut("dissociate.n_onset", 8),
    Cut("dissociate.n_side_effects", 6),
    Cut("prompts.limit", 20),
)


def fit_time(
    config: RunConfig,
    n_layers: int,
    labels: Sequence[int],
    minutes: Callable[[RunConfig], float],
    most: float,
    works: Callable[[RunConfig], bool] = lambda config: True,
) -> RunConfig:
    """Return the configuration with as many cuts as it takes to last at most so many minutes; each shortens it.

    Args:
        labels: the number of prompts of each label.
        minutes: the expected duration of a run.
        most: the minutes there are.
        works: whether a run can be made of the prompts that a configuration takes; cuts to others are left out.

    Raises:
        UserError: not even the least run fits.
    """
    lasting, layers = minutes(config), config.extract.layers or tuple(range(n_layers))
    for cut in LADDER:
        if lasting <= most:
            break
        value = _applied(cut, config, layers, max(labels))
        if value is not None:
            shorter = with_value(config, cut.key, value[0])
            if cut.key.startswith("prompts.") and not works(shorter):
                continue
            if (then := minutes(shorter)) < lasting:  # not so where no step of these stages depends on the key
                config, lasting = shorter, then
    if lasting > most:
        raise UserError(
            f"the least run takes about {lasting:.1f} minutes on this machine, and there are "
            f"{max(0.0, most):.1f}; give a larger --budget, or a smaller model"
        )
    return config


def _applied(cut: Cut, config: RunConfig, layers: tuple[int, ...], most_of_a_label: int) -> tuple[Any] | None:
    """Return the value that a cut gives its key, or None where it would not make the run smaller.

    Args:
        layers: those of the run before any cut.
    """
    now = current(config, cut.key)
    if cut.key == "extract.layers":
        return None if _needs_its_layers(config) else _every(cut.value, layers, now)
    if cut.key == "generate.max_new_tokens" and now > USUAL_TOKENS:
        return None
    if cut.key == "dissociate.positions" and not {*cut.value} <= {*(config.extract.positions or cut.value)}:
        return None
    if cut.key == "prompts.limit":
        return (cut.value,) if cut.value < min(now or inf, most_of_a_label) else None
    if cut.key == "prompts.limit_dual_use":
        return (cut.value,) if cut.value < (inf if now is None else now) else None
    if cut.key == "dissociate.n_null_onset":
        least = ceil(1 / config.dissociate.alpha - 1e-9) - 1
        return (max(cut.value, least),) if max(cut.value, least) < now else None
    if isinstance(cut.value, tuple):
        return (cut.value,) if now is None or len(cut.value) < len(now) else None
    return (cut.value,) if cut.value < now else None


def _needs_its_layers(config: RunConfig) -> bool:
    """Return whether a run writes at every later layer, or at layers that given directions name."""
    later = "later" in (config.dissociate.layers, config.steer.layers)
    return later or config.dissociate.directions is not None


def _every(stride: int, layers: tuple[int, ...], now: tuple[int, ...] | None) -> tuple[tuple[int, ...]] | None:
    """Return every so many-th of some layers, if that is fewer than now and enough."""
    kept = layers[stride - 1 :: stride]
    return (kept,) if LEAST_LAYERS <= len(kept) < len(now or layers) else None


def current(config: RunConfig, key: str) -> Any:
    """Return the value of a key in dotted form."""
    section, name = key.split(".")
    return getattr(getattr(config, section), name)


def budgeted(config: RunConfig) -> str:
    """Return the hash that names the configuration before the cuts."""
    return inputs_hash(config.model_dump(mode="json"))


def continued(config: RunConfig, directory: Path, minutes: float, reporter: Reporter) -> RunConfig | None:
    """Return the configuration that the same budget chose in this run directory, if it did, and say so."""
    if not (directory / "config.yaml").is_file():
        return None
    try:
        found = load_config(directory / "config.yaml")
    except UserError:  # of another version
        return None
    same = found.budget is not None and (found.budget.of, found.budget.minutes) == (budgeted(config), minutes)
    if same:
        reporter.say(f"the run in {directory} is continued as its budget of {minutes:g} minutes cut it")
    return found if same else None


# -- what it costs -----------------------------------------------------------------------------------------------------


def left_out(whole: RunConfig, cut: RunConfig, corpora: tuple[Corpus, Corpus], n_layers: int) -> tuple[str, ...]:
    """Return in sentences what a cut configuration leaves out, and the power that it costs.

    Args:
        corpora: the prompts before and after the cut.
    """
    return (*_smaller(whole, cut, n_layers), *_fewer_prompts(whole, cut, *corpora))


def _smaller(whole: RunConfig, cut: RunConfig, n_layers: int) -> Iterator[str]:
    before, after = whole.dissociate, cut.dissociate
    if before.variants and not after.variants:
        yield "Other forms of ablation are not tried."
    for key, what in (
        ("attributed", "requests of each label whose words are left out in turn"),
        ("patched", "pairs with the trigger word patched"),
        ("erased", "requests of each kind with the trigger word erased"),
    ):
        n, m = getattr(whole.triggers, key), getattr(cut.triggers, key)
        if m < n:
            yield f"At most {m} of {n} {what}; no verdict depends on them."
    if before.positions != after.positions:
        yield "Write directions are fitted at the last prompt token alone; one fitted earlier may be stronger."
    if whole.extract.layers != cut.extract.layers and cut.extract.layers:
        count = len(whole.extract.layers or range(n_layers))
        yield (
            f"{len(cut.extract.layers)} of {count} layers are read and written; what is decided between two of them "
            "is found at the next."
        )
    if after.n_null_onset < before.n_null_onset:
        powers = [null_power(BEYOND, n, before.alpha) for n in (after.n_null_onset, before.n_null_onset)]
        yield (
            f"{after.n_null_onset} of {before.n_null_onset} permuted-label directions: p is not below "
            f"{1 / (after.n_null_onset + 1):.2g}, and an effect that {BEYOND:.0%} of them exceed is shown with a "
            f"power of {powers[0]:.0%} instead of {powers[1]:.0%}."
        )
    if after.n_null_generation < before.n_null_generation:
        yield (
            f"{after.n_null_generation} of {before.n_null_generation} permuted-label directions are tried on "
            "generated answers; no verdict depends on them."
        )
    for key, what in (
        ("n_selection", "validation prompts of each class choose the write locus"),
        ("n_onset", "declined prompts of each behaviour give the onset effects"),
        ("n_side_effects", "prompts give each side effect"),
    ):
        n, m = getattr(before, key), getattr(after, key)
        if m < n:
            yield f"At most {m} instead of {n} {what}: standard errors grow by {np.sqrt(n / m) - 1:.0%}."
    if cut.generate.max_new_tokens < whole.generate.max_new_tokens:
        yield (
            f"Answers end after {cut.generate.max_new_tokens} instead of {whole.generate.max_new_tokens} tokens; a "
            "caution or a fact that comes later is not read."
        )
    if len(cut.steer.system_lines) < len(whole.steer.system_lines):
        yield "The dials are not compared with system lines."
    if whole.steer.one_dial and not cut.steer.one_dial:
        yield "Two dials are not compared with one."


def _fewer_prompts(whole: RunConfig, cut: RunConfig, before: Corpus, after: Corpus) -> Iterator[str]:
    if (few := cut.prompts.limit_dual_use) is not None and few != whole.prompts.limit_dual_use:
        yield f"At most {few} prompts of dual use; they enter no rate and no verdict."
    if len(after) == len(before):
        return
    yield f"{len(after)} of {len(before)} prompts."
    margin, alpha = whole.dissociate.margin, whole.dissociate.alpha
    only_own, only_other = OWN * (1 - OTHER), OTHER * (1 - OWN)
    for label, action in (("harmful", "refused"), ("uncertain", "abstained from")):
        groups = [
            int(c.effective_groups(np.flatnonzero(c.labelled(label) & c.within("test")))) for c in (after, before)
        ]
        powers = [contrast_power(only_own, only_other, n, (margin, inf), alpha) for n in groups]
        yield (
            f"{groups[0]} of {groups[1]} independent {label} prompts are tested: if all are {action}, an own effect "
            f"of {OWN:.0%} against {OTHER:.0%} is shown to exceed the margin with a power of {powers[0]:.0%} "
            f"instead of {powers[1]:.0%}."
        )
