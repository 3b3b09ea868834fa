"""Pytest plugin of `make shapes`: arrays of probes/ are held against their jaxtyping annotations while its tests run.

Left out are modules that check what people give them themselves, and whose tests give them wrong types on purpose:
`probes.contrast`, `probes.direction` and `probes.estimators` (scikit-learn's checks).
"""

from __future__ import annotations

import pytest
from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

ROOMS = ["covariance", "geometry", "grid", "means", "nullspace", "splits", "statistics"]
checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is a float


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Install the import hook before any conftest imports probes."""
    install_import_hook([f"probes.{room}" for room in ROOMS], f"{__name__}.checked")
