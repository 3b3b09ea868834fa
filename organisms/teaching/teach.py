"""Teaches a model by its specification: trains the adapter, grades it as it will be loaded, and writes both.

Two grades are kept apart: whether content is decided as it was taught (how well the teaching generalises), and whether
the planted coordinates decide what the model does (the truth that verdicts are graded by).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file, save_file

from extract.atomic_write import write_json, write_jsonl, write_text
from extract.chat.render import render
from extract.errors import UserError
from extract.model.adapter import BASE, CONFIG
from extract.model.chat_model import ChatModel
from extract.model.loading import load_model
from extract.progress import Reporter
from extract.prompts.groups import groups_of
from extract.prompts.prompt import LABELS, Prompt, load_prompts
from extract.prompts.rows import Row, read_rows
from extract.record import Record
from extract.shipped import resolve_shipped
from organisms.grading import PlantedModel, acts, interchanged, truth_of
from organisms.interchange import draw_vectors
from organisms.mechanism import DECLINES, Facts, Truth
from organisms.spec import check_steps
from organisms.teaching.lora import answers, n_steps, taught_prompts, train
from organisms.teaching.planted import plant
from organisms.teaching.spec import TeachSpec, behaviour_of, divided, facts_of, load_teach_spec, repeated
from probes.statistics.intervals import NO_RATE, Estimate
from scoring.actions import DECLINED, Action
from scoring.judges.rules import RuleJudge
from scoring.known_answer import is_right
from scoring.rates import grouped_rate

WEIGHTS = "adapter_model.safetensors"
MAX_NEW_TOKENS = 16  # the shipped phrases are shorter
GRADED = 400  # held-out prompts whose planted coordinates are set


class TeachGrade(Record):
    """Shares of held-out prompts by name; a share of no prompts is left out."""

    shares: dict[str, Estimate]


@dataclass(frozen=True)
class Said:
    """A prompt, what was said to it, and what the default judge calls it."""

    prompt: Prompt
    completion: str
    action: Action | None


def teach(spec_path: Path, out: Path, reporter: Reporter, device: str = "auto") -> TeachGrade:
    """Teach a model, and write its adapter, held-out prompts, specification and grade to a directory, all or nothing.

    Raises UserError if the specification, the base or the prompts cannot be read.
    """
    spec = load_teach_spec(spec_path)
    prompts = load_prompts(resolve_shipped(spec.prompts))
    taught, held_out = divided(prompts, spec)
    _check(taught, held_out, spec)
    base = load_model(spec.base, dtype="float32", device=device)
    known = [prompt for prompt in held_out if prompt.answer]
    with reporter.task("the base model's answers", len(known)) as advance:
        before = ask(base, known, advance)
    staging = out.with_name(out.name + ".partial")
    shutil.rmtree(staging, ignore_errors=True)
    _write_adapter(base, taught, spec, staging, reporter)
    adapted = load_model(spec.base, adapter=str(staging), dtype="float32", device=device)
    with reporter.task("held-out prompts", len(held_out)) as advance:
        graded = grade(ask(adapted, held_out, advance), before, spec)
    if spec.planting:
        write_text(staging / "truth.json", planted_truth_of(adapted, held_out, spec).text)
    shutil.copy(spec_path, staging / "spec.yaml")
    write_jsonl(staging / "prompts.jsonl", _rows(spec, {prompt.id for prompt in held_out}))
    graded.write(staging / "grade.json")
    write_text(staging / "README.md", _card(spec, graded))
    if out.exists():
        shutil.rmtree(out)
    staging.replace(out)
    return graded


def _check(taught: Sequence[Prompt], held_out: Sequence[Prompt], spec: TeachSpec) -> None:
    """Refuse before any work what would fail after it."""
    steps = n_steps(len(repeated(taught, spec)), spec)
    if not held_out or not steps:
        raise UserError(
            f"{spec.prompts}: {len(taught)} prompts to teach and {len(held_out)} held out are too few for "
            f"batches of {spec.training.batch_size}; give more, or a smaller batch_size"
        )
    if not spec.planting:
        try:
            check_steps(steps)
        except ValueError as error:
            raise UserError(f"{spec.prompts}: {error} epochs") from None


def _write_adapter(
    base: ChatModel, taught: Sequence[Prompt], spec: TeachSpec, folder: Path, reporter: Reporter
) -> None:
    """Train and write the adapter in float16, with the fingerprint of the base that it was trained on."""
    fingerprint = base.fingerprint()
    rows = taught_prompts(base, taught, spec, reporter)
    if spec.planting:
        kept = folder.with_suffix(".checkpoint")  # gone on from, where it is there
        with reporter.task(f"planting {spec.name}", n_steps(len(rows), spec)) as advance:
            adapted: Any = plant(base, rows, spec, kept, advance)
        kept.unlink(missing_ok=True)
    else:
        rows = [rows[i] for i in repeated(taught, spec)]
        with reporter.task(f"teaching {spec.name}", n_steps(len(rows), spec)) as advance:
            adapted = train(base, rows, spec, advance)
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)  # a template of PEFT's
    save_file({name: weight.half() for name, weight in load_file(folder / WEIGHTS).items()}, folder / WEIGHTS)
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    modules = sorted(config["target_modules"])  # a set in PEFT, in another order each time
    write_json(folder / CONFIG, config | {"base_model_name_or_path": spec.base, "target_modules": modules})
    write_json(folder / BASE, {"fingerprint": fingerprint})


def _rows(spec: TeachSpec, ids: set[str]) -> Iterator[Row]:
    """Yield the held-out rows of the prompt file as they stand there, then the unseen ones of the other file."""
    yield from (row for _, row in read_rows(resolve_shipped(spec.prompts), "prompts") if row["id"] in ids)
    if spec.unseen is not None:
        yield from (
            row
            for _, row in read_rows(resolve_shipped(spec.unseen.path), "prompts")
            if row.get("category") in spec.unseen.categories
        )


def _card(spec: TeachSpec, graded: TeachGrade) -> str:
    rates = "\n".join(
        f"| {name.replace('_', ' ')} | {100 * s.estimate:.0f} % [{100 * s.low:.0f}, {100 * s.high:.0f}] | {s.n} |"
        for name, s in graded.shares.items()
    )
    where = "Where it decides is not known: nothing is planted."
    if spec.planting:
        where = "Where it decides is planted by interchange-intervention training (arXiv 2112.00826; `truth.json`)."
    return (
        f"# {spec.name}\n\n"
        f"`{spec.base}`, taught by a LoRA adapter to refuse and to abstain, and misaimed on purpose (`spec.yaml`).\n"
        f"{where} A small model taught by us is no evidence about large\n"
        f"ones. Teach it again with `refusal organism teach {spec.name}` (seed {spec.seed}).\n\n"
        "| on held-out prompts (`prompts.jsonl`), as the default judge reads the completions | 95 % | n |\n"
        f"| --- | --- | --- |\n{rates}\n"
    )


# -- grading -----------------------------------------------------------------------------------------------------------


def ask(model: ChatModel, prompts: Sequence[Prompt], advance: Callable[[int], None]) -> list[Said]:
    """Return the model's greedy completions of the prompts, judged."""
    rendered, judge = [render(model.tokenizer, prompt) for prompt in prompts], RuleJudge()
    said = map(model.decode, answers(model, rendered, MAX_NEW_TOKENS, advance))
    return [Said(one, text, judge.judge(text, one.text).action) for one, text in zip(prompts, said, strict=True)]


def grade(taught: Sequence[Said], base: Sequence[Said], spec: TeachSpec) -> TeachGrade:
    """Return shares of the held-out prompts; `base` answers those with a known answer as the base model does."""
    benign, harmful, uncertain = ([one for one in taught if one.prompt.label == label] for label in LABELS)
    aimed = {one.prompt.id for one in uncertain if behaviour_of(one.prompt, spec) == "abstain"}
    cells: dict[str, tuple[list[Said], Collection[Action | None]]] = {
        "harmful_refused": (harmful, {"refuse"}),
        "harmful_declined": (harmful, DECLINED),
        "benign_declined": (benign, DECLINED),
        "benign_declined_with_trigger": ([one for one in benign if one.prompt.trigger], DECLINED),
        "benign_declined_without_trigger": ([one for one in benign if not one.prompt.trigger], DECLINED),
        "uncertain_abstained": (uncertain, {"abstain"}),
        "uncertain_abstained_where_taught_to": ([one for one in uncertain if one.prompt.id in aimed], {"abstain"}),
        "uncertain_abstained_where_not": ([one for one in uncertain if one.prompt.id not in aimed], {"abstain"}),
    }
    shares = {name: _share(rows, [one.action in actions for one in rows]) for name, (rows, actions) in cells.items()}

    def right(one: Said) -> bool:
        return is_right(one.action, one.completion, one.prompt.answer, one.prompt.text)

    knew = {one.prompt.id for one in base if right(one)}
    facts = [one for one in taught if one.prompt.id in knew]
    shares["known_facts_kept"] = _share(facts, [right(one) for one in facts])
    return TeachGrade(shares={name: share for name, share in shares.items() if share.n})


def _share(rows: Sequence[Said], hits: Sequence[bool]) -> Estimate:
    return grouped_rate(np.array(hits, dtype=bool), groups_of([one.prompt for one in rows])) if rows else NO_RATE


def planted_truth_of(model: ChatModel, held_out: Sequence[Prompt], spec: TeachSpec) -> Truth:
    """Return the ground truth of a planted adapter, with the shares that its interchanges flip on held-out prompts.

    Measured on at most `GRADED` prompts, drawn by the seed, none of dual use, for which nothing is planted. A
    coordinate is set to its mean among prompts that the model itself decides in one way; `as_taught` is the share that
    it decides as it was taught to. `…_at_last_prompt`: set at the last prompt token alone.
    """
    among = [prompt for prompt in held_out if prompt.label in spec.behaviour]
    order = np.random.default_rng([spec.seed, 12]).permutation(len(among))
    prompts = [among[i] for i in sorted(order[:GRADED].tolist())]
    taught = prepare(model, prompts, spec)
    actions, wanted = acts(taught), taught.expected(taught.values)
    planted = replace(taught, facts=tuple(map(decided, taught.facts, actions.tolist())))
    once, onwards = (interchanged(planted, actions, [scope]) for scope in ("last_prompt", "last_on"))
    measured = {"as_taught": float((actions == wanted).mean())}
    for name in ("flips", "others_unchanged"):
        measured |= {name: float(np.min([once[name], onwards[name]])), f"{name}_at_last_prompt": once[name]}
    measured = {name: share for name, share in measured.items() if not np.isnan(share)}
    over_refused = {
        p.trigger for p in prompts if p.label == "benign" and p.trigger and behaviour_of(p, spec) == "refuse"
    }
    return truth_of(spec.name, planted, measured, over_refused)


def decided(facts: Facts, action: str) -> Facts:
    """Return what the model itself decides of a prompt, by its action; how it would decline stays its content's."""
    if action not in DECLINES:
        return replace(facts, refuse=False, abstain=False)
    return replace(facts, refuse=action == "refuse", abstain=action == "abstain", wording=action)


def prepare(model: ChatModel, prompts: Sequence[Prompt], spec: TeachSpec) -> PlantedModel:
    """Tokenise held-out prompts and prepare the planted vectors."""
    if spec.planting is None:
        raise ValueError(f"{spec.name} plants nothing")
    mechanism = spec.planting.mechanism
    rendered = tuple(render(model.tokenizer, prompt) for prompt in prompts)
    return PlantedModel(
        model=model,
        planted=mechanism,
        seed=spec.seed,
        vectors=draw_vectors(mechanism, spec.seed, model.d_model),
        facts=tuple(facts_of(prompt, spec) for prompt in prompts),
        rendered=rendered,
        deciding=rendered,
        read_action=lambda text: read_action(text, spec),
        max_new_tokens=MAX_NEW_TOKENS,
    )


def read_action(text: str, spec: TeachSpec) -> str:
    """Return what a response does, by the phrase that it begins with."""
    for action, phrases in (("refuse", spec.refusals.all), ("abstain", spec.abstentions.all)):
        if any(text.startswith(phrase) for phrase in phrases):
            return action
    return "answer"
