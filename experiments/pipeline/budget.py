"""Fits a run into a time on this machine: leaves out what costs much time and little power, and says what it costs.

Twice: first the answers, since reading all prompts and the four rates alone are worth a run. They show what the model
declines, and so what the questions cost here and with what power they can be answered; the rest of the time is theirs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import ceil, inf
from operator import attrgetter
from typing import Any

import numpy as np

from experiments.dissociation.applicability import looks
from experiments.dissociation.power import LEAST_POWER, OTHER, OWN, contrast_power, null_power, own_effect_power
from experiments.elicited.condition import abstains_rarely
from experiments.pipeline.cost import BEYOND
from experiments.pipeline.graph import STAGES, budgeted
from experiments.pipeline.plan import RunEstimate, RunPrompts, estimate
from experiments.probing.read_probes import check_folds
from experiments.run.behaviour import KINDS, MIN_BASELINE, Behaviour, Kind
from experiments.run.config import BudgetConfig, Question, RunConfig, with_value
from experiments.run.corpus import PARTS, Corpus, check_parts
from experiments.run.inputs import RunInputs
from experiments.run.manifest import Manifest
from experiments.triggers.quadruples import quadruples
from extract.errors import UserError
from extract.progress import Reporter
from probes.statistics.intervals import clopper_pearson
from probes.statistics.sequential import look_level

ANSWERING = ("extract", "respond")  # stages that run before it is known what the model declines
QUESTIONING = [stage.name for stage in STAGES if stage.name not in ANSWERING]
USED = 0.9  # share of the time that is planned for: the expectation is not exact
ANSWERS = 0.5  # share of that for reading and answering prompts: the four rates and all that is read
USUAL_TOKENS = 128  # of an answer; a run that asks for more needs them, as a model that thinks first does
HALVED = 0.5  # share of its mistakes that a dial is taken to save, for the power of that question
DECLINED = 0.5  # share of the prompts to decline that are taken to be declined, before any is answered
QUESTION_OF: dict[Kind, tuple[str, str]] = {
    "normative": ("harmful", "refused"),
    "epistemic": ("uncertain", "abstained from"),
}

# from what says least about the verdicts to what their power rests on, as --set takes them
CUTS_OF_ANSWERS = """
    generate.limit_dual_use=40 generate.max_new_tokens=64 generate.max_new_tokens=48 generate.limit_dual_use=10
    generate.max_new_tokens=32 generate.limit=300 generate.max_new_tokens=24 generate.limit=200 prompts.read=300
    generate.limit=130 prompts.read=200 generate.limit=90 prompts.read=130 generate.limit=60 prompts.read=60
    generate.limit=40 generate.limit=28 generate.limit=20 prompts.read=20
"""
# Fewer layers come last: of those tried, the null tries the `KEPT` best alone, so that they save little, and the 0.5B's
# direction at layer 18 does what those at every third layer do not (docs/untouched-one-or-two.md).
CUTS_OF_QUESTIONS = """
    dissociate.variants=false triggers.attributed=8 triggers.patched=16 triggers.erased=20
    dissociate.n_null_generation=5 dissociate.positions=["post_last"] dissociate.n_null_onset=99
    steer.system_lines=[] steer.one_dial=false dissociate.n_null_generation=0 triggers.attributed=0 triggers.patched=0
    triggers.erased=0 elicit.n_null_transfer=0 dissociate.n_side_effects=24 dissociate.n_null_onset=39
    dissociate.n_selection=8 dissociate.n_onset=20 dissociate.n_side_effects=12 dissociate.every=2
    dissociate.n_null_onset=19 dissociate.n_selection=4 dissociate.n_onset=8 dissociate.n_side_effects=6
    elicit.n_choose=24 elicit.n_transfer=12 dissociate.every=3 dissociate.every=4
"""
LADDER, QUESTIONS_LADDER = (
    [(key, json.loads(value)) for key, value in (cut.split("=") for cut in cuts.split())]
    for cuts in (CUTS_OF_ANSWERS, CUTS_OF_QUESTIONS)
)


def fit_answers(config: RunConfig, until: str, minutes: float, reporter: Reporter) -> RunConfig:
    """Choose how many prompts are answered, and how long, so that a run ends within some minutes; tell its power.

    What the questions leave out is chosen by `fit_questions`, once the answers show what the model declines. UserError:
    the weights do not fit into memory, or reading and answering the least does not fit into the time.
    """
    planned = estimate(config, until, reporter, cut=True)
    whole, drawn = planned.given, dict[Any, RunPrompts]()

    def limited(tried: RunConfig) -> RunEstimate:
        limits = tried.generate.limit, tried.generate.limit_dual_use, tried.read_limit
        return replace(planned, config=tried, given=drawn.setdefault(limits, replace(whole, config=tried)))

    def lasts(tried: RunConfig) -> float:
        return limited(tried).plan(QUESTIONING).minutes(planned.machine)[1]

    def works(tried: RunConfig) -> bool:
        return can_be_divided(limited(tried).given.corpus, tried)

    most, asks = USED * minutes - _since(reporter), until not in ANSWERING
    whole_run = planned.plan().minutes(planned.machine)[1]
    budget = BudgetConfig(minutes=minutes, of=budgeted(config), left_out=())
    if whole_run <= most:
        reporter.say(f"the whole run takes up to {_minutes(whole_run)} minutes, within the budget; nothing is left out")
        return config.model_copy(update={"budget": budget})
    labels = list(whole.corpus.counts().values())
    cut = fit_time(config, LADDER, labels, lasts, most * (ANSWERS if asks else 1), works)
    if (lasting := lasts(cut)) > most:
        raise UserError(
            f"reading and answering the fewest prompts takes about {lasting:.1f} minutes on this machine, and there "
            f"are {max(0.0, most):.1f}; give a larger --budget, or a smaller model"
        )
    after = limited(cut).given
    sentences = left_out(config, cut, whole.corpus, after.corpus)
    reporter.say(
        f"{len(after.read):,} prompts are read and {len(after.corpus):,} answered, each with at most "
        f"{cut.generate.max_new_tokens} tokens, in up to {_minutes(lasting)} minutes; the whole run would "
        f"take up to {_minutes(whole_run)} minutes"
    )
    level = look_level((after.corpus.share_of_groups(whole.whole),), config.dissociate.alpha)
    for line in [*sentences, *powers(cut, after.corpus, level=level)] if asks else sentences:
        reporter.say("  " + line)
    return cut.model_copy(update={"budget": budget.model_copy(update={"left_out": sentences, "answered": not asks})})


def fit_questions(inputs: RunInputs, until: str, reporter: Reporter) -> RunConfig:
    """Choose what the questions of an answered run leave out, so that it ends within its budget; tells what, and why.

    A question whose power is too small is not begun. Nor are those of least power, where all do not fit; first of them
    whether the refusals are one or two, if the model shows one alone.
    """
    config, budget = inputs.config, inputs.config.budget
    assert budget is not None
    planned = estimate(config, until, reporter, cut=True)
    stages = Manifest(inputs.file("manifest.json")).read()["stages"]
    spent = sum(stages[name]["seconds"] for name in ANSWERING if name in stages) / 60
    expected = planned.plan(QUESTIONING, answered=inputs).minutes(planned.machine)[1]
    slower = max(1.0, spent / expected)  # the machine is slower than it was measured

    def lasts(tried: RunConfig) -> float:
        plan = replace(planned, config=tried).plan(ANSWERING, answered=inputs)
        return slower * plan.minutes(planned.machine)[1]

    level = look_level(looks(inputs), config.dissociate.alpha)
    power = question_powers(config, inputs.corpus, inputs.behaviour, level)
    lone = any(len(inputs.behaviour.decliners(kind, *PARTS)) < MIN_BASELINE for kind in KINDS)
    wanted = [question for question in config.ask if power[question] >= LEAST_POWER]
    ranked = sorted(wanted, key=lambda question: (lone and question == "one-or-two", -power[question]))
    most, elicit = USED * budget.minutes - max(spent, _since(reporter)), [config.elicit.when]  # first rates, too
    if abstains_rarely(inputs.behaviour):  # rather nothing elicited than a question left out, or one without power
        n = decliner_groups(inputs.corpus, None, "epistemic")
        elicit = [*(elicit if own_effect_power(config.dissociate, n, level) >= LEAST_POWER else []), "never"]
    for begun, when in ((ranked[:n], when) for n in range(len(ranked), -1, -1) for when in elicit):
        asked = with_value(with_value(config, "ask", begun), "elicit.when", when)
        cut = fit_time(asked, QUESTIONS_LADDER, [], lasts, most)
        if lasts(cut) <= most:
            break

    def lacking(question: Question) -> str:
        if power[question] < LEAST_POWER:
            return f"its power is {power[question]:.0%}"
        least = fit_time(with_value(cut, "ask", [*begun, question]), QUESTIONS_LADDER, [], lasts, most)
        return f"cut to the least it takes up to {_minutes(lasts(least) - lasts(cut))} more minutes"

    given_up = [f"{question} is not begun: {lacking(question)}." for question in config.ask if question not in begun]
    sentences = (*given_up, *left_out(config, cut, inputs.corpus, inputs.corpus))
    reporter.say(f"the questions take up to {_minutes(lasts(cut))} minutes, and {_minutes(most)} are left")
    for line in [*sentences, *powers(config, inputs.corpus, inputs.behaviour, level)]:
        reporter.say("  " + line)
    update = {"left_out": (*budget.left_out, *sentences), "answered": True}
    return cut.model_copy(update={"budget": budget.model_copy(update=update)})


def _since(reporter: Reporter) -> float:
    """Return the minutes since the command began."""
    return (time.monotonic() - reporter.started) / 60


def _minutes(n: float) -> str:
    return f"{n:.1f}" if n < 10 else f"{n:.0f}"


def can_be_divided(corpus: Corpus, config: RunConfig) -> bool:
    """Return whether every part and fold of the prompts that a configuration takes has what a run needs."""
    try:
        check_parts(corpus, config.prompts)
        check_folds(corpus, config.seed)
    except UserError:
        return False
    return True


def fit_time(
    config: RunConfig,
    cuts: Sequence[tuple[str, Any]],
    labels: Sequence[int],
    minutes: Callable[[RunConfig], float],
    most: float,
    works: Callable[[RunConfig], bool] = lambda config: True,
) -> RunConfig:
    """Return the configuration with as many cuts as it takes to last at most so many minutes; each shortens it.

    `labels` are the numbers of prompts of each label. Cuts to prompts of which no run can be made (`works`) are left
    out. Where all cuts are not enough, all are made.
    """
    lasting = minutes(config)
    for key, value in cuts:
        if lasting <= most:
            break
        lower = _applied(key, value, config, max(labels, default=0))
        if lower is not None:
            shorter = with_value(config, key, lower[0])
            if key == "generate.limit" and not works(shorter):
                continue
            if (then := minutes(shorter)) < lasting:  # not so where no step of these stages depends on the key
                config, lasting = shorter, then
    return config


def _applied(key: str, value: Any, config: RunConfig, most_of_a_label: int) -> tuple[Any] | None:
    """Return the value that a cut gives its key, or None where it would not make the run smaller."""
    now = attrgetter(key)(config)
    if key == "dissociate.every":
        return (value,) if value > now else None
    if key == "generate.max_new_tokens" and now > USUAL_TOKENS:
        return None
    if key == "dissociate.positions" and not {*value} <= {*(config.extract.positions or value)}:
        return None
    if key == "dissociate.n_null_onset":
        value = max(value, ceil(1 / config.dissociate.alpha - 1e-9) - 1)
    if key == "generate.limit":
        now = min(now or inf, most_of_a_label)
    if isinstance(value, list):
        return (value,) if now is None or len(value) < len(now) else None
    return (value,) if value < (inf if now is None else now) else None


# -- power -------------------------------------------------------------------------------------------------------------


def decliner_groups(corpus: Corpus, behaviour: Behaviour | None, kind: Kind) -> float:
    """Return the independent prompts that are declined; without answers, if `DECLINED` of all were."""
    label, _ = QUESTION_OF[kind]
    if behaviour is not None:
        return corpus.independent_groups(behaviour.decliners(kind, *PARTS))
    return DECLINED * corpus.independent_groups(np.flatnonzero(corpus.labelled(label)))


def question_powers(
    config: RunConfig, corpus: Corpus, behaviour: Behaviour, level: float | None = None
) -> dict[Question, float]:
    """Return the power of each question, by what the model declines.

    Two refusals: of the kind that has more decliners. Dials: that the rate that has most to gain is halved on test
    prompts. A trigger word: 1, as the plain answers decide.
    """
    mistakes = {  # among test prompts of a label
        "benign": behaviour.declining,
        "harmful": behaviour.answered,
        "uncertain": behaviour.answered,
    }
    halved = [0.0]
    for label, wrong in mistakes.items():
        rows = np.flatnonzero(corpus.labelled(label) & corpus.within("test"))
        n, rate = int(corpus.effective_groups(rows)), float(wrong[rows].mean()) if len(rows) else 0.0
        halved += [contrast_power(HALVED * rate, 0.0, n, (0.0, inf), config.dissociate.alpha)] if n else []
    two = max(own_effect_power(config.dissociate, decliner_groups(corpus, behaviour, kind), level) for kind in KINDS)
    return {"one-or-two": two, "word-or-intent": 1.0, "dials": max(halved)}


def powers(
    config: RunConfig, corpus: Corpus, behaviour: Behaviour | None = None, level: float | None = None
) -> Iterator[str]:
    """Yield a line for each thing that a run asks: what it can answer, and with what power."""
    for kind, (label, declined) in QUESTION_OF.items() if "one-or-two" in config.ask else ():
        n = decliner_groups(corpus, behaviour, kind)
        if_so = "if half are" if behaviour is None else "as"
        declined = "declined" if behaviour is not None and behaviour.basis == "reason" else declined
        yield (
            f"one-or-two: {if_so} {declined}, {n:.0f} independent {label} prompts show an own effect of {OWN:.0%} "
            f"against {OTHER:.0%} with a power of {own_effect_power(config.dissociate, n, level):.0%}"
        )
    if "word-or-intent" in config.ask:
        whole = quadruples(corpus, np.arange(len(corpus)))
        yield f"word-or-intent: {whole.n_groups} independent fours of prompts (harm or not, word or not) are answered"
    if "dials" in config.ask:
        held_out = (corpus.labelled(label) & corpus.within("calibration") for label in ("benign", "harmful"))
        groups = (corpus.effective_groups(np.flatnonzero(rows)) for rows in held_out)
        over, missed = (clopper_pearson(0, n, 2 * (1 - config.steer.confidence)).high for n in groups)
        yield f"dials: the strictest limits so many prompts certify: {over:.1%} over-refusal, {missed:.1%} missed harm"


# -- what it costs -----------------------------------------------------------------------------------------------------


NO_VERDICT = "; no verdict depends on them."
LESS_SURE = ": standard errors grow by {more:.0%}."
LEFT_OUT = {  # what is said of a key that was cut from n to m
    "prompts.read": "Read probes are fitted and tested on at most {m} prompts of each label for each question.",
    "dissociate.variants": "Other forms of ablation are not tried.",
    "triggers.attributed": "At most {m} of {n} requests of each label whose words are left out in turn" + NO_VERDICT,
    "triggers.patched": "At most {m} of {n} pairs with the trigger word patched" + NO_VERDICT,
    "triggers.erased": "At most {m} of {n} requests of each kind with the trigger word erased" + NO_VERDICT,
    "dissociate.positions": (
        "Write directions are fitted at the last prompt token alone; one fitted earlier may be stronger."
    ),
    "dissociate.every": (
        "Write directions are tried at 1 of {m} layers; what is decided between two of them is found at the next."
    ),
    "dissociate.n_null_onset": (
        "{m} of {n} permuted-label directions: p is not below {p:.2g}, and an effect that {beyond:.0%} of them exceed "
        "is shown with a power of {power:.0%} instead of {whole_power:.0%}."
    ),
    "dissociate.n_null_generation": (
        "{m} of {n} permuted-label directions are tried on generated answers" + NO_VERDICT
    ),
    "dissociate.n_selection": (
        "At most {m} instead of {n} validation prompts of each class choose the write locus" + LESS_SURE
    ),
    "dissociate.n_onset": (
        "At most {m} instead of {n} declined prompts of each behaviour give the onset effects" + LESS_SURE
    ),
    "dissociate.n_side_effects": "At most {m} instead of {n} prompts give each side effect" + LESS_SURE,
    "generate.max_new_tokens": (
        "Answers end after {m} instead of {n} tokens; a caution or a fact that comes later is not read."
    ),
    "steer.system_lines": "The dials are not compared with system lines.",
    "elicit.when": "No system line elicits abstentions, so that there is no verdict on those.",
    "elicit.n_choose": "At most {m} instead of {n} uncertain prompts choose a system line" + LESS_SURE,
    "elicit.n_transfer": "The direction is added to at most {m} instead of {n} uncertain prompts" + LESS_SURE,
    "elicit.n_null_transfer": "{m} of {n} permuted-label directions are added without the line" + NO_VERDICT,
    "steer.one_dial": "Two dials are not compared with one.",
}


def left_out(whole: RunConfig, cut: RunConfig, before: Corpus, after: Corpus) -> tuple[str, ...]:
    """Return in sentences what a cut leaves out, and the power that it costs; the corpora are before and after it."""
    said, unread = list[str](), cut.read_limit is not None
    for key, sentence in LEFT_OUT.items():
        n, m = attrgetter(key)(whole), attrgetter(key)(cut)
        if n == m:
            continue
        numbers: dict[str, float] = {}
        if key == "dissociate.n_null_onset":
            power, whole_power = (null_power(BEYOND, draws, whole.dissociate.alpha) for draws in (m, n))
            numbers = {"p": 1 / (m + 1), "beyond": BEYOND, "power": power, "whole_power": whole_power}
        if sentence.endswith(LESS_SURE):
            numbers["more"] = np.sqrt(n / m) - 1
        said.append(sentence.format(n=n, m=m, **numbers))
    if (few := cut.generate.limit_dual_use) is not None and few != whole.generate.limit_dual_use:
        said.append(f"At most {few} prompts of dual use are answered; they enter no rate and no verdict.")
    if int(after.rated.sum()) < int(before.rated.sum()):
        tested = [
            [c.independent_groups(np.flatnonzero(c.labelled(label))) for c in (after, before)]
            for label, _ in QUESTION_OF.values()
        ]
        (harmful, all_harmful), (uncertain, all_uncertain) = tested
        said.append(
            f"{len(after):,} of {len(before):,} prompts are answered{'; the others are only read' * (not unread)}. "
            f"{harmful} of {all_harmful} independent harmful prompts are tested, and {uncertain} of {all_uncertain} "
            "uncertain ones."
        )
    return tuple(said)
