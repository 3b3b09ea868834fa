"""The example on the probing page of the docs runs unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import probes
import probes.estimators

ROOT = Path(probes.__file__).parent.parent
PAGE = (ROOT / "docs" / "estimators.md").read_text(encoding="utf-8")


def test_the_example_runs_and_writes_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL))
    exec(compile(code, "the page", "exec"), {"__name__": "__main__"})
    assert (tmp_path / "directions.safetensors").is_file()
    broken = code[code.rindex("import numpy") :].replace(".fit(", ".no_such_method(")
    with pytest.raises(AttributeError, match="no_such_method"):  # the control: a broken example would be seen
        exec(compile(f"from pathlib import Path\n{broken}", "the page, broken", "exec"), {"__name__": "__main__"})


def test_every_estimator_is_on_the_page() -> None:
    assert [name for name in probes.estimators.__all__ if f"`{name}`" not in PAGE] == []
