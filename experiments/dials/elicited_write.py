"""What dials write on a model that does not abstain by itself: of several writers, that of least loss.

The normative dial writes the direction of its own refusals, or their openings. Candidates of the epistemic dial are the
direction of its own declines of uncertain prompts, if they are a kind by reason; that of abstentions which a system
line elicits; the openings of these; and a configured answer. Each declines some validation prompts and permits some
benign ones, without the line. Its loss is the share of the former that are not declined in its way, plus that of the
latter that are declined, plus that of known answers, of training prompts too, that are no longer given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from experiments.dials.counterfactuals import OutcomeGenerator
from experiments.dials.results import COMPARED, TriedWriter
from experiments.dials.write import SAYS, direction_writer, onset_bias_writer
from experiments.dissociation.elicited_measure import set_to_answered
from experiments.elicited.condition import fitted_direction, under
from experiments.elicited.results import Elicitation
from experiments.probing.stage import context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import ACTION_OF, KINDS, Kind
from experiments.run.config import SteerConfig
from experiments.run.inputs import MOSTLY
from experiments.run.outcomes import Outcomes, share
from extract.chat.thinking import thinks
from probes.statistics.seeds import named_rng
from probes.statistics.two_phase import draw
from scoring.actions import DECLINED
from scoring.rates import grouped_rate
from steering.actuator import OnsetBias
from steering.writer import Writer


def with_least_loss(loaded: LoadedRun, writers: Mapping[Kind, Writer]) -> tuple[dict[Kind, Writer], list[TriedWriter]]:
    """Return the writers of least loss, with an epistemic one if any can be had, and what each candidate does."""
    own, contrast = writers.get("epistemic"), loaded.config.prompts.contrast
    if own is not None and (contrast or loaded.behaviour.basis == "wording"):
        return {**writers}, []
    candidates = {
        "normative": dict(_refusals(loaded, writers)),
        "epistemic": dict([*([("declines", own)] if own else []), *_elicited(loaded), *_answer(loaded)]),
    }
    chosen, tried = dict[Kind, Writer](), list[TriedWriter]()
    for kind in KINDS:
        compared = _compared(loaded, kind, candidates[kind]) if len(candidates[kind]) > 1 else []
        first = min(compared, key=lambda one: one.loss).name if compared else next(iter(candidates[kind]), None)
        chosen |= {kind: candidates[kind][first]} if first is not None else {}
        tried += compared
    return chosen, tried


def _compared(loaded: LoadedRun, kind: Kind, candidates: Mapping[str, Writer]) -> list[TriedWriter]:
    """Let each candidate decline and permit validation prompts, and permit questions that the plain model knows."""
    corpus, rng = loaded.corpus, named_rng(loaded.config.seed, f"what the {kind} dial writes")
    label, validation = {"normative": corpus.harmful, "epistemic": corpus.uncertain}[kind], corpus.within("validation")
    known = corpus.benign & loaded.behaviour.correct & corpus.within("train", "validation")
    among = map(np.flatnonzero, (label & validation, corpus.benign & validation, known))
    rows = [np.sort(each[draw(corpus.groups[each], COMPARED, rng)]) for each in among]
    declined, benign, facts = rows
    wanted = np.zeros((len(corpus), 2), dtype=bool)  # by outcome: declined, permitted
    wanted[declined, 0], wanted[[*benign, *facts], 1] = True, True
    n, tried = len(candidates) * int(wanted.sum()), []
    with loaded.reporter.task(f"what the {kind} dial writes", n) as advance:
        for name, writer in candidates.items():
            generator = OutcomeGenerator(loaded, [(name, writer)], dead_band=False)
            table = generator.start([np.zeros(len(corpus))])
            advance(int((wanted & table.known).sum()))
            table = generator.generate(table, wanted, advance)
            did, kept, stated = (
                Outcomes.of(each, table.actions[each, place], table.right[each, place])
                for each, place in zip(rows, (0, 1, 1), strict=True)
            )
            tried.append(
                TriedWriter(
                    kind=kind,
                    name=name,
                    did=share(did, {ACTION_OF[kind]}, corpus.groups[declined]),
                    declined=share(kept, {*DECLINED}, corpus.groups[benign]),
                    lost=grouped_rate(~stated.right, corpus.groups[facts]),
                )
            )
    return tried


def _biased(settings: SteerConfig) -> SteerConfig:
    return settings.model_copy(update={"actuator": "onset_bias", "strength": None})


def _refusals(loaded: LoadedRun, writers: Mapping[Kind, Writer]) -> Iterator[tuple[str, Writer]]:
    """Yield the configured writer of refusals, and, if that is a direction, one of their openings."""
    own, way = writers.get("normative"), ACTION_OF["normative"]
    if own is None:
        return
    yield "declines", own
    if own.direction is not None and not (onsets := context_onsets(loaded)).lacking(way):
        yield "openings", onset_bias_writer(_biased(loaded.config.steer), onsets.prefixes[way])


def _elicited(loaded: LoadedRun) -> Iterator[tuple[str, Writer]]:
    """Yield writers along the direction of abstentions under the line, set to plain answers, and of their openings."""
    path, settings, way = loaded.file("stages/elicit.json"), loaded.config.steer, ACTION_OF["epistemic"]
    if not Elicitation.succeeded(path):
        return
    found, behaviour, corpus = Elicitation.read(path), loaded.behaviour, loaded.corpus
    condition = under(loaded, found.line)
    if settings.actuator != "onset_bias" and found.direction.available and settings.at == "prompt":
        answered = np.flatnonzero(behaviour.answered & corpus.rated & corpus.within("train"))
        chosen = set_to_answered(fitted_direction(condition), answered, loaded.write_activations)
        yield "direction", direction_writer(settings, chosen)
    onsets = context_onsets(condition)
    if not onsets.lacking(way):
        yield "openings", onset_bias_writer(_biased(settings), onsets.prefixes[way])


def _answer(loaded: LoadedRun) -> Iterator[tuple[str, Writer]]:
    """Yield a writer that says the configured answer and ends, if there is one that the model can be made to say.

    It is an onset bias whose one opening is the whole answer: where it permits, that answer alone is forbidden.
    """
    answer, tokenizer = loaded.config.steer.answer, loaded.model.tokenizer
    share = np.mean([thinks(said.completion) for said in loaded.completions])
    if answer is None or share > MOSTLY:  # an answer in place of the thought is another model's
        return
    ends = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else loaded.model.eos_ids[0]
    said = tuple(tokenizer(answer, add_special_tokens=False)["input_ids"])
    if loaded.model.decode(said).strip().casefold() != answer.strip().casefold():
        loaded.reporter.say(f"the model's tokenizer has no tokens for steer.answer ({answer!r})")
        return
    yield "answer", Writer(None, OnsetBias(((*said, ends),), SAYS))
