"""The dials in a model that vLLM has loaded: an operation after layers that read or write, and the rows of a step.

The operation is a custom one of torch, traced into the compiled model; a forward hook would be left out there. Models
of which a layer returns (hidden, residual) are served: their stream is the sum, or, of WHOLE, the first. Onset biases
are the flat form of `steering.onset.OnsetProcessor`: which openings a response still matches is kept on the device,
from the tokens as run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors import safe_open
from torch import Tensor, nn
from transformers import AutoConfig

from extract.errors import UserError
from extract.model.loading import class_for
from extract.model.weights import cast_fingerprint
from serving.vllm_plugin.bank import DialBank, Rows
from serving.vllm_plugin.request import FIELD, DialRequest, PlacedReading
from steering.actuator import OnsetBias
from steering.dial import Dial

WHOLE = ("GraniteMoeHybridForCausalLM",)  # of which a layer returns the whole stream first
TESTED = [*(f"{family}ForCausalLM" for family in "Llama Qwen2 Qwen3 Mistral Gemma2 Gemma3 Qwen3Moe".split()), *WHOLE]
_rows: list[Rows] = []  # of the one model in this process; the operation cannot be given an object


@torch.library.custom_op("refusal::dials", mutates_args=("hidden",))
def apply_dials(hidden: Tensor, residual: Tensor, layer: int) -> None:
    """Read and write after a layer, where a row of this step has dials; while a graph is captured, always."""
    for rows in _rows:
        if rows.active or (hidden.is_cuda and torch.cuda.is_current_stream_capturing()):
            rows.bank.apply(layer, hidden, residual)
            rows.applied.add(layer)


@apply_dials.register_fake
def _(hidden: Tensor, residual: Tensor, layer: int) -> None:
    return None


class PlacedDials:
    """Dials in the loaded model of a runner of vLLM's."""

    def __init__(self, runner: Any, dials: Sequence[Dial]) -> None:
        model, config = runner.get_model(), runner.vllm_config
        layers = _layers(model)
        n_slots = int(config.scheduler_config.max_num_seqs) + 1
        hidden = int(config.model_config.get_hidden_size())
        tokens = max(int(config.scheduler_config.max_num_batched_tokens), n_slots) + 1024  # graphs pad a step's tokens
        self.bank: DialBank = DialBank(dials, len(layers), hidden, 2 * n_slots, tokens, runner.device)
        self.rows: Rows = Rows(self.bank)
        self._runner, self._changed = runner, list[tuple[object, str]]()
        for layer in self.bank.layers:
            whole = type(model).__name__ in WHOLE
            layers[layer].forward = partial(_with_dials, layers[layer].forward, layer, whole)
            self._changed.append((layers[layer], "forward"))
        _rows[:] = [self.rows]
        self._onsets, self._scores_are_next = OnsetBiases(self.bank), False
        if self._onsets:
            self._bias_scores(model)
        self._wrap("_update_states", self._after_update)
        self._wrap("_prepare_inputs", self._after_prepare)
        self._wrap("execute_model", self._after_execute)

    def readings(self, key: str, n_tokens: int) -> PlacedReading | None:
        """Return what was read of a request and of its answer's first tokens; None: no such one has been read."""
        scores = self.rows.scores(key)
        if scores is None:
            return None
        score, n = torch.tensor(scores, device=self.bank.device)[:, None], len(self.bank.dials)
        category = None
        if self.bank.category_read is not None:
            category = self.bank.categories[int(self.bank.recognised(score[n:]))]
        answers = [
            None if one is None else (one.highest, one.limit, one.at) for one in self.rows.answers(key, n_tokens)
        ]
        return self.bank.probability(score[:n])[:, 0].tolist(), category, answers

    @contextmanager
    def taken_out(self) -> Iterator[None]:
        """Run the block as if the plugin had not been loaded; no request with dials may be running."""
        placed = [(one, name, vars(one).pop(name)) for one, name in self._changed]
        try:
            yield
        finally:
            for one, name, value in placed:
                vars(one)[name] = value

    def _bias_scores(self, model: nn.Module) -> None:
        """Bias the first scores of a step, which are those of the next tokens; others may be of prompts."""
        compute: Any = model.compute_logits

        def compute_logits(hidden: Tensor, *args: Any, **kwargs: Any) -> Tensor | None:
            scores = compute(hidden, *args, **kwargs)
            if not self._scores_are_next or scores is None:
                return scores
            self._scores_are_next, n = False, len(scores)
            return self._onsets.biased(scores, self.rows.row_slot[:n], self.rows.row_place[:n])

        model.compute_logits = compute_logits
        self._changed.append((model, "compute_logits"))

    def _wrap(self, name: str, then: Callable[..., None]) -> None:
        """Call a method of the runner, then another with the same arguments."""
        method = getattr(self._runner, name)

        def both(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            then(*args, **kwargs)
            return result

        setattr(self._runner, name, both)
        self._changed.append((self._runner, name))

    def _after_update(self, scheduled: Any, *_: Any, **__: Any) -> None:
        for request in scheduled.finished_req_ids:
            if request in self.rows:
                self.rows.end(request)
        for new in scheduled.scheduled_new_reqs:
            given = (new.sampling_params.extra_args or {}).get(FIELD) if new.sampling_params else None
            if given is not None and new.req_id not in self.rows:
                self.rows.begin(new.req_id, DialRequest.model_validate(given))

    def _after_prepare(self, _scheduled: Any, n_scheduled: np.ndarray, *_: Any, **__: Any) -> None:
        batch = self._runner.input_batch
        n = batch.num_reqs
        self.rows.place(
            batch.req_ids[:n], n_scheduled[:n], batch.num_computed_tokens_cpu[:n], batch.num_prompt_tokens[:n]
        )
        self._scores_are_next = self.rows.active
        if self.rows.active and self._onsets:
            self._onsets.see(self._runner.input_ids.gpu[: int(n_scheduled[:n].sum())])

    def _after_execute(self, scheduled: Any, *_: Any, **__: Any) -> None:
        if self.rows.active and scheduled.total_num_scheduled_tokens and self.bank.device.type == "cpu":
            missed = set(self.bank.layers) - self.rows.applied
            if missed:
                raise RuntimeError(
                    f"the dials were not applied after layers {sorted(missed)}: a compiled model left "
                    "them out; serve with --enforce-eager and report this"
                )
        self.rows.applied.clear()


def _with_dials(
    forward: Callable[..., tuple[Tensor, Tensor]], layer: int, whole: bool, *args: Any, **kwargs: Any
) -> tuple[Tensor, Tensor]:
    hidden, residual = forward(*args, **kwargs)
    torch.ops.refusal.dials(hidden, torch.zeros_like(residual) if whole else residual, layer)
    return hidden, residual


def _layers(model: nn.Module) -> nn.ModuleList:
    name = type(model).__name__
    if name not in TESTED:
        raise UserError(f"dials inside vLLM are tested with {', '.join(TESTED)}; this model is a {name}")
    layers = model.get_submodule("model.layers")
    assert isinstance(layers, nn.ModuleList)
    return layers


@dataclass
class _Onset:
    """One dial's openings, padded to the longest, and how many tokens of each slot's response differ from each."""

    dial: int
    strength: float
    steps: int
    prefixes: Int[Tensor, "prefixes longest"]
    length: Int[Tensor, " prefixes"]
    differing: Int[Tensor, "prefixes slots"]


class OnsetBiases:
    """The onset biases of a bank's dials."""

    def __init__(self, bank: DialBank) -> None:
        self._bank, self._onsets = bank, list[_Onset]()
        for i, dial in enumerate(bank.dials):
            if isinstance(dial.actuator, OnsetBias) and dial.actuator.strength:
                prefixes, longest = dial.actuator.prefixes, max(map(len, dial.actuator.prefixes))
                padded = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes]
                steps = longest if dial.steps is None else min(longest, dial.steps)
                tokens, lengths = (torch.tensor(n, device=bank.device) for n in (padded, list(map(len, prefixes))))
                differing = torch.zeros(len(prefixes), bank.score.shape[1], dtype=torch.int32, device=bank.device)
                self._onsets.append(_Onset(i, dial.actuator.strength, steps, tokens, lengths, differing))

    def __bool__(self) -> bool:
        return bool(self._onsets)

    def see(self, tokens: Int[Tensor, " tokens"]) -> None:
        """Compare the tokens of a step, in the order of the bank's buffers, with the openings."""
        n = len(tokens)
        slot, step = self._bank.slot[:n], self._bank.step[:n]
        for onset in self._onsets:
            onset.differing.index_fill_(1, torch.where(step == 0, slot, 0), 0)
            place = (step - 1).long()  # of a token in its response
            expected = onset.prefixes[:, place.clamp(0, onset.prefixes.shape[1] - 1)]
            differs = (place >= 0) & (place < onset.length[:, None]) & (expected != tokens)
            onset.differing.index_add_(1, torch.where(place >= 0, slot, 0), differs.int())

    def biased(
        self, scores: Float[Tensor, "rows vocabulary"], slot: Int[Tensor, " rows"], place: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows vocabulary"]:
        """Return the next-token scores with openings raised or lowered; `place` is that token's in the response."""
        gates = self._bank.gates(self._bank.score[: len(self._bank.dials), slot], slot)
        for onset in self._onsets:
            gate, change = gates[onset.dial], torch.zeros_like(scores, dtype=torch.float32)
            open_ = (slot > 0) & (place >= 0) & (place < onset.steps) & (gate != 0)
            for prefix, length, differing in zip(onset.prefixes, onset.length, onset.differing, strict=True):
                acts = open_ & (differing[slot] == 0) & (place < length) & ((gate > 0) | (length == place + 1))
                following = prefix[place.clamp(0, len(prefix) - 1)].clamp(min=0)[:, None]
                raised = torch.where(
                    acts[:, None], (onset.strength * gate.float())[:, None], change.gather(1, following)
                )
                change.scatter_(1, following, raised)
            biased = (scores.float() + change).log_softmax(dim=-1).to(scores.dtype)
            scores = torch.where((change != 0).any(dim=1, keepdim=True), biased, scores)
        return scores


def checkpoint_fingerprint(directory: Path) -> str:
    """Return the `cast_fingerprint` of the model that transformers would load; reads only sampled values."""
    config = AutoConfig.from_pretrained(directory, local_files_only=True)
    with torch.device("meta"):
        model = class_for(config).from_config(config)
    model.tie_weights()
    return cast_fingerprint(_tensors(model, directory))


def _tensors(model: nn.Module, directory: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the state dictionary in the model's order; a tied weight is read where the file has it."""
    index, single = directory / "model.safetensors.index.json", directory / "model.safetensors"
    if not index.is_file() and not single.is_file():
        raise UserError(f"{directory} holds no model.safetensors: dials cannot be checked against its weights")
    names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values() if index.is_file() else [single.name]
    with ExitStack() as stack:
        files = [stack.enter_context(safe_open(directory / name, framework="pt")) for name in sorted(set(names))]
        where = {key: file for file in files for key in file.keys()}  # noqa: SIM118 - no mapping
        state = model.state_dict(keep_vars=True)
        same = {id(tensor): name for name, tensor in state.items() if name in where}
        for name, tensor in state.items():
            stored = name if name in where else same.get(id(tensor))
            if stored is None and (joined := _of_experts(name, where)) is not None:
                yield name, joined
                continue
            if stored is None:
                raise UserError(f"{directory} has no tensor {name}: dials cannot be checked against its weights")
            yield name, where[stored].get_tensor(stored)


def _of_experts(name: str, where: Mapping[str, safe_open]) -> Tensor | None:
    """Return a tensor that transformers joins of one for each expert in the file; None if it is no such tensor."""
    stem, _, kind = name.rpartition(".")
    parts = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}.get(kind, ())
    experts = takewhile(lambda i: parts and f"{stem}.{i}.{parts[0]}.weight" in where, count())
    names = [[f"{stem}.{i}.{part}.weight" for part in parts] for i in experts]
    return torch.stack([torch.cat([where[each].get_tensor(each) for each in own]) for own in names]) if names else None
