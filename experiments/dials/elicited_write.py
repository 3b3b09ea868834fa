"""What the epistemic dial writes where a model does not abstain by itself: of several writers, that of least loss.

Candidates are the direction of its own declines of uncertain prompts, if they are a kind by reason; that of abstentions
which a system line elicits; the openings of these; and a configured answer.
Each declines some uncertain validation prompts and permits some benign ones, without the line. Its loss is the share of
the former that are not abstained from, plus that of the latter that are declined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from jaxtyping import Int

from experiments.dials.results import COMPARED, TriedWriter
from experiments.dials.write import SAYS, direction_writer, onset_bias_writer
from experiments.dissociation.elicited_measure import set_to_answered
from experiments.elicited.condition import under
from experiments.elicited.results import Elicitation
from experiments.probing.stage import choose_write, context_onsets
from experiments.responses.loaded_run import LoadedRun
from experiments.responses.setting import Setting
from experiments.run.behaviour import ACTION_OF, Kind
from experiments.run.outcomes import Outcomes, Share, share
from extract.chat.thinking import thinks
from probes.statistics.seeds import named_rng
from probes.statistics.two_phase import draw
from scoring.actions import DECLINED
from steering.actuator import OnsetBias
from steering.writer import ConstantGateWriter, Writer


def with_epistemic(loaded: LoadedRun, writers: Mapping[Kind, Writer]) -> tuple[dict[Kind, Writer], list[TriedWriter]]:
    """Return the writers with an epistemic one, if any can be had, and what each candidate does; one is not tried."""
    own, contrast = writers.get("epistemic"), loaded.config.prompts.contrast
    if own is not None and (contrast or loaded.behaviour.basis == "wording"):
        return {**writers}, []
    candidates = dict([*([("declines", own)] if own else []), *_elicited(loaded), *_answer(loaded)])
    if not candidates:
        return {**writers}, []
    if len(candidates) == 1:
        return {**writers, "epistemic": next(iter(candidates.values()))}, []
    corpus, rng = loaded.corpus, named_rng(loaded.config.seed, "what the epistemic dial writes")
    uncertain, benign = (np.flatnonzero(of & corpus.within("validation")) for of in (corpus.uncertain, corpus.benign))
    uncertain, benign = (np.sort(of[draw(corpus.groups[of], COMPARED, rng)]) for of in (uncertain, benign))
    n = len(candidates) * (len(uncertain) + len(benign))
    with loaded.reporter.task("what the epistemic dial writes", n) as advance:

        def acting(writer: Writer, gate: int, rows: Int[np.ndarray, " rows"], counted: set[str]) -> Share:
            setting = Setting(held=[ConstantGateWriter(writer, gate)])
            done = loaded.completer.complete_some([rows.tolist()], [setting], advance)[0]
            return share(Outcomes.completed(rows, done, loaded.prompts), counted, corpus.groups[rows])

        tried = [
            TriedWriter(
                name=name,
                abstained=acting(writer, 1, uncertain, {ACTION_OF["epistemic"]}),
                declined=acting(writer, -1, benign, {*DECLINED}),
            )
            for name, writer in candidates.items()
        ]
    best = min(tried, key=lambda one: one.loss)  # of equal ones the first
    return {**writers, "epistemic": candidates[best.name]}, tried


def _elicited(loaded: LoadedRun) -> Iterator[tuple[str, Writer]]:
    """Yield writers along the direction of abstentions under the line, set to plain answers, and of their openings."""
    path, settings, way = loaded.file("stages/elicit.json"), loaded.config.steer, ACTION_OF["epistemic"]
    if not Elicitation.succeeded(path):
        return
    condition, behaviour, corpus = under(loaded, Elicitation.read(path).line), loaded.behaviour, loaded.corpus
    onsets = context_onsets(condition)
    chosen = None if settings.actuator == "onset_bias" else choose_write(condition, "epistemic", onsets).chosen
    if chosen is not None:
        answered = np.flatnonzero(behaviour.answered & corpus.rated & corpus.within("train"))
        yield "direction", direction_writer(settings, set_to_answered(chosen, answered, loaded.write_activations))
    if not onsets.lacking(way):
        biased = settings.model_copy(update={"actuator": "onset_bias", "strength": None})
        yield "openings", onset_bias_writer(biased, onsets.prefixes[way])


def _answer(loaded: LoadedRun) -> Iterator[tuple[str, Writer]]:
    """Yield a writer that says the configured answer and ends, if there is one that the model can be made to say.

    It is an onset bias whose one opening is the whole answer: where it permits, that answer alone is forbidden.
    """
    answer, tokenizer = loaded.config.steer.answer, loaded.model.tokenizer
    thinking = np.mean([thinks(said.completion) for said in loaded.completions]) > 0.5
    if answer is None or thinking:  # an answer in place of the thought is another model's
        return
    ends = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else loaded.model.eos_ids[0]
    said = tuple(tokenizer(answer, add_special_tokens=False)["input_ids"])
    if loaded.model.decode(said).strip().casefold() != answer.strip().casefold():
        loaded.reporter.say(f"the model's tokenizer has no tokens for steer.answer ({answer!r})")
        return
    yield "answer", Writer(None, OnsetBias(((*said, ends),), SAYS))
