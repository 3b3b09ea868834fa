"""Times several ways of generating token by token in turns, so that other load on the machine affects all alike.

Each way runs in its own thread, on a copy of the model that shares the weights; only one thread runs at a time. The
next thread runs when the decoder is called for the next token.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import quantile_test
from transformers import PreTrainedModel

from probes.statistics.intervals import Estimate

CLOCKS = ("wall", "processor")


@dataclass(frozen=True)
class Arm:
    """One way of generating: `run(n)` decodes n tokens per row with `model`, one forward pass per token."""

    model: PreTrainedModel
    run: Callable[[int], object]


def lockstep(arms: dict[str, Arm], n_tokens: int, seed: int = 0) -> dict[str, Float[np.ndarray, "tokens clocks"]]:
    """Decode `n_tokens` tokens with every arm and return the seconds per token, by each of `CLOCKS`.

    The time of the first token includes the setup of the call and the prompt's pass. The order of the arms is random at
    every second token and reversed at the next one, so that any two arms run equally often in either order.

    Raises:
        RuntimeError: an arm makes more or fewer passes than tokens.
    """
    rng = np.random.default_rng(seed)
    stepped = {name: _SteppedArm(arm, n_tokens) for name, arm in arms.items()}
    order, times = list(arms), {name: np.empty((n_tokens, len(CLOCKS))) for name in arms}
    for token in range(n_tokens):
        order = order[::-1] if token % 2 else [str(name) for name in rng.permutation(list(arms))]
        for name in order:
            times[name][token] = stepped[name].step()
    for name, one in stepped.items():
        if not one.finished:
            raise RuntimeError(f"{name} makes more than {n_tokens} passes for {n_tokens} tokens")
    return times


class _SteppedArm:
    """An arm that decodes one token at each `step`."""

    def __init__(self, arm: Arm, n_tokens: int) -> None:
        self.finished = False
        self._arm, self._n_tokens, self._passes = arm, n_tokens, 0
        self._errors: list[Exception] = []
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._work, daemon=True).start()

    def step(self) -> Float[np.ndarray, " clocks"]:
        if self.finished:
            raise RuntimeError(f"an arm made {self._passes} passes for {self._n_tokens} tokens")
        started = _now()
        self._go.release()
        self._done.acquire()
        took = _now() - started
        if self._errors:
            raise self._errors[0]
        return took

    def _work(self) -> None:
        handle = self._arm.model.base_model.register_forward_pre_hook(self._pause)
        self._go.acquire()
        try:
            with torch.inference_mode():
                self._arm.run(self._n_tokens)
        except Exception as error:  # raised again in `step`
            self._errors.append(error)
        handle.remove()
        self.finished = True
        self._done.release()

    def _pause(self, *_: Any) -> None:
        if self._passes:
            self._done.release()
            self._go.acquire()
        self._passes += 1


def _now() -> Float[np.ndarray, " clocks"]:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return np.array([time.perf_counter(), time.process_time()])


def median_interval(values: Float[np.ndarray, " n"]) -> Estimate:
    """Return the median with its exact 95 % interval between order statistics.

    On a shared machine some times are far too long. Such outliers change a mean and its t interval, but not a median,
    whose interval assumes no distribution, so that no value has to be left out. With fewer than six values the interval
    is unbounded.
    """
    low, high = quantile_test(values, q=0.0, p=0.5).confidence_interval(0.95)
    low, high = (-np.inf if np.isnan(low) else low), (np.inf if np.isnan(high) else high)
    return Estimate(float(np.median(values)), float(low), float(high))


def ratio_interval(times: Float[np.ndarray, " pairs"], of: Float[np.ndarray, " pairs"]) -> Estimate:
    """Return the median of the paired ratios `times / of` with its interval."""
    return Estimate(*np.exp(median_interval(np.log(times) - np.log(of)).limits()).tolist())
