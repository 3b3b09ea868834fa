"""Cost of a run: the steps of each stage as upper limits, and their duration on a machine as a range. Arithmetic only.

A pass has three lower bounds: its matrix products (two FLOP for each weight and token), reading the weights and the
keys and values once, and starting each layer. At the low end of the range these overlap, or a measured model is at its
quickest, answers are short, and first-order effects choose the null's candidates; see `ASSUMED_OF_PEAKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import torch

from experiments.dials.counterfactuals import reachable_outcomes
from experiments.dials.results import CHECKED, COMPARED, MOST_PROMPTS
from experiments.factors import removal
from experiments.factors.judge import LABELS
from experiments.factors.prompt_context import REMOVALS
from experiments.pipeline.graph import in_order, stages_of
from experiments.pipeline.machine import Footprint, Machine
from experiments.probing.results import KEPT, MOST_LAYERS, MOST_LOCI, POSITIONS
from experiments.probing.write_directions import write_layers
from experiments.responses.batched_edits import MOST_LOGITS, MOST_ROWS
from experiments.run.behaviour import KINDS
from experiments.run.config import MOST_DIRECTIONS, QUESTIONS, WRITE_POSITION, RunConfig
from experiments.side_effects import measure as side_effects
from extract.capture_spec import WITHIN_THOUGHT
from extract.model.weights import slow_types
from probes.statistics.sequential import DrawingRule
from steering.ablation_variant import VARIANTS

BEYOND = 0.01  # share of null directions whose effect is larger than a real one's: of such the null is taken to be
ONSET_TOKENS = 6  # of a pass that continues a cached prompt: the last token and an onset prefix
BEGINNINGS = 4  # different beginnings of onset prefixes, one pass each
ABOVE = 0.6  # of a pass: the head, and the layers above an edited one, which lies in the middle on average
ASSUMED_OF_PEAKS = (
    "60 % to 25 % of the machine's matrix products, 80 % to 40 % of its memory bandwidth, {launch} ms to start a "
    "layer; answers of half to all of max_new_tokens; the highest cost of every step, at the low end with the null's "
    "candidates chosen by first-order effects. "
)
ASSUMED_OF_MODEL = (
    "the quickest passes measured on random weights of the model's shape, a tenth slower at the high end; answers of "
    "60 % to all of max_new_tokens (once there are some, as long as these); the highest cost of every step (a model "
    "that declines less takes less), with the null's candidates chosen by first-order effects (it takes longer where "
    "these mislead). "
)
NOT_COUNTED = "Not counted: loading the model, writing files, judges other than rules and local."
JUDGED = 0.6  # share of completions that the judge `local` reads (.45 to .7 of three models' answers)
JUDGING = 3.3e8  # FLOP of a token in the 11 layers of Qwen2.5-Coder-0.5B that it runs
JUDGED_TOKENS, MOST_JUDGED_TOKENS = 24, 352  # beside a prompt and its completion, about; of these two, which are cut
JUDGING_STEP = "judging by local"
# Seconds of the probes of all contrasts at a locus, and of each prompt there, on two cores: .74 with 300 prompts of 896
# dimensions, 1.0 with 2,002 of 128, about 2 with 1,840 of 896.
LOCUS, PROMPT_AT_LOCUS = 0.5, 8e-4


@dataclass(frozen=True)
class Step:
    """One step of a run: forward passes of one prompt each, with their length in tokens, and completions."""

    name: str
    passes: int = 0
    tokens_a_pass: float = 0.0
    completions: int = 0
    distributions: int = 0  # next-token distributions of a pass, if they limit its rows
    repeats: int = 1  # most times that such a pass is repeated, one for each beginning of the onset prefixes
    # where first-order effects choose which are made, and the null stops early; None: as many as at most
    least_passes: int | None = None
    usual_completions: int | None = None  # where a search chooses which are made, each in a batch of its own
    settings: int = 1  # completions that share the prefill of their prompt
    kept: bool = False  # whether that prefill is kept from the pass that captured the activations
    layers: float = 1.0  # share of a pass's arithmetic, where it runs the layers above an edited one alone
    declining: float | None = None  # share of the completions that decline; None: none at the high end, half at the low
    products: float = 0.0  # FLOP of what is not a pass, in bfloat16
    lasting: float = 0.0  # seconds of what a CPU does, whatever the model runs on


@dataclass(frozen=True)
class RunSize:
    """The numbers that a run's cost depends on."""

    read: int  # prompts, answered or not
    read_tokens: float  # that are computed for each of them, without what they share
    prompts: int  # answered
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
    unanswered: int = 0  # rated calibration and test prompts to be declined, or that the plain model did not answer
    answered_sorts: int = 2  # from which interventions are drawn: benign ones with a known answer and without, or more
    of_groups: float = 1.0  # share of the groups of harmful and uncertain prompts that are answered
    elicited: int = 0  # prompts that are asked again under a line, where the model hardly abstains by itself
    lengths: tuple[float, float] | None = None  # tokens of a plain decline and of an answer on average, once there are
    thought: float = 0.0  # tokens before an answer on average, which every onset pass reads; 0: it does not think


def _elicit(config: RunConfig, size: RunSize) -> list[Step]:
    given = config.elicit
    if not size.elicited or given.when == "never":
        return []
    tried = len(given.lines) * 2 * given.n_choose
    trials = 2 * config.dissociate.n_selection * _candidates(config, size)  # and with permuted labels
    return [
        Step("trying system lines", completions=min(tried, len(given.lines) * size.elicited)),
        Step("activations under the line", size.elicited, size.read_tokens),
        Step("answers under the line", completions=size.elicited, kept=True),
        Step("answers under the control line", completions=min(3 * given.n_control, size.elicited)),
        *_choosing("direction under the line: ", "bypass and induce", trials, config, size),
    ]


def _elicited(config: RunConfig, size: RunSize) -> list[Step]:
    """Return the cost of both directions in three cells, with every prompt declined that is to be, usually a half."""
    given, asked, n = config.dissociate, config.elicit, size.elicited
    if not n or asked.when == "never":
        return []
    rule = DrawingRule.at_look((size.of_groups,), given.n_null(thinks=bool(size.thought)), given.alpha)
    usual, one, candidates = round(rule.mean_draws(BEYOND)), given.n_selection, _candidates(config, size)
    tried, kept = one * candidates, min(KEPT, candidates)
    onset, declined = 3 * given.n_onset, 2 * (2 * n // 3) + n // 3  # of uncertain, twins and harmful, a third each
    added = 2 * asked.n_transfer * (1 + asked.n_null_transfer)
    return [
        Step("declines under the line", completions=declined, usual_completions=declined // 2, settings=2, kept=True),
        *_choosing("other half under the line: ", "bypass and induce", 2 * tried, config, size, least=2 * one * kept),
        *_choosing(
            "null under the line: ", "bypass and induce", 2 * rule.n * tried, config, size, least=2 * usual * one * kept
        ),
        replace(_onsets("null under the line: onset effects", 2 * rule.n * onset), least_passes=2 * usual * onset),
        Step("added without the line", completions=added, settings=1 + asked.n_null_transfer, kept=True),
    ]


def _trigger_measures(config: RunConfig, size: RunSize) -> list[Step]:
    given = config.triggers
    layers, attributed = _n_layers(config, size), len(LABELS) * given.attributed
    scored = 2 * 2 * given.erased * (layers + 1)  # two kinds of requests in two parts, at every layer
    return [
        Step("the last turn alone, no system line", completions=len(REMOVALS) * min(removal.MOST, size.in_context)),
        Step("pairs with the trigger word patched", 4 * given.patched * layers, size.prompt_tokens),
        _onsets("the trigger word erased", scored, 2 * min(removal.MOST, size.test) * bool(given.erased)),
        Step("each word left out in turn", int(attributed * size.prompt_tokens), size.prompt_tokens),
        _fits("probes of intent", layers * 2, size),
    ]


def _categories(config: RunConfig, size: RunSize) -> list[Step]:
    """Return the cost with every declinable prompt declined and all of them in `least`-sized categories."""
    settings, n = config.categories, config.dissociate.n_selection
    declinable = 2 * size.declinable * bool(size.kinds)  # half of the prompts are validation and test, as a rule
    k = max(2, declinable // settings.least)
    tried = settings.folds * k * _candidates(config, size) * n
    return [
        *_choosing("choosing the layer of categories: ", "onsets", tried, config, size),
        Step("ablations of categories", completions=(2 * k + 1) * declinable, settings=2 * k + 1),
    ]


def _steer(config: RunConfig, size: RunSize) -> list[Step]:
    dead_band, given = config.steer.band > 0, config.steer.system_lines
    tested, dials = size.test + size.dual_use_test, min(size.kinds + (config.steer.answer is not None), len(KINDS))
    both, alone = (len(reachable_outcomes(n, dead_band=dead_band)) for n in (dials, 1))
    places, where = (1, "") if config.steer.actuator == "onset_bias" else (size.kinds, ", at two places")
    compared = config.steer.one_dial and size.kinds == len(KINDS)
    n = size.prompts * bool(dials)

    def outcomes(what: str, each: int, times: int) -> Step:
        """Count all outcomes, and those that results usually rest on: two a prompt (1.3 to 2.5 where measured)."""
        usual = None if config.steer.outcomes == "all" or config.steer.by else 2 * n * times
        return Step(
            f"every outcome of {what}",
            completions=each * n * times,
            settings=each,
            usual_completions=usual,
            kept=True,
            declining=0.5,  # every outcome but one declines
        )

    rarely = bool(dials and size.elicited)
    elicited = rarely and "one-or-two" in config.ask and config.elicit.when != "never"
    ways = rarely * (2 + (4 if elicited else 2))  # to write, that are compared: of the normative dial, and of the other
    trials = 3 * COMPARED * ways
    free = 2 * COMPARED * rarely * (3 if elicited else 2)  # permits by openings, of prompts that begin with none
    return [
        Step("what the dials write", completions=trials, usual_completions=trials - free, declining=1 / 3),
        outcomes("the two gates", both, 1),
        *([outcomes(f"one dial{where}", alone, places)] if compared else []),
        Step("test prompts under system lines", completions=len(given) * size.test),
        Step("completions with the dials", completions=tested * bool(dials), usual_completions=min(CHECKED, tested)),
        *(
            [Step("completions with thresholds by category", completions=min(CHECKED, tested))]
            if config.steer.by
            else []
        ),
    ]


def _candidates(config: RunConfig, size: RunSize) -> int:
    chosen = config.dissociate.positions
    deepest = len(write_layers(size.n_layers, config.dissociate.deepest))
    tried = max(1, min(_n_layers(config, size), deepest) // config.dissociate.every)
    if size.thought:
        return min(MOST_LOCI, tried * len(chosen or (WRITE_POSITION, *WITHIN_THOUGHT)))
    return tried * (len(chosen) if chosen else size.positions)


def _probe(config: RunConfig, size: RunSize) -> list[Step]:
    positions = config.extract.positions or range(size.positions + 1)  # and the mean over the instruction
    loci = _n_layers(config, size) * len(positions)
    tried = 2 * size.kinds * _candidates(config, size) * config.dissociate.n_selection  # and with permuted labels
    # Nested folds of two contrasts take as long as all contrasts at one fold, those of single categories half as long.
    nested = 3 * min(MOST_LAYERS, _n_layers(config, size)) * len(POSITIONS) // 2
    return [
        _fits("read probes", loci, size),
        _fits("reads by nested folds", nested, size),
        *_choosing("choosing write directions: ", "onsets", tried, config, size),
    ]


def _n_layers(config: RunConfig, size: RunSize) -> int:
    return len(config.extract.layers or range(size.n_layers))


def _fits(name: str, loci: int, size: RunSize) -> Step:
    return Step(name, lasting=loci * (LOCUS + PROMPT_AT_LOCUS * size.read))


def _effects(config: RunConfig, size: RunSize) -> list[Step]:
    given = config.dissociate
    rule = DrawingRule.at_look((size.of_groups,), given.n_null(thinks=bool(size.thought)), given.alpha)
    nulls = 0 if _elicited(config, size) else size.kinds  # drawn under the line, where something is elicited
    draws, onset = nulls * rule.n, size.kinds * given.n_onset
    usual = nulls * round(rule.mean_draws(BEYOND))
    generated = nulls * (rule.n if size.thought else min(given.n_null_generation, given.n_null_onset)) * onset
    drawn, others = given.n_side_effects, size.unanswered
    some = 2 * min(drawn, (others + 1) // 2)  # harmful and uncertain ones, at most so many of each
    answered = min(size.answered_sorts * drawn, size.test)
    tested = size.kinds * (others + answered + some + answered + some)  # ablations, additions, random directions
    together = max(1, round(tested / max(1, others + answered)))
    one, candidates = size.kinds * given.n_selection, _candidates(config, size)
    tried, screened = draws * given.n_selection * candidates, usual * given.n_selection * min(KEPT, candidates)
    ways = size.kinds * (len(VARIANTS) + 1) if given.variants else 0
    wrapped, texts = side_effects.cost(config, size.harmful_test, 1 + size.kinds)
    return [
        Step("interventions on test prompts", completions=tested, settings=together, kept=True),
        *_choosing(
            "cross-fitting: ", "bypass and induce", one * candidates, config, size, least=one * min(KEPT, candidates)
        ),
        Step("declines of the other half", completions=size.kinds * size.declinable, settings=size.kinds, kept=True),
        *_choosing("permuted-label null: ", "bypass and induce", tried, config, size, least=screened),
        replace(_onsets("permuted-label null: onset effects", draws * onset), least_passes=usual * onset),
        Step("permuted-label null: completions", completions=generated, kept=True),
        _onsets("other ways of ablating", ways * onset, ways * (onset + given.n_onset)),
        Step("side effects", texts, size.prompt_tokens + given.kl_tokens, wrapped, settings=1 + size.kinds),
    ]


def _rank(config: RunConfig, size: RunSize) -> list[Step]:
    """Return the cost of the most directions: ablated once on training and test prompts, thrice on validation."""
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


def _choosing(
    what: str, scored: str, tried: int, config: RunConfig, size: RunSize, least: int | None = None
) -> list[Step]:
    """Return the steps of trying candidates; `least`: how many of them, where first-order effects choose.

    Of a model that thinks, half as many prompts are answered again under each, and few benign ones.
    """
    k = config.dissociate.kl_tokens
    if size.thought:
        return [Step(what + "answers after new thoughts", completions=tried * 5 // 8, kept=True)]
    onsets = replace(_onsets(what + scored, 2 * tried), least_passes=None if least is None else 2 * least)
    return [onsets, Step(what + "KL", tried, k, distributions=k, layers=ABOVE, least_passes=least)]


FORMULAS: dict[str, Callable[[RunConfig, RunSize], list[Step]]] = {  # other stages run no model
    "extract": lambda config, size: [
        Step("activations", size.read, size.read_tokens),
        *([Step("answers, to capture their thoughts", completions=size.read)] if config.extract.thought_tokens else []),
    ],
    "respond": lambda config, size: [Step("plain completions", completions=size.prompts, kept=True)],
    "elicit": _elicit,
    "uncertainty": lambda config, size: [
        Step("sampled answers", completions=samples * size.questions, settings=samples)
        for samples in [config.uncertainty.with_default_samples.samples]
    ],
    "trigger_measures": _trigger_measures,
    "probe": _probe,
    "effects": _effects,
    "elicited": _elicited,
    "rank": _rank,
    "category_effects": _categories,
    "steer": _steer,
    "token_readings": lambda config, size: (
        [Step("readings at every token", min(MOST_PROMPTS, size.test + size.dual_use_test), size.prompt_tokens)]
        * ("dials" in config.ask)
    ),
}


def steps(config: RunConfig, size: RunSize, until: str, done: Collection[str] = ()) -> list[Step]:
    """List the steps up to a stage, without stages that are done, as if every prompt that may decline did decline."""
    left = [stage for stage in in_order(stages_of(config), [until]) if stage.name not in done]
    unasked = {*QUESTIONS} - {*config.ask}  # a stage for one question alone has it among its sections
    asked = [stage.name for stage in left if stage.name in FORMULAS and unasked.isdisjoint(stage.sections)]
    if "extract" in asked and config.answers_first:
        asked = [name for name in asked if name != "respond"]
    listed = [step for name in asked for step in FORMULAS[name](config, size)]
    listed += [_judging(listed, config, size)] if config.judge == "local" else []
    return [replace(s, tokens_a_pass=s.tokens_a_pass + size.thought) if s.repeats > 1 else s for s in listed]


def _judging(listed: Sequence[Step], config: RunConfig, size: RunSize) -> Step:
    usual = (s.completions if s.usual_completions is None else s.usual_completions for s in listed)
    read = min(MOST_JUDGED_TOKENS, size.prompt_tokens + config.generate.max_new_tokens) + JUDGED_TOKENS
    return Step(JUDGING_STEP, products=JUDGED * sum(usual) * read * JUDGING)


def tokens(listed: Sequence[Step], size: RunSize, max_new_tokens: int) -> int:
    """Return the largest number of tokens that all steps read and write."""
    read = sum(step.passes * step.tokens_a_pass for step in listed)
    return int(read + sum(step.completions for step in listed) * (size.prompt_tokens + max_new_tokens))


# -- duration ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batches:
    """The sizes of passes."""

    tokens: int  # of the prompts that are read
    completions: int
    prompt_tokens: float  # of a prompt, on average
    max_new_tokens: int
    lengths: tuple[float, float] | None = None  # see `RunSize`


@dataclass(frozen=True)
class Utilization:
    """Assumed utilization of the machine, at one end of the range."""

    products: float  # share of the machine's peak
    reading: float  # share of its bandwidth
    answers: float  # length of the answers, as a share of the allowed length, where none are there yet
    declining: float  # share of the answers that are as short as declines, where answers are there
    overlapping: bool  # whether products, reading and starting overlap
    screened: bool  # whether first-order effects choose which candidates of the null are measured
    repeats: int  # beginnings of the onset prefixes


FAST = Utilization(0.6, 0.8, 0.5, 0.5, overlapping=True, screened=True, repeats=1)
SLOW = Utilization(0.25, 0.4, 1.0, 0.0, overlapping=False, screened=False, repeats=4)
# On the real model tried so far first-order effects agreed with exact ones; where they do not, the null takes up to as
# much longer as there are more candidates than are kept.
SHORT_ANSWERS = Utilization(1.0, 1.0, 0.6, 0.5, overlapping=False, screened=True, repeats=3)
LONG_ANSWERS = Utilization(0.9, 1.0, 1.0, 0.0, overlapping=False, screened=True, repeats=4)


def minutes(steps: Sequence[Step], model: Footprint, machine: Machine, batches: Batches) -> tuple[float, float]:
    """Return the lower and upper estimate of the time of some steps, in minutes."""
    ends = (SHORT_ANSWERS, LONG_ANSWERS) if machine.of_model else (FAST, SLOW)
    low, high = (seconds(steps, model, machine, batches, used) / 60 for used in ends)
    return low, high


def seconds(steps: Sequence[Step], model: Footprint, machine: Machine, batches: Batches, used: Utilization) -> float:
    """Return the time of some steps at one assumed utilization, in seconds."""

    def forward(tokens: float, distributions: float, cached: float = 0.0) -> float:
        """Time a pass with so many next-token distributions, which reads so many bytes of keys and values."""
        products = 2 * (model.blocks * tokens + model.head * distributions) / (used.products * machine.flops)
        reading = (model.weights + cached) / (used.reading * machine.bandwidth)
        starting = model.n_layers * machine.launch[0 if used.overlapping else 1]
        return max(products, reading, starting) if used.overlapping else products + reading + starting

    def answering(rows: float, step: Step, settings: int) -> float:
        """Time a batch of prompts that is read once, if it is not kept, and answered under each setting."""
        new, going = used.answers * batches.max_new_tokens, 1.0
        if batches.lengths:  # the last of a batch goes on to the limit, the others end before
            share = used.declining if step.declining is None else step.declining
            new = batches.max_new_tokens
            going = (share * batches.lengths[0] + (1 - share) * batches.lengths[1]) / new
        seen = rows * going * (batches.prompt_tokens + new / 2) * model.cache
        reading = 0.0 if step.kept else forward(rows * batches.prompt_tokens, rows)
        return reading + settings * new * forward(rows * going, rows * going, seen)

    single = (model if machine.of_model else machine).width == 4  # whether the machine's speed is that of float32
    in_half = machine.flops * (2 if single and torch.bfloat16 not in slow_types() else 1)
    spent = 0.0
    for step in steps:
        spent += step.lasting + step.products / (used.products * in_half)
        passes = step.passes if step.least_passes is None or not used.screened else step.least_passes
        if passes:
            rows = max(1, int(batches.tokens // max(1.0, step.tokens_a_pass)))
            if step.distributions:
                rows = min(MOST_ROWS, max(1, MOST_LOGITS // (step.distributions * model.vocabulary)))
            together = min(rows, passes)
            one = forward(together * step.tokens_a_pass, together * step.distributions)
            spent += passes / together * one * step.layers * min(step.repeats, used.repeats)
        usually = step.usual_completions if used.screened else None
        completions, settings = (step.completions, step.settings) if usually is None else (usually, 1)
        if completions:  # each setting answers a batch of prompts by itself
            full, rest = divmod(completions / settings, batches.completions)
            spent += full * answering(batches.completions, step, settings)
            spent += answering(rest, step, settings) if rest else 0.0
    return spent


def assumptions(machine: Machine) -> str:
    """Return the assumptions behind the range, as text."""
    of_peaks = ASSUMED_OF_PEAKS.format(launch=" to ".join(f"{1e3 * seconds:g}" for seconds in machine.launch))
    return (ASSUMED_OF_MODEL if machine.of_model else of_peaks) + NOT_COUNTED
