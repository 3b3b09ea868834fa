"""Speed and memory of a machine, for estimates: this one is measured in half a second, an A100 is by its data sheet."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from extract.errors import UserError, in_one_line

LEAST_SECONDS = 0.1  # least duration of each measurement


@dataclass(frozen=True)
class Machine:
    """Peak values of a machine, of which a run reaches a share; or those that a model reaches."""

    name: str
    source: str  # of the values: measured, or a data sheet
    flops: float  # FLOP per second of matrix products
    bandwidth: float  # bytes per second, of the memory that holds the weights
    memory: int  # bytes of that memory
    launch: tuple[float, float]  # least seconds of a layer in any pass, however little it computes: low, high
    width: int  # bytes of a number in the model's default dtype
    device: str = "cpu"
    of_model: bool = False  # whether the speed is that of the model's own passes, and no peak

    def described(self) -> str:
        """Return the name with speed, bandwidth and their source."""
        figures = f"{self.flops / 1e12:.3g} TFLOP/s" + ("" if self.of_model else f", {self.bandwidth / 1e9:.3g} GB/s")
        return f"{self.name} ({figures}: {self.source})"


A100 = Machine("one A100 of 80 GB", "its data sheet, nothing measured", 312e12, 2.0e12, 80 * 10**9, (3e-4, 1.2e-3), 2)


def has_gpu(device: str) -> bool:
    """Return whether a model on the device that a configuration names runs on a GPU."""
    import torch

    return device not in ("auto", "cpu") or (device == "auto" and torch.cuda.is_available())


def measure_device(device: str) -> Machine:
    """Measure the device that a configuration names; `auto` is the GPU if there is one, else the CPU.

    Raises:
        UserError: there is no such device.
    """
    import torch

    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    try:
        at = torch.device(chosen)
        on_gpu = at.type == "cuda"
        kind = torch.bfloat16 if on_gpu else torch.float32
        size, n_bytes = (8192, 2**30) if on_gpu else (1024, 2**27)
        a, b = torch.ones(size, size, device=at, dtype=kind), torch.empty(n_bytes, device=at, dtype=torch.uint8)
    except (RuntimeError, AssertionError) as error:  # the latter if torch was built without CUDA
        raise UserError(f"model.device {device!r} cannot be used here: {in_one_line(error)}") from None
    finish: Callable[[], None] = torch.cuda.synchronize if on_gpu else lambda: None
    flops = 2 * size**3 / _seconds(lambda: a @ a, finish)
    bandwidth = 2 * n_bytes / _seconds(b.clone, finish)
    if not on_gpu:
        return Machine(
            f"{os.cpu_count()} CPU cores", "measured now", flops, bandwidth, _host_memory(), (1e-4, 6e-4), 4, chosen
        )
    count = torch.cuda.device_count() if device == "auto" else 1
    held = [torch.cuda.get_device_properties(i if device == "auto" else at) for i in range(count)]
    name = f"{count} x {held[0].name}" if count > 1 else str(held[0].name)
    memory = sum(int(one.total_memory) for one in held)
    return Machine(name, "measured now", flops, bandwidth, memory, A100.launch, 2, chosen)


def _seconds(call: Callable[[], object], finish: Callable[[], None]) -> float:
    """Return the least duration of a call, in seconds; the first call, which may initialise, does not count."""
    call()
    finish()
    best, started = float("inf"), time.perf_counter()
    while time.perf_counter() - started < LEAST_SECONDS:
        before = time.perf_counter()
        call()
        finish()
        best = min(best, time.perf_counter() - before)
    return best


def _host_memory() -> int:
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names:  # not on every system
        return 16 * 10**9
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
