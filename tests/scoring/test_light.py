"""Scoring loads no model libraries, neither on import nor while it scores and compares; talking no statistics."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "transformers", "sklearn", "openai", "h5py", "matplotlib", "datasets")
STATISTICS = ("sklearn", "pandas", "scipy.stats", "matplotlib")
COMMAND = (
    "import sys; from refusal.cli.main import main; sys.argv[0] = 'refusal'\ntry: main()\nexcept SystemExit: pass\n"
)


def loaded(code: str, *arguments: object, among: tuple[str, ...] = HEAVY) -> str:
    code += f"\nimport sys; print([name for name in {among} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True,
                          text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)  # fmt: skip
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("module", ["scoring.score_file", "scoring.compare.comparison", "scoring.rates"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    assert loaded(f"import {module}") == "[]"


def test_scoring_and_comparing_load_nothing_heavy(tmp_path: Path) -> None:
    row = {"id": "1", "text": "How?", "completion": "I can't help with that.", "label": "benign"}
    (tmp_path / "answers.jsonl").write_text(json.dumps(row) + "\n")
    assert loaded(COMMAND, "score", tmp_path / "answers.jsonl", "--parquet", among=(*HEAVY, "scipy.optimize")) == "[]"
    assert loaded(COMMAND, "compare", tmp_path / "scored.jsonl", tmp_path / "scored.parquet") == "[]"


def test_a_model_answers_without_libraries_of_statistics() -> None:
    assert loaded("import steering.one_off", among=STATISTICS) == "[]"


def test_the_measure_sees_what_is_loaded() -> None:
    assert "sklearn" in loaded("import sklearn")
