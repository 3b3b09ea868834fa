"""The example of the page on probing runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import probes
import probes.estimators

ROOT = Path(probes.__file__).parent.parent
PAGE = (ROOT / "docs" / "probing.md").read_text(encoding="utf-8")


def _run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_example_runs_and_writes_its_file(tmp_path: Path) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL))
    done = _run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "directions.safetensors").is_file()
    broken = _run(code.replace(".fit(", ".no_such_method("), tmp_path)  # the control: a broken example would be seen
    assert broken.returncode != 0


def test_every_estimator_is_on_the_page() -> None:
    assert [name for name in probes.estimators.__all__ if f"`{name}`" not in PAGE] == []
