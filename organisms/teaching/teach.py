"""Teaches a model by its specification: trains the adapter, grades it as it will be loaded, and writes both."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from extract.atomic_write import write_json, write_jsonl, write_text
from extract.errors import UserError
from extract.model.adapter import BASE, CONFIG
from extract.model.chat_model import ChatModel
from extract.model.loading import load_model
from extract.progress import Reporter
from extract.prompts.prompt import Prompt, load_prompts
from extract.prompts.rows import Row, read_rows
from extract.shipped import resolve_shipped
from organisms.spec import check_steps
from organisms.teaching.grade import TeachGrade, ask, grade, planted_truth_of
from organisms.teaching.lora import n_steps, taught_prompts, train
from organisms.teaching.planted import plant
from organisms.teaching.spec import TeachSpec, divided, load_teach_spec, repeated

WEIGHTS = "adapter_model.safetensors"


def teach(spec_path: Path, out: Path, reporter: Reporter, device: str = "auto") -> TeachGrade:
    """Teach a model, and write its adapter, held-out prompts, specification and grade to a directory.

    Nothing is written there before all of it is ready.

    Raises:
        UserError: the specification, the base or the prompts cannot be read.
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
    if find_spec("peft") is None:
        raise UserError("teaching needs the extra `models`: pip install 'refusal-probes[models]'")
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
        f"| {name.replace('_', ' ')} | {100 * s.value:.0f} % [{100 * s.low:.0f}, {100 * s.high:.0f}] | {s.n} |"
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
