"""Time per decoded token with two dials, relative to plain `generate` and to the same edits in other tools.

The dials read every prompt, both gates fire in every row, and both write (affine) at the last prompt token and at every
generated token; an untimed run checks this, also for the other tools. All ways decode token by token in turns
(`lockstep`), so that the two times of a pair are a fraction of a second apart.

`overhead_batch1` and `overhead_batch8` are the upper bounds of the 95 % interval of the ratio of time per decoded
token, with dials over plain; `…_point` and `…_low` are the estimate and the lower bound. The first token, with the
prompt's pass, the reads and the setup, is reported separately (`first_token_…`). `control_…` is the ratio of a second
plain run to the first; its interval should contain 1. `extra_ms_…` is the time that the dials add per token, measured
on a model with three thin layers of the same width.

`alarms_…` is the ratio with dials that alarm, which read every token and write nothing, over our generation without
dials.

On a CPU: a Qwen2.5-0.5B shape in float32 with one thread, in processor time, which other processes hardly affect;
`wall_…` is the ratio of elapsed times. On a GPU: a Llama-3.1-8B shape in bfloat16, in wall-clock time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from benchmarks.decoding.lockstep import CLOCKS, Arm, lockstep, median_interval, ratio_interval
from benchmarks.decoding.steering_tools import TOOLS, Task, plain
from benchmarks.shapes import ON_GPU, ORGANISM, random_model, small_model, twin
from benchmarks.table import main
from extract.chat.render import Rendered, render
from extract.model.backends import decoder_layers, stream_in
from extract.model.chat_model import ChatModel
from extract.model.padded_batch import pad
from extract.prompts.prompt import Prompt
from probes.direction import Direction, Locus
from probes.grid.logistic import LinearProbe, Platt
from probes.statistics.intervals import Estimate
from steering.controller import steering
from steering.dial import Dial, Kind, Reference

VERBS = ("move", "clean", "fix", "open", "hide", "lock", "lift", "push")
TARGETS = {"normative": -1.0, "epistemic": 1.0}  # the normative gate permits, the epistemic one declines: both fire
CLOCK = CLOCKS.index("wall" if ON_GPU else "processor")
PLAIN = ("plain", "control", "bare", "alarming", "nnsight_plain", "transformer_lens_plain")
Times = dict[str, Float[np.ndarray, "calls tokens clocks"]]


def measure(quick: bool) -> dict[str, float]:
    """Measure at batch 1 and 8."""
    if not ON_GPU:
        torch.set_num_threads(1)
    weights = random_model(quick)
    shallow = small_model(weights.config.hidden_size).to(weights.device, weights.dtype)
    figures: dict[str, float] = {}
    for size in (1, 8):
        at, rows = f"batch{size}", _rows(size)
        task, thin = _task(weights, rows), _task(shallow, rows)
        figures |= _of_dials(at, _timed(_ours(weights, task, rows), task, (6, 3) if quick else (8, 21)))
        times = _timed(_ours(shallow, thin, rows), thin, (6, 3) if quick else (8, 51))
        extra = (times["dialled"] - times["plain"])[:, 1:, CLOCK].ravel()
        figures |= _named(f"extra_ms_{at}", median_interval(1000 * extra))
        times = _timed(_others(weights, task), task, (6, 3) if quick else (2, 17))
        for name in sorted(times.keys() - {"plain"}):
            figures |= _named(f"{name}_{at}", _ratio(times, name))
    return figures


def _of_dials(at: str, times: Times) -> dict[str, float]:
    named = {
        "overhead": _ratio(times, "dialled"),
        "wall": _ratio(times, "dialled", clock=CLOCKS.index("wall")),
        "control": _ratio(times, "control"),
        "alarms": _ratio(times, "alarming", over="bare"),
        "first_token": ratio_interval(times["dialled"][:, 0, CLOCK], times["plain"][:, 0, CLOCK]),
    }
    figures = {f"overhead_{at}": named["overhead"].high}
    figures[f"ms_per_token_{at}"] = 1000 * float(np.median(times["plain"][:, 1:, CLOCK]))
    for name, interval in named.items():
        figures |= _named(f"{name}_{at}", interval)
    return figures


def _ratio(times: Times, name: str, clock: int = CLOCK, over: str = "plain") -> Estimate:
    """Return the ratio of time per token to plain generation in the same turn, without the first token."""
    return ratio_interval(times[name][:, 1:, clock].ravel(), times[over][:, 1:, clock].ravel())


def _named(name: str, interval: Estimate) -> dict[str, float]:
    parts = {"low": interval.low, "point": interval.estimate, "high": interval.high}
    return {f"{name}_{part}": value for part, value in parts.items()}


def _timed(arms: dict[str, Arm], task: Task, calls: tuple[int, int]) -> Times:
    """Check that all arms except the plain ones write, then time (n_calls, n_tokens) of each arm."""
    for name, arm in arms.items():
        writes = _writes(arm, task)
        if writes != (name not in PLAIN):
            raise RuntimeError(f"{name} {'writes' if writes else 'does not write'} at every generated token")
    n_calls, n_tokens = calls
    rounds = [lockstep(arms, n_tokens, seed) for seed in range(n_calls)]
    return {name: np.stack([one[name] for one in rounds]) for name in arms}


def _writes(arm: Arm, task: Task) -> bool:
    """Return whether three tokens have the target projections at the next layer, in every row."""
    seen: list[Tensor] = []

    def look(_module: torch.nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
        seen.append(stream_in(args, kwargs)[:, -1] @ task.directions.T)

    handle = decoder_layers(arm.model)[task.layer + 1].register_forward_pre_hook(look, with_kwargs=True)
    with torch.inference_mode():
        arm.run(3)
    handle.remove()
    wanted = torch.tensor(task.targets, device=task.directions.device)
    return len(seen) == 3 and all(torch.allclose(one.float(), wanted, atol=0.05) for one in seen)


def _task(weights: PreTrainedModel, rows: list[Rendered]) -> Task:
    random = np.random.default_rng(0).standard_normal((weights.config.hidden_size, 2))
    directions = torch.tensor(np.linalg.qr(random)[0].T, dtype=weights.dtype, device=weights.device)
    batch = pad([row.token_ids for row in rows], 0, "left", weights.device)
    return Task(batch, _tokenizer(), weights.config.num_hidden_layers // 2, directions, tuple(TARGETS.values()))


def _rows(size: int) -> list[Rendered]:
    prompts = [
        Prompt(str(i), ({"role": "user", "content": f"how do i {verb} the engine at home?"},), "benign", "answer")
        for i, verb in enumerate(VERBS[:size])
    ]
    return [render(_tokenizer(), prompt) for prompt in prompts]


def _tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(ORGANISM, padding_side="left")


def _ours(weights: PreTrainedModel, task: Task, rows: list[Rendered]) -> dict[str, Arm]:
    width = weights.config.hidden_size
    seen = Reference(np.zeros(50), np.zeros((50, width), np.float32), np.linspace(-9, 9, 99), answer_tokens=512)
    dials = [replace(_dial(kind, task), reference=seen) for kind in get_args(Kind)]

    def under(own: Sequence[Dial]) -> Arm:
        model = ChatModel(twin(weights), task.tokenizer, name="random")

        def run(n: int) -> None:
            with steering(model, own, task.batch, rows) as readings:
                model.generate(task.batch, n, n, watch=(lambda _: readings.of_answers()) if readings.answers else None)

        return Arm(model.model, run)

    made = {"bare": under([]), "dialled": under(dials), "alarming": under([dial.alarm(0.01) for dial in dials])}
    return {name: plain(twin(weights), task) for name in ("plain", "control")} | made


def _dial(kind: Kind, task: Task) -> Dial:
    """Make a dial whose gate always chooses the target; its other target is far away."""
    vector = task.directions[list(TARGETS).index(kind)].float().cpu().numpy()
    locus = Locus("resid_post", task.layer, "post_last")
    means = (TARGETS[kind], -9.0) if TARGETS[kind] > 0 else (9.0, TARGETS[kind])
    threshold = 0.0 if TARGETS[kind] > 0 else 1.0
    probe = LinearProbe(vector.astype(float), 0.0, 1.0)
    return Dial(kind, locus, probe, Platt(1.0, 0.0), threshold, 0.0, Direction(f"{kind}_write", vector, locus, *means))


def _others(weights: PreTrainedModel, task: Task) -> dict[str, Arm]:
    arms = {"plain": plain(twin(weights), task)}
    for build in TOOLS:
        try:
            arms[build.__name__] = build(twin(weights), task)
        except (ImportError, AttributeError) as error:  # repeng 0.4.0 uses a name that NumPy 2 removed
            print(f"{build.__name__} is left out: {error}", file=sys.stderr)
    return arms


if __name__ == "__main__":
    main("steering", measure)
