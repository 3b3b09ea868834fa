"""Copies of a host array on each device and in each dtype, made once: a copy makes the host wait for the device."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor


class DeviceCopies:
    """An array that never changes, such as a direction that is written at every decoded token."""

    def __init__(self, values: Shaped[np.ndarray, ...]) -> None:
        self._host = torch.tensor(values)
        self._copies: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def on(self, device: torch.device, dtype: torch.dtype = torch.float32) -> Shaped[Tensor, ...]:
        """Return the copy on a device; the same tensor each time."""
        at = device, dtype
        if at not in self._copies:
            with torch.inference_mode(False):  # what is made in inference mode cannot enter a gradient later
                self._copies[at] = self._host.to(device, dtype)
        return self._copies[at]


class LastCopy:
    """Small arrays of which one often equals the one before, such as gates: copied only where it does not."""

    def __init__(self) -> None:
        self._values, self._copy = np.empty(0), torch.empty(0)

    def of(self, values: Shaped[np.ndarray, ...], device: torch.device) -> Shaped[Tensor, ...]:
        """Return them on a device."""
        if self._copy.device != device or not np.array_equal(self._values, values):
            self._values, self._copy = values, torch.tensor(values, device=device)
        return self._copy
