"""What a shell completes where a command takes a configuration or a model."""

from __future__ import annotations

from pathlib import Path

from extract.shipped import ROOT

SHIPPED = ("configs/*.yaml", "configs/models/*.yaml", "organisms/zoo/*/")


def complete_target(incomplete: str) -> list[str]:
    """Return the shipped configurations and organisms, and the local folders and YAML files, that begin so."""
    shipped = [str(path.relative_to(ROOT)) for pattern in SHIPPED for path in ROOT.glob(pattern)]
    parent = Path(incomplete or ".") if incomplete.endswith("/") or not incomplete else Path(incomplete).parent
    here = [f"{path}/" if path.is_dir() else str(path) for path in parent.glob("*") if path.is_dir() or path.suffix in
            (".yaml", ".yml", ".gguf")]  # fmt: skip
    return sorted(
        {name for name in [*shipped, *here] if name.startswith(incomplete) and not Path(name).name.startswith(".")}
    )
