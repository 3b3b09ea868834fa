"""bfloat16 as a real HDF5 floating-point type, which HDF5 itself converts to float32 on reading."""

from __future__ import annotations

import h5py


def bfloat16_type() -> h5py.h5t.TypeFloatID:
    """Return the 16-bit HDF5 float type: sign at bit 15, exponent 7..14 with bias 127, mantissa 0..6."""
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_precision(16)
    kind.set_size(2)
    kind.set_ebias(127)
    return kind
