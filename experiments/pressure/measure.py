"""Answers test prompts under each perturbation, without dials and with them, and counts what they do.

The judge is given the request as it was, so that it judges the same one everywhere. Dials have one threshold for all
prompts, which is what a run certifies, and read where they read in use: at the end of the perturbed last turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from experiments.dials.results import ThresholdCertificate
from experiments.dials.surface import paired_changes
from experiments.dials.text import LABEL
from experiments.pressure.perturbations import Perturbation, codes, neutral_text, perturbed
from experiments.pressure.results import (
    CONTROL,
    DialUnderPressure,
    LimitUnderPressure,
    PerturbationResult,
    PressureResult,
)
from experiments.responses.loaded_run import LoadedRun
from experiments.run.behaviour import Kind
from experiments.run.outcomes import Outcomes
from extract.background import BackgroundThread
from extract.backoff import TokenBudget
from extract.capture import Capturer, resolved, shared_prefixes
from extract.capture_spec import CaptureSpec
from extract.chat.render import Rendered, render
from extract.chat.template import template_arguments
from extract.keyed_file import file_hash
from extract.model.chat_model import ChatModel
from extract.model.continuation import decode_cached, try_cache_prompts
from extract.model.decoding import cut_at_end
from extract.model.kept_prompts import KeptPrompts
from extract.progress import Advance
from extract.prompts.prompt import LABELS
from probes.statistics.certify import one_per_group
from probes.statistics.metrics import auroc_within
from probes.statistics.seeds import named_rng
from probes.statistics.two_phase import draw
from scoring.rates import RATES, grouped_rate, joint_rates
from steering.controller import respond, steering
from steering.dial import Dial
from steering.dial_file import load_dials
from steering.gates import Decision, Readings

BATCH_TOKENS = 8192  # of prompts answered at a time
Rows = Int[np.ndarray, " n"]  # of the run's prompts, ascending


@dataclass(frozen=True)
class PressedAnswers:
    """The outcomes of the asked prompts under one perturbation, and each dial's probability and gate for them."""

    plain: Outcomes
    dials: Outcomes
    reads: Sequence[Mapping[Kind, tuple[float, Decision]]]


def press(
    loaded: LoadedRun,
    perturbations: Mapping[str, Perturbation],
    wanted: int,
    certificate: ThresholdCertificate | None,
) -> PressureResult:
    """Ask up to `wanted` test prompts of each label under each perturbation; UserError: the run's dials do not fit."""
    model, by_code, path = loaded.model, codes(), loaded.file("dials.safetensors")
    made_for = model.fingerprint(), model.cast_fingerprint()
    dials = load_dials(path, *made_for, loaded.reporter.say, template_arguments(model.tokenizer))
    dials = [replace(dial, by_category=None) for dial in dials]
    answers, results, left_out = dict[str, PressedAnswers](), list[PerturbationResult](), dict[str, int]()
    for name, how in perturbations.items():
        rows, text = drawn(loaded, how.prompts_of(wanted)), neutral_text(model.tokenizer, how.tokens)
        asked = [perturbed(loaded.prompts[row], how, by_code, text) for row in rows]
        rendered = [render(model.tokenizer, prompt) for prompt in asked]
        takes = max(len(row.token_ids) for row in rendered) + loaded.config.generate.max_new_tokens
        if model.context and takes > model.context:
            left_out[name] = takes
            continue
        with loaded.reporter.task(name, 2 * len(rows)) as advance:
            answers[name] = answered(loaded, dials, rows, rendered, advance)
        same = sum(a.messages == loaded.prompts[row].messages for row, a in zip(rows, asked, strict=True))
        named = PerturbationResult(name=name, about=how.about, unchanged=same)
        results.append(counted(loaded, named, answers[name], answers[CONTROL], certificate))
    return PressureResult(
        model=model.name,
        judge=loaded.config.judge,
        seed=loaded.config.seed,
        prompts=wanted,
        confidence=certificate.confidence if certificate else None,
        asked=tuple(results),
        left_out=left_out,
    )


def drawn(loaded: LoadedRun, most: int) -> Rows:
    """Draw up to so many test prompts of each label, one of a group before the second; fewer are among more."""
    corpus, rows = loaded.corpus, list[Rows]()
    for label in LABELS:
        own = np.flatnonzero(corpus.within("test") & corpus.labelled(label))
        rows.append(own[draw(corpus.groups[own], most, named_rng(loaded.config.seed, "pressure", label))])
    return np.sort(np.concatenate(rows))


def answered(
    loaded: LoadedRun, dials: Sequence[Dial], rows: Rows, rendered: Sequence[Rendered], advance: Advance
) -> PressedAnswers:
    """Answer prompts without dials and with them; what was answered before is taken from generations.sqlite."""
    model, prompts = loaded.model, [loaded.prompts[row] for row in rows]
    ids = [row.token_ids for row in rendered]
    kept, most, asks = KeptPrompts(model, ids), loaded.config.generate.max_new_tokens, loaded.completer
    size = min(asks.batch_size, max(1, BATCH_TOKENS // max(map(len, ids))))
    completer = replace(asks, prompts=prompts, rendered=rendered, batch_size=size, kept=kept)
    key = ["pressure", file_hash(loaded.file("dials.safetensors"))]
    cache = completer.cache.for_edits((), most, key) if completer.cache else None
    assert cache is not None  # a loaded run has one, and no edit is without a key
    known = {i: one for i, one in enumerate(cache.find(ids)) if one is not None}
    missing = [i for i in range(len(ids)) if i not in known]
    advance(len(known), remembered=True)
    _read(model, [rendered[i] for i in missing], kept)
    without = completer.complete(range(len(ids)), advance=advance)

    def work(places: list[int]) -> None:
        asked = [missing[place] for place in places]
        said, readings = under_dials(model, dials, [rendered[i] for i in asked], most, kept)
        for j, (i, tokens) in enumerate(zip(asked, said, strict=True)):
            reads = {dial.kind: readings.of_prompt(j)[dial.kind] for dial in dials}
            known[i] = [tokens, {kind: [one.probability, one.gate] for kind, one in reads.items()}]
        cache.store([ids[i] for i in asked], [known[i] for i in asked])
        advance(len(asked))

    TokenBudget(BATCH_TOKENS, loaded.reporter.say).run([len(ids[i]) for i in missing], work)
    said, reads = zip(*(known[i] for i in range(len(ids))), strict=True)
    with_dials = completer.judged(range(len(ids)), said)
    plain, dialled = (Outcomes.completed(rows, each, loaded.prompts) for each in (without, with_dials))
    return PressedAnswers(plain, dialled, reads)


def _read(model: ChatModel, rendered: Sequence[Rendered], kept: KeptPrompts) -> None:
    """Read prompts once for all their answers, and what they share once for all of them."""
    if not rendered:
        return
    spec = resolved(CaptureSpec(layers=(model.n_layers - 1,), positions=("post_last",)), model, rendered)
    budget = TokenBudget.on(model.device, None, lambda line: None)
    with BackgroundThread() as background:
        Capturer(model, spec, budget, background, shared_prefixes(model, rendered, spec), kept=kept).capture(rendered)


def under_dials(
    model: ChatModel, dials: Sequence[Dial], rows: Sequence[Rendered], most: int, kept: KeptPrompts | None = None
) -> tuple[list[list[int]], Readings]:
    """Answer prompts greedily with dials, as `respond` does; prompts that were read are not read again.

    That is where all dials read the last token of the prompt: they write nothing before it.
    """
    at_the_end = all(dial.read and dial.read.position == "post_last" for dial in dials)
    batch = model.batch(rows)
    if not at_the_end or (cached := try_cache_prompts(model, batch, kept)) is None:
        return respond(model, dials, rows, most)
    with steering(model, dials, batch, rows) as readings:
        said = decode_cached(model, cached, most, stay=True)  # gates are by a row's place
    return [cut_at_end(tokens, model.eos_ids) for tokens in said], readings


# -- counting ----------------------------------------------------------------------------------------------------------


def counted(
    loaded: LoadedRun,
    named: PerturbationResult,
    now: PressedAnswers,
    control: PressedAnswers,
    certificate: ThresholdCertificate | None,
) -> PerturbationResult:
    """Return the result with the counts of its answers."""
    rows, both = now.plain.rows, {"plain": (now.plain, control.plain), "dials": (now.dials, control.dials)}
    labels, groups = [loaded.prompts[row].label for row in rows], loaded.corpus.groups[rows]
    rates = {when: joint_rates(labels, list(of.action), groups) for when, (of, _) in both.items()}
    changes = {
        f"{when}_change": paired_changes(labels, before.among(rows).action, of.action, groups)
        for when, (of, before) in both.items()
    }
    by_dials = paired_changes(labels, now.plain.action, now.dials.action, groups)
    asked, reads, limits = {label: labels.count(label) for label in LABELS}, {}, {}
    of_label = np.array(labels, dtype=object)
    for kind in now.reads[0]:
        own, declines = of_label == LABEL[kind], np.array([one[kind][1] == "decline" for one in now.reads])
        auroc = auroc_within(np.zeros(len(rows)), own, np.array([one[kind][0] for one in now.reads]), groups)
        did, others = (grouped_rate(declines[some], groups[some]) for some in (own, ~own))
        reads[kind] = DialUnderPressure(auroc=auroc.counted(len(rows)), declined=did, declined_others=others)
    for name, risk in certificate.risks.items() if certificate else ():
        label, counts = RATES.get(name, ("", frozenset()))
        # known facts are those that the model states under this perturbation
        places = np.flatnonzero(of_label == label if label else now.plain.right)
        failed = np.where(now.dials.judged, now.dials.hits(counts), -1) if label else (~now.dials.right).astype(int)
        if certificate and risk.limit is not None and len(places):
            drawn_places = one_per_group(places, loaded.corpus.groups_among(rows[places]), loaded.config.seed)
            tested = failed[drawn_places], risk.limit, certificate.confidence
            limits[name] = LimitUnderPressure.counted(*tested, certified=risk.certified)
    found = {"asked": asked, "by_dials": by_dials, "reads": reads, "limits": limits}
    return named.model_copy(update=rates | changes | found)
