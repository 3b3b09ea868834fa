"""Cost of a run as upper limits by step: prompts read, completions and tokens. Arithmetic only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from experiments.dials.counterfactuals import reachable_outcomes
from experiments.dials.results import MOST_PROMPTS
from experiments.factors import removal
from experiments.factors.decision_change import LABELS
from experiments.factors.prompt_context import REMOVALS
from experiments.pipeline.duration import Step
from experiments.pipeline.graph import in_order, stages_of
from experiments.probing.results import KEPT
from experiments.probing.write_directions import write_layers
from experiments.run.behaviour import KINDS
from experiments.run.config import MOST_DIRECTIONS, RunConfig
from experiments.side_effects import measure as side_effects
from steering.ablation_variant import VARIANTS

KINDS_OF_EDIT = 3  # ablation, addition, and ablation of a random direction
ONSET_TOKENS = 6  # of a pass that continues a cached prompt: the last token and an onset prefix
BEGINNINGS = 4  # different beginnings of onset prefixes, one pass each
ABOVE = 0.6  # of a pass: the head, and the layers above an edited one, which lies in the middle on average


@dataclass(frozen=True)
class RunSize:
    """The numbers that a run's cost depends on."""

    prompts: int
    test: int  # rated ones
    harmful_test: int
    prompt_tokens: float  # of a prompt, on average
    n_layers: int
    positions: int  # prompt positions from the end of the instruction on
    questions: int = 0  # with a known answer, or uncertain
    dual_use_test: int = 0
    train: int = 0
    declinable: int = 0  # harmful or uncertain validation and test prompts
    in_context: int = 0  # prompts with a system message or earlier turns
    kinds: int = len(KINDS)  # ways of declining that the model shows often enough


def steps(config: RunConfig, size: RunSize, until: str, done: Collection[str] = ()) -> list[Step]:
    """List the steps up to a stage, but for stages that are done, with their highest cost.

    It is the cost as if every prompt that may decline did decline, in each of `size.kinds` ways.
    """
    listed: dict[str, Callable[[RunConfig, RunSize], list[Step]]] = {
        "extract": lambda c, s: [Step("activations", s.prompts, s.prompt_tokens)],
        "respond": lambda c, s: [Step("plain completions", completions=s.prompts)],
        "probe": _probe,
        "effects": _effects,
        "rank": _rank,
        "trigger_measures": _trigger_measures,
        "category_effects": _categories,
        "gate_open": lambda c, s: [Step("declined prompts with the gate open (remembered)")],
        "uncertainty": lambda c, s: [
            Step(
                "sampled answers",
                completions=c.uncertainty.with_default_samples.samples * s.questions,
                settings=c.uncertainty.with_default_samples.samples,
            )
        ],
        "steer": _steer,
        "token_readings": lambda c, s: [
            Step("readings at every token", min(MOST_PROMPTS, s.test + s.dual_use_test), s.prompt_tokens)
        ],
    }
    wanted = [stage.name for stage in in_order(stages_of(config), [until]) if stage.name not in done]
    return [step for name in wanted if name in listed for step in listed[name](config, size)]


def _trigger_measures(config: RunConfig, size: RunSize) -> list[Step]:
    given = config.triggers
    layers, attributed = len(config.extract.layers or range(size.n_layers)), len(LABELS) * given.attributed
    scored = 2 * 2 * given.erased * (layers + 1)  # two kinds of requests in two parts, at every layer
    return [
        Step("the last turn alone, no system line", completions=len(REMOVALS) * min(removal.MOST, size.in_context)),
        Step("pairs with the trigger word patched", 4 * given.patched * layers, size.prompt_tokens),
        _onsets("the trigger word erased", scored, 2 * min(removal.MOST, size.test) * bool(given.erased)),
        Step("each word left out in turn", int(attributed * size.prompt_tokens), size.prompt_tokens),
    ]


def _categories(config: RunConfig, size: RunSize) -> list[Step]:
    """Return the cost with every declinable prompt declined and all of them in `least`-sized categories."""
    given, n = config.categories, config.dissociate.n_selection
    declinable = (
        2 * size.declinable * bool(size.kinds)
    )  # of all parts: half of the prompts are validation and test, as a rule
    k = max(2, declinable // given.least)
    tried = given.folds * k * _candidates(config, size) * n
    return [
        _onsets("choosing the layer of categories: onsets", 2 * tried),
        _steps_of_kl("choosing the layer of categories: KL", tried, config),
        Step("ablations of categories", completions=(2 * k + 1) * declinable, settings=2 * k + 1),
    ]


def _steer(config: RunConfig, size: RunSize) -> list[Step]:
    dead_band, given = config.steer.band > 0, config.steer.system_lines
    tested = size.test + size.dual_use_test
    both, alone = (len(reachable_outcomes(n, dead_band=dead_band)) for n in (size.kinds, 1))
    two, one = both * size.prompts * bool(size.kinds), alone * size.prompts
    places, where = (1, "") if config.steer.actuator == "onset_bias" else (size.kinds, ", at two places")
    return [
        Step("every outcome of the two gates", completions=two, settings=both),
        *(
            [Step(f"every outcome of one dial{where}", completions=places * one, settings=alone)]
            if config.steer.one_dial
            else []
        ),
        Step("test prompts under system lines", completions=len(given) * size.test),
        Step("completions with the dials", completions=tested * bool(size.kinds)),
        *([Step("completions with thresholds by category", completions=tested)] if config.steer.by else []),
    ]


def _candidates(config: RunConfig, size: RunSize) -> int:
    chosen = config.dissociate.positions
    n_layers = len(config.extract.layers or range(size.n_layers))
    deepest = len(write_layers(size.n_layers, config.dissociate.deepest))
    return min(n_layers, deepest) * (len(chosen) if chosen else size.positions)


def _probe(config: RunConfig, size: RunSize) -> list[Step]:
    n = config.dissociate.n_selection
    tried = size.kinds * _candidates(config, size) * n
    return [
        _onsets("choosing write directions: onsets", 2 * tried),
        _steps_of_kl("choosing write directions: KL", tried, config),
    ]


def _effects(config: RunConfig, size: RunSize) -> list[Step]:
    given = config.dissociate
    draws, onset = size.kinds * given.n_null_onset, size.kinds * given.n_onset
    generated = size.kinds * min(given.n_null_generation, given.n_null_onset) * onset
    edits = size.kinds * KINDS_OF_EDIT
    each, candidates = draws * given.n_selection, _candidates(config, size)
    tried, screened = each * candidates, each * min(KEPT, candidates)
    ways = size.kinds * (len(VARIANTS) + 1) if given.variants else 0
    besides = side_effects.cost(config, size.harmful_test, 1 + size.kinds)
    return [
        Step("interventions on test prompts", completions=edits * size.test, settings=edits),
        replace(_onsets("permuted-label null: bypass and induce", 2 * tried), least_passes=2 * screened),
        replace(_steps_of_kl("permuted-label null: KL", tried, config), least_passes=screened),
        _onsets("permuted-label null: onset effects", draws * onset),
        Step("permuted-label null: completions", completions=generated),
        _onsets("other ways of ablating", ways * onset, ways * (onset + given.n_onset)),
        Step(
            "side effects",
            besides.texts_read,
            size.prompt_tokens + given.kl_tokens,
            besides.generations,
            settings=1 + size.kinds,
        ),
    ]


def _rank(config: RunConfig, size: RunSize) -> list[Step]:
    """Return the cost of fitting as many directions as may be fitted, each in three ways at every layer.

    They are ablated on training prompts once, on validation prompts three times and on test prompts once.
    """
    given = config.dissociate
    k = MOST_DIRECTIONS if given.rank == "auto" else given.rank
    layers = len(write_layers(size.n_layers, given.deepest)) if given.layers == "later" else 1
    fitted, fits = size.kinds * k, 3 * layers + k  # and the directions found, when they are fitted again
    return [
        Step("rank: completions", completions=k * (size.train + 3 * size.declinable) * bool(size.kinds)),
        _onsets("rank: choosing directions", 2 * fitted * fits * given.n_selection),
        *([Step("rank: streams", 2 * k * size.prompts, size.prompt_tokens)] if layers > 1 else []),
    ]


def _onsets(name: str, passes: int, completions: int = 0) -> Step:
    return Step(name, passes, ONSET_TOKENS, completions, distributions=ONSET_TOKENS, repeats=BEGINNINGS, layers=ABOVE)


def _steps_of_kl(name: str, passes: int, config: RunConfig) -> Step:
    return Step(name, passes, config.dissociate.kl_tokens, distributions=config.dissociate.kl_tokens, layers=ABOVE)


def tokens(listed: Sequence[Step], size: RunSize, max_new_tokens: int) -> int:
    """Return the largest number of tokens that all steps read and write."""
    read = sum(step.passes * step.tokens_a_pass for step in listed)
    return int(read + sum(step.completions for step in listed) * (size.prompt_tokens + max_new_tokens))
