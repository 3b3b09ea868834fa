"""An installed wheel, outside the checkout, runs the demo: nothing it needs was left behind.

The wheel is unpacked by pip into a directory of its own, which is the only place of this project on the path; the
libraries it depends on are those of this environment.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.test_house import PACKAGES

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]
WHERE = """
import importlib, json, sys
print(json.dumps({name: importlib.import_module(name).__path__[0] for name in sys.argv[1:]}))
"""
SMALL = (
    "prompts.limit=60", "extract.layers=[1,4]", "extract.positions=[post_last]", "generate.max_new_tokens=8",
    "dissociate.positions=[post_last]", "dissociate.n_null_onset=19", "dissociate.n_null_generation=2",
    "dissociate.n_onset=4", "dissociate.n_side_effects=2", "triggers.patched=4", "triggers.erased=4",
    "triggers.attributed=4",
)  # fmt: skip
Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that the wheel was installed into."""
    home = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(home)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    site = home / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*pip, str(next(home.glob("*.whl")))], check=True, capture_output=True)
    return site


@pytest.fixture(scope="module")
def call(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Call:
    """Run Python with the wheel alone on its path, in an empty directory; an editable install is not looked at."""
    empty = tmp_path_factory.mktemp("elsewhere")
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(installed), *libraries]), "COLUMNS": "100"}

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", *arguments]  # without site, no .pth file leads back to the checkout
        return subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)

    return python


def test_every_package_is_the_installed_one(call: Call, installed: Path) -> None:
    found = call("-c", WHERE, *sorted(PACKAGES - {"configs"}))
    assert found.returncode == 0, found.stderr
    places = json.loads(found.stdout)
    assert {name: Path(path) for name, path in places.items()} == {name: installed / name for name in places}


def test_help_and_the_sets_of_prompts_are_there(call: Call) -> None:
    said = call("-m", "refusal", "--help")
    assert said.returncode == 0, said.stderr
    assert "run" in said.stdout
    sets = call("-m", "refusal", "prompts", "sets")
    assert sets.returncode == 0, sets.stderr
    assert "xstest" in sets.stdout


def test_the_demo_runs_to_its_end(call: Call, tmp_path: Path) -> None:
    """Configuration, model and prompts are found beside the packages; every stage runs, on few prompts."""
    given = [word for each in SMALL for word in ("--set", each)]
    done = call("-m", "refusal", "run", "configs/quickstart.yaml", *given, "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["rates"]["before"]["missed_harm"]["estimate"] == 0
    assert results["rates"]["before"]["overconfidence"]["estimate"] > 0.2
    page = (tmp_path / "run" / "report.html").read_text()
    assert results["dissociation"]["verdict"].replace("_", " ") in page.lower()
    assert str(ROOT) not in page
