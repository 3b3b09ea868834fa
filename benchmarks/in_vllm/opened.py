"""A model opened twice in one process: in vLLM with the plugin, and with transformers as the reference."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from extract.chat.render import Rendered
from extract.model.chat_model import ChatModel
from extract.model.padded_batch import Batch
from serving.vllm_plugin.plugin import SETTING
from serving.vllm_plugin.request import METHOD, DialRequest, new_key, tokens_read
from steering.controller import steering
from steering.dial import Dial, Kind
from steering.dial_file import save_dials

BATCH = 64
OFF = float("nan")
Thresholds = Mapping[Kind, float]


@dataclass(frozen=True)
class Job:
    """One request: a prompt's place among the rows, and the thresholds that it gives; None: without dials."""

    row: int
    thresholds: Thresholds | None


@dataclass(frozen=True)
class Answered:
    """The tokens of an answer without its end token, each dial's probability, the normative one first, and category."""

    tokens: tuple[int, ...]
    probability: tuple[float, ...] | None = None
    category: str | None = None


def open_vllm(checkpoint: Path, dials_path: Path, **arguments: Any) -> Any:
    """Return vLLM's offline engine in this process, in float32, with the plugin's dials."""
    os.environ[SETTING] = str(dials_path)
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm import LLM

    given = {"dtype": "float32", "max_model_len": 512, "max_num_seqs": BATCH, "disable_log_stats": True} | arguments
    return LLM(str(checkpoint), **given)


def saved_dials(dials: Sequence[Dial], model: ChatModel, folder: Path) -> Path:
    """Write dials for a model."""
    path = folder / "dials" / "dials.safetensors"  # beside a checkpoint, vLLM would take it for a part of that
    path.parent.mkdir()
    save_dials(dials, path, model.fingerprint(), model.cast_fingerprint())
    return path


def in_vllm(
    llm: Any, dials: Sequence[Dial], rows: Sequence[Rendered], jobs: Sequence[Job], max_tokens: int
) -> list[Answered]:
    """Answer all jobs at once, greedily, so that rows with different thresholds and with none run together."""
    from vllm import SamplingParams
    from vllm.inputs.engine import tokens_input

    keys = [new_key() for _ in jobs]
    params = [
        SamplingParams(temperature=0, max_tokens=max_tokens, detokenize=False, extra_args=given(key, job, dials, rows))
        for key, job in zip(keys, jobs, strict=True)
    ]
    prompts = [tokens_input(list(rows[job.row].token_ids)) for job in jobs]
    out = llm.generate(prompts, params, use_tqdm=False)
    ends = set(llm.get_tokenizer().all_special_ids)
    return [
        Answered(cut(one.outputs[0].token_ids, ends), *(() if job.thresholds is None else _readings(llm, key)))
        for one, key, job in zip(out, keys, jobs, strict=True)
    ]


def in_transformers(
    model: ChatModel, dials: Sequence[Dial], rows: Sequence[Rendered], jobs: Sequence[Job], max_tokens: int
) -> list[Answered]:
    """Answer all jobs with `steering`, in batches."""
    ends, found = set(model.tokenizer.all_special_ids), list[Answered]()
    for start in range(0, len(jobs), BATCH):
        part = jobs[start : start + BATCH]
        own = [rows[job.row] for job in part]
        batch, thresholds = model.batch(own), _columns(part, dials)
        with steering(model, dials, batch, own, thresholds) as readings:
            responses = model.generate(batch, max_tokens)
        for i, (job, response) in enumerate(zip(part, responses, strict=True)):
            read = tuple(float(readings.probability[dial.kind][i]) for dial in sorted(dials, key=_order))
            category = readings.category[i] if readings.category else None
            found.append(Answered(cut(response, ends), *(() if job.thresholds is None else (read, category))))
    return found


def gap(model: ChatModel, dials: Sequence[Dial], row: Rendered, job: Job, said: Sequence[int]) -> float:
    """Return the gap between the two best next-token scores after a prompt and a part of its answer."""
    batch = model.batch([row])
    extra = torch.tensor([list(said)], dtype=torch.long)
    mask = torch.cat([batch.attention_mask, torch.ones_like(extra)], dim=1)
    whole = Batch(torch.cat([batch.tokens, extra], dim=1), mask, batch.prompt_length)
    with torch.inference_mode(), steering(model, dials, batch, [row], _columns([job], dials)):
        scores = model.run(model.model, whole, logits_to_keep=1).logits[0, -1]
    best, second = scores.topk(2).values.tolist()
    return float(best - second)


def given(key: str, job: Job, dials: Sequence[Dial], rows: Sequence[Rendered]) -> dict[str, Any] | None:
    """Return what a request says of its dials; None: nothing."""
    if job.thresholds is None:
        return None
    thresholds = {dial.kind: dial.resolved(job.thresholds.get(dial.kind)) for dial in dials}
    return DialRequest(key=key, thresholds=thresholds, read_at=tokens_read(dials, rows[job.row])).extra_args()


def _readings(llm: Any, key: str) -> tuple[tuple[float, ...] | None, str | None]:
    found = llm.collective_rpc(METHOD, args=(key,))[0]
    return (None, None) if found is None else (tuple(found[0]), found[1])


def _columns(jobs: Sequence[Job], dials: Sequence[Dial]) -> dict[Kind, list[float | None]]:
    return {
        dial.kind: [OFF if job.thresholds is None else job.thresholds.get(dial.kind) for job in jobs] for dial in dials
    }


def _order(dial: Dial) -> bool:
    return dial.kind != "normative"


def cut(tokens: Sequence[int], ends: set[int]) -> tuple[int, ...]:
    """Return the tokens before the first special one."""
    at = next((i for i, token in enumerate(tokens) if token in ends), len(tokens))
    return tuple(tokens[:at])
