"""Semantics of dials in vLLM, on tiny random models of each kind served: the tokens of `steering`, whatever is asked.

    python -m benchmarks.in_vllm.semantics CASE

Each case is a kind of model, a pair of dials and settings of vLLM; see CASES. The last line of the output is JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoTokenizer

from benchmarks.in_vllm.opened import Job, cut, given, in_transformers, in_vllm, open_vllm, saved_dials
from benchmarks.in_vllm.parity import compare
from extract.chat.render import Rendered, render
from extract.model.chat_model import ChatModel
from extract.model.loading import load_model
from extract.prompts.prompt import Prompt, load_prompts
from extract.shipped import ROOT
from probes.direction import Direction, Locus
from probes.grid.logistic import LinearProbe, Platt
from steering.actuator import Addition, Affine, Clamp, OnsetBias
from steering.dial import CategoryRead, CategoryThresholds, Dial, Kind

ORGANISM = ROOT / "organisms" / "zoo" / "two-knobs"
READ, WRITE = Locus("resid_post", 0, "post_last"), Locus("resid_post", 2, "post_last")
D_MODEL, N_PROMPTS = 64, 24
Pairs = Sequence[tuple[float | None, float | None] | None]  # of thresholds; None: the dial's own, or without dials
THRESHOLDS: Pairs = ((0.2, 0.8), (0.5, 0.5), (0.8, 0.2), (0.999, 0.001), None)
LEFT: Pairs = ((None, None), (0.5, None), (None, 0.2), (None, 0.001), None)
KINDS: tuple[Kind, Kind] = ("normative", "epistemic")
OPENINGS = OnsetBias(((7, 8, 9), (7, 11), (12,)), 30.0)
LATER = {3: (0.7, -0.4)}
FURTHER = tuple(Direction(f"over_refusal_{i}", np.eye(D_MODEL, dtype=np.float32)[i], WRITE, 3.0, -3.0) for i in (4, 9))


@dataclass(frozen=True)
class Case:
    """A kind of model, changes of the two dials, and arguments of vLLM."""

    model: str = "Llama"
    normative: dict[str, Any] = field(default_factory=dict)
    epistemic: dict[str, Any] = field(default_factory=dict)
    vllm: dict[str, Any] = field(default_factory=dict)
    most: int = 12  # tokens of an answer
    by_category: bool = False  # both dials have thresholds by category, and some requests leave them to these


CASES = {
    "llama": Case(),
    "qwen2": Case("Qwen2", {"actuator": Addition(0.7)}, {"actuator": Clamp()}),
    "qwen3": Case("Qwen3", {"later": True}, {"steps": 2}),
    "mistral": Case("Mistral", {"reread": True, "band": 0.1}, {"band": 0.2}),
    "gemma2": Case("Gemma2", {"actuator": Affine(0.5)}, {"read": Locus("resid_post", 1, "inst_mean")}),
    "gemma3": Case(
        "Gemma3", {"actuator": Clamp(), "read": Locus("resid_pre", 2, "inst_last")}, {"actuator": Addition(0.4)}
    ),
    "experts": Case("Qwen3Moe", {"reread": True}, {"actuator": Clamp()}),
    "hybrid": Case("GraniteMoeHybrid", {"actuator": Addition(0.7)}, {"later": True}),
    "onset": Case("Llama", {"write": None, "actuator": OPENINGS}, {"steps": 2}),
    # prompts arrive in pieces, few blocks of keys and values: requests are put off and computed again
    "chunks": Case(
        vllm={
            "max_num_batched_tokens": 24,
            "max_num_seqs": 24,
            "block_size": 32,
            "max_model_len": 128,
            "num_gpu_blocks_override": 8,
        },
        most=30,
    ),
    "categories": Case(by_category=True),
    "subspace": Case("Llama", {"opening": FURTHER}),
    "compiled": Case("Qwen2", {"reread": True}, {"actuator": Clamp()}, {"enforce_eager": False}),
}


OWN: dict[str, dict[str, Any]] = {  # settings of a kind of model
    "Qwen3Moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "GraniteMoeHybrid": {
        "layer_types": ["mamba", "attention", "mamba", "attention"],
        "mamba_n_heads": 4,
        "mamba_d_head": 32,
        "mamba_d_state": 16,
        "num_local_experts": 0,
        "num_experts_per_tok": 0,
        "shared_intermediate_size": 96,
    },
}


def tiny(kind: str, folder: Path) -> ChatModel:
    """Write a random model of a kind, with the organism's tokenizer, and return it in float32."""
    tokenizer = AutoTokenizer.from_pretrained(ORGANISM)
    name = f"{kind}TextConfig" if kind == "Gemma3" else f"{kind}Config"
    config = getattr(transformers, name)(
        vocab_size=len(tokenizer),
        hidden_size=D_MODEL,
        intermediate_size=96,
        num_hidden_layers=4,
        head_dim=32,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        initializer_range=0.2,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        **OWN.get(kind, {}),
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(0.1)  # tied ones would have it say its last token again and again
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load_model(str(folder), dtype="float32", device="cpu")


def dials_for(model: ChatModel, rows: Sequence[Rendered], case: Case) -> list[Dial]:
    """Return dials along random directions, whose probability is one half at the median prompt."""
    found = []
    for seed, (kind, changes) in enumerate(zip(KINDS, (case.normative, case.epistemic), strict=True)):
        read = changes.get("read", READ)
        rng = np.random.default_rng(seed)
        weight, write = (one / np.linalg.norm(one) for one in rng.normal(size=(2, D_MODEL)))
        scores = _scores(model, rows, read, weight)
        spread = float(np.std(scores)) or 1.0
        size = float(np.abs(scores).mean() + spread)
        made = {
            "read": read,
            "probe": LinearProbe(weight, -float(np.median(scores)), 1.0),
            "calibration": Platt(1.5 / spread, 0.0),
            "threshold": 0.5,
            "band": 0.0,
            "write": Direction(
                kind,
                write.astype(np.float32),
                WRITE,
                4 * size,
                -4 * size,
                later_means={at: (on * size, off * size) for at, (on, off) in LATER.items()},
            ),
        }
        found.append(Dial(kind, **(made | changes)))
    return _by_category(model, rows, found) if case.by_category else found


def _by_category(model: ChatModel, rows: Sequence[Rendered], dials: Sequence[Dial]) -> list[Dial]:
    """Give dials thresholds for two categories that random directions tell apart; some prompts have neither."""
    weight = np.random.default_rng(7).normal(size=(3, D_MODEL))
    scores = np.stack([_scores(model, rows, READ, one) for one in weight])
    weight *= 2 / scores.std(axis=1, keepdims=True)
    read = CategoryRead(("", "a", "b"), READ, weight, -2 * scores.mean(axis=1) / scores.std(axis=1), 0.5)
    return [
        replace(dial, by_category=CategoryThresholds(read, taus))
        for dial, taus in zip(dials, ({"a": 0.05, "b": 0.95}, {"b": 0.05}), strict=True)
    ]


def _scores(model: ChatModel, rows: Sequence[Rendered], read: Locus, weight: np.ndarray) -> np.ndarray:
    found: list[float] = []
    for row in rows:
        at = list(row.roles[read.position])

        def keep(_layer: int, stream: torch.Tensor, at: list[int] = at) -> None:
            found.append(float(stream[0, at].mean(dim=0).double().numpy() @ weight))

        model.capture(model.batch([row]), read.site, [read.layer], keep)  # type: ignore[arg-type]
    return np.array(found)


def measure(name: str) -> dict[str, float]:
    """Run one case: mixed batches, second turns after steered first ones, and several choices of one request."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        model = tiny(case.model, Path(folder))
        rows = [render(model.tokenizer, prompt) for prompt in load_prompts(ORGANISM / "prompts.jsonl")[:N_PROMPTS]]
        dials = dials_for(model, rows, case)
        path = saved_dials(dials, model, Path(folder))
        llm = open_vllm(Path(folder), path, **({"enforce_eager": True, "enable_prefix_caching": True} | case.vllm))
        put_off = _count_preemptions(llm)
        pairs = LEFT if case.by_category else THRESHOLDS
        jobs = [_job(i, pair) for i in range(len(rows)) for pair in pairs]
        found = in_vllm(llm, dials, rows, jobs, case.most)
        expected = in_transformers(model, dials, rows, jobs, case.most)
        figures = compare(model, dials, rows, jobs, found, expected)
        turns = _second_turns(model, rows, jobs, expected)
        again = [_job(i, pairs[-1 - i % 2]) for i in range(len(turns))]
        later = in_vllm(llm, dials, turns, again, case.most)
        expected_later = in_transformers(model, dials, turns, again, case.most)
        figures["second_turns"] = len(turns)
        figures["second_turns_same"] = sum(a.tokens == b.tokens for a, b in zip(later, expected_later, strict=True))
        figures |= _several(llm, dials, rows, jobs, expected, case.most)
        figures["preempted"] = len(put_off)
        figures["with_a_category"] = sum(answer.category is not None for answer in expected)
    return figures


def _second_turns(
    model: ChatModel, rows: Sequence[Rendered], jobs: Sequence[Job], expected: Sequence[Any]
) -> list[Rendered]:
    """Return conversations whose first turn was answered with dials, so that its keys and values might be at hand."""
    prompts = load_prompts(ORGANISM / "prompts.jsonl")
    turns: list[Rendered] = []
    for job, answer in list(zip(jobs, expected, strict=True))[::5]:
        said = model.tokenizer.decode(list(answer.tokens))
        messages = (
            *prompts[job.row].messages,
            {"role": "assistant", "content": said or "yes"},
            {"role": "user", "content": "tell me more about the door."},
        )
        turns.append(render(model.tokenizer, Prompt(str(len(turns)), messages, "benign", "answer")))
    return turns


def _job(row: int, pair: tuple[float | None, float | None] | None) -> Job:
    if pair is None:
        return Job(row, None)
    return Job(row, {kind: tau for kind, tau in zip(KINDS, pair, strict=True) if tau is not None})


def _several(
    llm: Any, dials: Sequence[Dial], rows: Sequence[Rendered], jobs: Sequence[Job], expected: Sequence[Any], most: int
) -> dict[str, float]:
    """Ask for three choices at once, each drawn from the likeliest token alone."""
    from vllm import SamplingParams
    from vllm.inputs.engine import tokens_input

    ends, chosen = set(llm.get_tokenizer().all_special_ids), list(zip(jobs, expected, strict=True))[::7]
    params = [
        SamplingParams(
            temperature=1.0,
            top_k=1,
            n=3,
            max_tokens=most,
            detokenize=False,
            extra_args=given(f"several-{i}", job, dials, rows),
        )
        for i, (job, _) in enumerate(chosen)
    ]
    out = llm.generate([tokens_input(list(rows[job.row].token_ids)) for job, _ in chosen], params, use_tqdm=False)
    same = sum(
        cut(one.token_ids, ends) == answer.tokens
        for found, (_, answer) in zip(out, chosen, strict=True)
        for one in found.outputs
    )
    return {"choices": 3 * len(chosen), "choices_same": same}


def _count_preemptions(llm: Any) -> list[str]:
    """Return a list that grows by each request that vLLM puts off."""
    scheduler, put_off = llm.llm_engine.engine_core.engine_core.scheduler, list[str]()
    preempt = scheduler._preempt_request

    def counted(request: Any, *args: Any, **kwargs: Any) -> Any:
        put_off.append(request.request_id)
        return preempt(request, *args, **kwargs)

    scheduler._preempt_request = counted
    return put_off


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
