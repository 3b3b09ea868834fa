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
COMMANDS = """
import json, sys
from refusal.cli.main import main
for words in json.loads(sys.argv[1]):
    assert "scipy.optimize" not in sys.modules  # scoring loads none of it; comparing does
    sys.argv = ["refusal", *words]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, ended.code
"""


def loaded(code: str, *arguments: object, among: tuple[str, ...] = HEAVY) -> str:
    code += f"\nimport sys; print([name for name in {among} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True,
                          text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)  # fmt: skip
    return done.stdout.splitlines()[-1]


def test_scoring_and_comparing_load_nothing_heavy(tmp_path: Path) -> None:
    row = {"id": "1", "text": "How?", "completion": "I can't help with that.", "label": "benign"}
    (tmp_path / "answers.jsonl").write_text(json.dumps(row) + "\n")
    score = ["score", str(tmp_path / "answers.jsonl"), "--parquet"]
    compare = ["compare", str(tmp_path / "scored.jsonl"), str(tmp_path / "scored.parquet")]
    assert loaded(COMMANDS, json.dumps([score, compare])) == "[]"
    assert "h5py" in loaded("import h5py")


@pytest.mark.slow  # imports torch and transformers in a process of its own
def test_a_model_answers_without_libraries_of_statistics() -> None:
    assert loaded("import steering.conversation", among=STATISTICS) == "[]"
